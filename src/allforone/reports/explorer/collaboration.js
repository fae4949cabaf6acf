// The collaboration over time: one frame of weights at a time, chosen by slider, play button, or a click.

const framesOf = name => data.frames[name] || [];
const current = () =>
  framesOf(chosen.algorithm).find(f => f.seed === chosen.seed) || framesOf(chosen.algorithm)[0] || null;
const clientCount = () => data.clients.length;

const absences = new WeakMap();
function absent(frames, at) {
  if (!absences.has(frames)) {
    const sets = frames.rounds.map(() => new Set());
    for (const [frame, client] of frames.absent) sets[frame].add(client);
    absences.set(frames, sets);
  }
  return absences.get(frames)[at];
}

// The mean of the weights over frames, each pair over those in which both were there.
function meanWeights(frames, from, to) {
  const n = clientCount(),
    sum = new Float64Array(n * n),
    seen = new Float64Array(n * n);
  for (let at = from; at <= to; at++) {
    const weights = slice(frames.weights, at),
      away = absent(frames, at);
    for (let i = 0; i < n; i++)
      for (let k = 0; k < n; k++)
        if (!away.has(i) && !away.has(k)) {
          sum[i * n + k] += weights[i * n + k];
          seen[i * n + k]++;
        }
  }
  return sum.map((value, j) => (seen[j] ? value / seen[j] : 0));
}

// Found clusters of every frame, from it and the few before.
const partitionAt = (frames, at) => Array.from(slice(frames.found, at), Math.round);
const partitions = frames => frames.rounds.map((_, at) => partitionAt(frames, at));

// The clients as they are shown in a frame, and the places where another cluster begins. Found clusters are those of
// the frame's round, so that blocks are what the page says was found in it.
const orders = new WeakMap();
function arrangement(frames, at = chosen.frame) {
  if (!orders.has(frames)) orders.set(frames, {});
  const kept = orders.get(frames),
    found = chosen.order === "found" || (chosen.order === "truth" ? !frames.truth : isCrowd(frames)),
    key = found ? `found ${at}` : chosen.order;
  if (!kept[key]) {
    const n = clientCount();
    const groups = isCrowd(frames)
      ? labelsOf(blocksOf(frames, at))
      : found
        ? partitionAt(frames, at)
        : chosen.order === "truth"
          ? frames.truth
          : new Array(n).fill(0);
    const order = Array.from({length: n}, (_, i) => i).sort((a, b) => groups[a] - groups[b] || a - b);
    const splits = order.map((_, j) => j).filter(j => j && groups[order[j]] !== groups[order[j - 1]]);
    kept[key] = {order, splits: splits.length < n - 1 ? splits : [], groups};
  }
  return kept[key];
}

const tops = new WeakMap();
function largest(frames) {
  // weight; the colours mean the same in all rounds
  if (!tops.has(frames))
    tops.set(
      frames,
      unpack(frames.weights).reduce((a, b) => Math.max(a, b), 1e-9),
    );
  return tops.get(frames);
}
const largestOfOthers = frames => {
  const n = clientCount();
  return unpack(frames.weights).reduce((a, b, j) => {
    const cell = j % (n * n);
    return Math.floor(cell / n) === cell % n ? a : Math.max(a, b);
  }, 1e-9);
};

function pairText(frames, at, i, k) {
  const weight = pairAt(frames, "weights", at, i, k);
  if (absent(frames, at).has(i)) return `${sentence(clientName(i))} was absent.`;
  let text =
    i === k
      ? `${sentence(clientName(i))} listens to itself: ${short(weight)}`
      : `${sentence(clientName(i))} listens to ${clientName(k)}: ${short(weight)}`;
  if (i !== k && frames.bias) text += `, bias ${short(pairAt(frames, "bias", at, i, k))}`;
  else if (i !== k && frames.similarity) text += `, similarity ${short(pairAt(frames, "similarity", at, i, k))}`;
  if (i !== k && frames.liars.includes(k)) text += ", which lies";
  if (i !== k && frames.truth)
    text += frames.truth[i] === frames.truth[k] ? ", same true cluster" : ", another true cluster";
  return text;
}

function fillControls() {
  const options = (select, list, value) => {
    select.replaceChildren(...list.map(([key, text]) => make("option", {value: key}, text)));
    select.value = value;
  };
  options(
    $("quantity"),
    data.quantities.map(q => [q.name, q.title]),
    chosen.quantity,
  );
  options(
    $("algorithm"),
    data.algorithms.filter(a => framesOf(a.name).length).map(a => [a.name, a.label]),
    chosen.algorithm,
  );
  options(
    $("seed"),
    framesOf(chosen.algorithm).map(f => [f.seed, f.seed]),
    chosen.seed,
  );
  $("seed").closest("label").hidden = framesOf(chosen.algorithm).length < 2;
  const frames = current(),
    last = frames ? frames.rounds.length - 1 : 0;
  for (const option of $("order").options) option.disabled = (option.value === "truth" && !frames?.truth) || (option.value === "number" && isCrowd(frames));
  $("order").value = chosen.order;
  chosen.frame = Math.min(chosen.frame, last);
  $("slider").max = last;
  $("slider").disabled = $("play").disabled = last < 1;
  $("slider").value = chosen.frame;
  const named = list => list.map(i => [i, clientName(i)]);
  $("client-choice").closest("label").hidden = isCrowd(frames);
  $("client-search").closest("label").hidden = !isCrowd(frames);
  if (isCrowd(frames)) $("client-search").value = data.clients[chosen.client].name;
  else options($("client-choice"), named(everyone()), chosen.client);
  const partners = isCrowd(frames) ? partnersEver(frames, chosen.client) : everyone();
  const offered = partners.includes(chosen.partner) ? partners : [...partners, chosen.partner];
  options($("partner-choice"), named(offered.filter(k => k !== chosen.client && k !== null)), chosen.partner);
}

let agreementChart;

function showAgreement() {
  const frames = current(),
    truth = frames.truth,
    parts = partitions(frames);
  $("truth-figure").hidden = !truth;
  $("agreement").classList.toggle("single", !truth);
  $("clusters-note").textContent =
    "Blocks of the map: the clusters found in its round. " +
    "Found clusters: who uses each other's gradients in the round and the four before, joined closest first, where modularity is best." +
    (truth
      ? " The adjusted Rand index says how well they agree with the true clusters: 1 is the same, 0 is what guessing would give."
      : "");
  agreementChart = lineChart($("rand"), {
    series: [
      {
        name: truth ? "adjusted Rand index" : "clusters",
        colour: "var(--accent)",
        x: frames.rounds,
        y: parts.map(p => (truth ? adjustedRand(p, truth) : new Set(p).size)),
      },
    ],
    xTitle: "round",
    yTitle: truth ? "adjusted Rand index" : "clusters found",
    height: 240,
    range: truth ? [Math.min(-0.05, ...parts.map(p => adjustedRand(p, truth))), 1.05] : null,
    now: frames.rounds[chosen.frame],
    onpick: round => goTo(frames.rounds.indexOf(round)),
  });
}

function showFrame() {
  const frames = current();
  if (!frames) return;
  const at = chosen.frame,
    truth = frames.truth,
    partition = partitionAt(frames, at);
  const planned = algorithm(chosen.algorithm).rounds;
  $("slider").value = at;
  $("round").textContent = frames.constant ? "the same in all" : `round ${frames.rounds[at]} of ${planned}`;
  $("slider").setAttribute("aria-valuetext", $("round").textContent);
  for (const node of document.querySelectorAll(".few")) node.hidden = isCrowd(frames);
  for (const node of document.querySelectorAll(".many")) node.hidden = !isCrowd(frames);
  if (isCrowd(frames)) showBlocks(frames, at);
  else showPairs(frames, at);
  $("graph-title").textContent =
    `The same as a graph: from who gives to who listens; colours are the ${truth && !(isCrowd(frames) && chosen.order === "found") ? "true" : "found"} clusters`;
  const parts = count(new Set(partition).size, "cluster");
  $("agreement-title").textContent = truth
    ? `Found in this round: ${parts}; adjusted Rand index ${adjustedRand(partition, truth).toFixed(2)} (1 is the truth, 0 is chance)`
    : `Found in this round: ${parts}`;
  agreementChart?.mark(frames.rounds[at]);
}

// Every pair of clients as a cell, and every client as a node.
function showPairs(frames, at) {
  const n = clientCount(),
    {order, splits, groups} = arrangement(frames, at),
    weights = slice(frames.weights, at),
    top = largest(frames),
    truth = frames.truth,
    names = {rowLabel: r => shortName(order[r]), columnLabel: c => shortName(order[c]), labelWidth: 14 + nameWidth(order)};
  heatMap($("matrix"), {
    rows: n,
    columns: n,
    splits,
    size: 520,
    ...names,
    label: `Weights in round ${frames.rounds[at]}.`,
    rowChosen: order.indexOf(chosen.client),
    share: (r, c) => (absent(frames, at).has(order[r]) ? NaN : Math.sqrt(weights[order[r] * n + order[c]] / top)),
    tell: (r, c) => pairText(frames, at, order[r], order[c]),
    pick: (r, c) => choose(order[r], order[r] === order[c] ? null : order[c]),
  });
  if (truth)
    heatMap($("truth"), {
      rows: n,
      columns: n,
      splits,
      size: 520,
      labelled: false,
      ...names,
      label: "True clusters.",
      rowChosen: order.indexOf(chosen.client),
      share: (r, c) => (truth[order[r]] === truth[order[c]] ? 0.75 : 0),
      tell: (r, c) =>
        `${sentence(clientName(order[r]))} and ${clientName(order[c])}: ${truth[order[r]] === truth[order[c]] ? "same cluster" : "different clusters"}`,
    });
  showGraph($("graph"), {
    order,
    splits,
    weights,
    top: largestOfOthers(frames),
    groups: truth || groups,
    chosenClient: chosen.client,
    pick: i => choose(i, null),
    label: areNamed() ? shortName : String,
    beside: areNamed(),
  });
}

function showRamp() {
  const bar = make("canvas", {"width": 200, "height": 10, "aria-hidden": true}),
    pen = bar.getContext("2d");
  for (let x = 0; x < 200; x++) {
    pen.fillStyle = ramp(x / 199);
    pen.fillRect(x, 0, 1, 10);
  }
  const frames = current(),
    top = isCrowd(frames) ? heaviest(frames) : largest(frames);
  $("ramp").style.paddingLeft = `${isCrowd(frames) ? 30 : Math.max(30, 14 + nameWidth(everyone()))}px`;
  $("ramp").replaceChildren("0", bar, `${short(top)}  (square-root scale)`);
}

function goTo(frame) {
  chosen.frame = frame;
  showFrame();
  showPartners();
}

function choose(client, partner) {
  chosen.client = client;
  chosen.cluster = null;
  if (partner !== null) chosen.partner = partner;
  const strange = partner === null && isCrowd(current()) && !partnersEver(current(), client).includes(chosen.partner);
  if (chosen.partner === client || strange) chosen.partner = closestTo(client);
  fillControls();
  showFrame();
  showClient();
}

const player = {
  timer: null,
  stop() {
    clearInterval(player.timer);
    player.timer = null;
    $("play").textContent = "▶ Play";
  },
  toggle() {
    if (player.timer) return player.stop();
    const last = +$("slider").max;
    if (chosen.frame >= last) goTo(0);
    $("play").textContent = "❚❚ Pause";
    player.timer = setInterval(() => {
      if (chosen.frame >= last) player.stop();
      else goTo(chosen.frame + 1);
    }, 130);
  },
};
