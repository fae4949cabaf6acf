// One client: how it learned, whom it listened to and when, and each partner in numbers.

// Whom client i used most over the run; else the next.
function closestTo(i) {
  const frames = current(),
    n = clientCount();
  if (!frames) return i ? 0 : 1;
  if (isCrowd(frames)) return usedMost(frames, i)[1] ?? (i ? 0 : 1);
  const weights = meanWeights(frames, 0, frames.rounds.length - 1);
  const others = Array.from({length: n}, (_, k) => k).filter(k => k !== i);
  return others.reduce((best, k) => (weights[i * n + k] > weights[i * n + best] ? k : best), others[0] ?? i);
}

function showClient() {
  const i = chosen.client,
    client = data.clients[i],
    frames = current(),
    q = quantity();
  $("client-title").textContent = sentence(clientName(i));
  const said = [
    client.size > 1 ? `${grouped(client.size)} training samples` : null,
    frames?.truth ? `true cluster ${frames.truth[i]}` : null,
    frames?.liars.includes(i) ? "it lies, so its own model is not judged in this seed" : null,
  ].filter(Boolean);
  const gained = gains(chosen.algorithm, q)?.find(g => g.client === i);
  if (gained)
    said.push(
      `${tellGain(gained.mean, q)} against training alone${data.seeds.length > 1 ? `, mean over ${count(gained.seeds.length, "seed")}` : ""}`,
    );
  if (frames?.guard[i]) said.push(tellVerdict(frames.guard[i]));
  const spent = data.costs[chosen.algorithm].epsilon?.[i] ?? null;
  if (spent !== null) said.push(`its answers were private, and ε = ${spent.toPrecision(3)} is spent`);
  $("client-lead").textContent = said.length ? sentence(`${said.join("; ")}.`) : "";
  showClientCurve();
  showStrip();
  showPartners();
}

// What the guard found by data that no model was trained on.
function tellVerdict({gain, low, high, alone}) {
  const percent = share => `${(100 * share).toFixed(0).replace("-", "−")} %`;
  const change = gain < 0 ? `raised its loss on new data by ${percent(-gain)}` : `lowered its loss on new data by ${percent(gain)}`;
  const sure = low === null ? "" : ` (95 %: ${percent(low)} to ${percent(high)} lower)`;
  return `collaboration ${change}${sure}${alone ? ", so the guard gave it its local model" : ""}`;
}

function showClientCurve() {
  const i = chosen.client,
    q = quantity(),
    log = isLog(),
    n = clientCount();
  const names = [...new Set([chosen.algorithm, inRole("alone"), inRole("shared")])].filter(Boolean);
  const series = names
    .map(name => {
      const progress = data.progress[name],
        each = progress.of[q.name].each;
      const column = packed => progress.told.map((_, at) => unpack(packed)[at * n + i]);
      return {
        name: algorithm(name).label,
        colour: colour(name),
        dash: dash(name),
        x: progress.told.map(at => progress[chosen.axis][at]),
        y: column(log ? each.log_mean : each.mean),
        spread: column(log ? each.log_std : each.std),
      };
    })
    .filter(line => known(line.y).length);
  keys($("client-legend"), series);
  lineChart($("client-curve"), {
    ...onAxis(series),
    log,
    q,
    yTitle: q.title,
    height: 300,
    range: rangeOf(series, q),
  });
}

function showStrip() {
  const frames = current();
  if (!frames) {
    $("strip").replaceChildren(make("p", {class: "note"}, "No weights are recorded yet."));
    return;
  }
  const i = chosen.client,
    order = partnersEver(frames, i),
    n = order.length,
    splits = isCrowd(frames) ? [] : arrangement(frames).splits,
    top = largest(frames);
  heatMap($("strip"), {
    rows: n,
    columns: frames.rounds.length,
    splits,
    onlyRows: true,
    rowHeight: Math.max(5, Math.min(24, 300 / n)),
    labelWidth: Math.max(30, 14 + nameWidth(order)),
    label: `Weights of ${clientName(i)} by partner and round.`,
    rowLabel: r => shortName(order[r]),
    columnLabel: c => String(frames.rounds[c]),
    rowChosen: order.indexOf(chosen.partner),
    now: frames.rounds.length > 1 ? chosen.frame : -1,
    share: (r, c) => (absent(frames, c).has(i) ? NaN : Math.sqrt(pairAt(frames, "weights", c, i, order[r]) / top)),
    tell: (r, c) => `Round ${frames.rounds[c]}. ${pairText(frames, c, i, order[r])}`,
    pick: (r, c) => {
      if (order[r] !== i) chosen.partner = order[r];
      fillControls();
      goTo(c);
    },
  });
}

function showPartners() {
  const frames = current();
  if (!frames) return;
  const i = chosen.client,
    at = chosen.frame,
    alike = frames.similarity && !frames.bias;
  const others = partnersAt(frames, at, i);
  others.sort(
    (a, b) =>
      pairAt(frames, "weights", at, i, b) - pairAt(frames, "weights", at, i, a) ||
      (pairAt(frames, "similarity", at, i, b) || 0) - (pairAt(frames, "similarity", at, i, a) || 0) ||
      (pairAt(frames, "bias", at, i, a) || 0) - (pairAt(frames, "bias", at, i, b) || 0) ||
      a - b,
  );
  const range = (name, k) => {
    const found = overSeeds(frames, name, i, k);
    return !found ? "–" : found[1] === 0 ? "0" : `${found[0].toFixed(2)}–${found[1].toFixed(2)}`;
  };
  const number = (name, k) => {
    const value = pairAt(frames, name, at, i, k),
      spread = spreadAround(frames, name, at, i, k);
    if (!Number.isFinite(value) || (value === 0 && !(spread >= 5e-4))) return make("td", {}, value === 0 ? "0" : "–");
    return make(
      "td",
      {},
      value.toFixed(3),
      Number.isFinite(spread) ? make("small", {}, ` ± ${spread.toFixed(3)}`) : "",
    );
  };
  const compared = k => Number.isFinite(pairAt(frames, "bias", at, i, k));
  const several = framesOf(chosen.algorithm).length > 1;
  const rows = others.map(k =>
    make(
      "tr",
      {"class": k === chosen.partner ? "chosen" : null, "data-partner": k, "onclick": () => choose(i, k)},
      make(
        "th",
        {scope: "row"},
        make(
          "button",
          {"class": "link", "type": "button", "aria-pressed": String(k === chosen.partner)},
          clientName(k),
        ),
        frames.liars.includes(k) ? " (lies)" : "",
      ),
      number("weights", k),
      several ? make("td", {}, range("weights", k)) : "",
      alike ? number("similarity", k) : "",
      ...(frames.bias ? ["bias", "noise"] : []).map(name =>
        make("td", {}, compared(k) ? short(pairAt(frames, name, at, i, k)) : "–"),
      ),
      make("td", {class: "verdict"}, why(frames, at, i, k)[0]),
    ),
  );
  const heads = [
    "partner",
    "weight",
    ...(several ? ["over seeds"] : []),
    ...(alike ? ["similarity"] : []),
    ...(frames.bias ? ["bias", "noise"] : []),
    "verdict",
  ];
  const focus = $("partners").contains(document.activeElement);
  $("partners").replaceChildren(
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        ...heads.map(text => make("th", {scope: "col", style: text === "verdict" ? "text-align:left" : null}, text)),
      ),
    ),
    make("tbody", {}, ...rows),
  );
  if (focus) $("partners").querySelector(".chosen button")?.focus();
  $("partners-note").textContent =
    `In ${frames.constant ? "every round" : `round ${frames.rounds[at]}`}, of ${algorithm(chosen.algorithm).label}, seed ${frames.seed}.` +
    (frames.constant ? "" : ` ±: standard deviation over the ${2 * NEAR + 1} rounds shown around it.`) +
    (several ? " Over seeds: lowest to highest." : "") +
    " Weight (α): how much of the client's step comes from the partner's gradient; 0: it is not used." +
    (alike
      ? " Similarity (r̂): how much the partner's gradient, as far as noise lets it be seen, goes where the client's own does; 1 is the same, 0 nothing in common."
      : "") +
    (frames.bias
      ? ` Bias: how far the partner's gradient is off because its task is another, squared. Noise: how far off a step along the partner's gradient is because it comes from few samples. Both in units of ${clientName(i)}'s own squared gradient${others.some(compared) ? `; its own noise is ${short(pairAt(frames, "noise", at, i, i))}` : ""}.`
      : "") +
    " Hardly used: with less than a twentieth of the client's own weight." +
    (isCrowd(frames) ? ` At most the ${frames.partners.shape[2] - 1} strongest partners are shown.` : "");
  showStrip();
  showWhy();
}
