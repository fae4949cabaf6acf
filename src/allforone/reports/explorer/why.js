// Why one client does or does not use another: from what was recorded, in words.

const NEAR = 4; // frames before and after, over which a number's spread is told

function pairAt(frames, name, at, i, k) {
  return frames[name] ? slice(frames[name], at)[i * clientCount() + k] : NaN;
}

function spreadAround(frames, name, at, i, k) {
  const values = [];
  for (let f = Math.max(0, at - NEAR); f <= Math.min(frames.rounds.length - 1, at + NEAR); f++)
    if (!absent(frames, f).has(i) && !absent(frames, f).has(k)) values.push(pairAt(frames, name, f, i, k));
  return values.length > 1 ? deviation(values) : NaN;
}

// The same pair in the other seeds, where these deal the clients to the same clusters.
function overSeeds(frames, name, i, k) {
  const alike = framesOf(chosen.algorithm).filter(
    f => f[name] && JSON.stringify(f.truth) === JSON.stringify(frames.truth),
  );
  const values = known(alike.map(f => pairAt(f, name, Math.min(chosen.frame, f.rounds.length - 1), i, k)));
  return values.length > 1 ? [Math.min(...values), Math.max(...values)] : null;
}

// A verdict in a few words, and in sentences.
function why(frames, at, i, k) {
  const A = clientName(i),
    B = clientName(k),
    {label, threshold} = algorithm(chosen.algorithm);
  const weight = pairAt(frames, "weights", at, i, k),
    own = pairAt(frames, "weights", at, i, i);
  const r = pairAt(frames, "similarity", at, i, k),
    noise = pairAt(frames, "noise", at, i, k),
    trust = pairAt(frames, "trust", at, i, k);
  if (absent(frames, at).has(i))
    return ["it was absent", `${sentence(A)} was absent in this round: its model stayed as it was.`];
  if (absent(frames, at).has(k))
    return ["absent", `${sentence(B)} was absent in this round, so it could not be asked.`];
  if (Number.isNaN(r)) {
    if (weight > 0)
      return [
        "used",
        `${label} gives ${B} a weight of ${short(weight)}. It does not estimate how similar clients are.`,
      ];
    return [
      "not used",
      `${label} gives ${B} no weight. It does not estimate how similar clients are; its rule alone decides.`,
    ];
  }
  const share = own > 0 ? weight / own : 0;
  if (weight > 0) {
    let said = `${sentence(B)} counts with weight ${short(weight)}, ${share >= 0.995 ? "as much as" : `${Math.round(100 * share)} % of what`} ${A} gives ${share >= 0.995 ? `${A} itself` : "itself"}. Its gradient at ${A}'s model has similarity ${short(r)} with ${A}'s own`;
    if (Number.isFinite(noise))
      said +=
        noise > 1.15
          ? `, and is ${short(noise)} times as noisy, which lowers its weight`
          : noise < 0.87
            ? `, and is less noisy (${short(noise)} of ${A}'s noise), which raises its weight`
            : ", and is about as noisy";
    said += ".";
    if (trust < 0.95)
      said += ` Only ${Math.round(100 * trust)} % of the difference is let through, since it is longer than ${A}'s own gradient has been of late.`;
    return [share < 0.1 ? "hardly used" : r < 0.3 ? "a little similar" : "used", said];
  }
  if (frames.trust && frames.rounds[at] === 1)
    return [
      "not known yet",
      `Nothing is known of others before the first round, and who is not known counts as different.`,
    ];
  if (r > 0 && r < threshold)
    return [
      `below ${threshold}`,
      `${sentence(B)}'s gradient at ${A}'s model has similarity ${short(r)} with ${A}'s own: below the threshold λ = ${threshold}, so ${B} does not count.`,
    ];
  if (r > 0)
    return [
      "no weight",
      `${sentence(B)}'s gradient has similarity ${short(r)} with ${A}'s own, but the rule that turns similarity into weight gives it none.`,
    ];
  return [
    "too different",
    `The estimated similarity is 0: as far as can be seen through the noise, ${B}'s gradient at ${A}'s model differs from ${A}'s own by at least as much as ${A}'s own is long.`,
  ];
}

// In which rounds client i gave client k any weight.
function usedWhen(frames, i, k) {
  if (frames.constant) return "";
  const used = frames.rounds.filter((_, at) => pairAt(frames, "weights", at, i, k) > 0);
  if (!used.length) return ` Over the whole run, ${clientName(i)} never used it.`;
  const share = used.length / frames.rounds.length;
  return share === 1
    ? ` ${sentence(clientName(k))} was used in every round.`
    : ` ${sentence(clientName(k))} was used in ${Math.round(100 * share)} % of the rounds, first in round ${used[0]}, last in round ${used.at(-1)}.`;
}

function showWhy() {
  const frames = current();
  if (!frames || clientCount() < 2) {
    $("why").hidden = true;
    return;
  }
  const i = chosen.client,
    k = chosen.partner,
    at = chosen.frame;
  const used = pairAt(frames, "weights", at, i, k) > 0;
  $("why-title").textContent = `Why is ${clientName(k)} ${used ? "" : "not "}used by ${clientName(i)}?`;
  $("why-text").textContent = why(frames, at, i, k)[1] + usedWhen(frames, i, k);
  const lines = ["similarity", "weights"]
    .filter(name => frames[name])
    .map((name, j) => ({
      name: name === "weights" ? "weight" : name,
      colour: `var(--c${j})`,
      dash: DASHES[j],
      x: frames.rounds,
      y: frames.rounds.map((_, f) =>
        absent(frames, f).has(i) || absent(frames, f).has(k) ? NaN : pairAt(frames, name, f, i, k),
      ),
      spread: frames.rounds.map((_, f) => spreadAround(frames, name, f, i, k) || 0),
    }));
  const threshold = algorithm(chosen.algorithm).threshold;
  if (threshold && frames.similarity)
    lines.push({
      name: `threshold λ = ${threshold}`,
      colour: "var(--soft)",
      dash: "2 4",
      x: [frames.rounds[0], frames.rounds.at(-1)],
      y: [threshold, threshold],
      thin: true,
    });
  $("why-chart").hidden = $("why-legend").hidden = frames.rounds.length < 2;
  if (frames.rounds.length < 2) return;
  keys($("why-legend"), lines);
  lineChart($("why-chart"), {
    series: lines,
    xTitle: "round",
    yTitle: "",
    height: 210,
    range: [0, 1.03 * Math.max(1, ...lines.flatMap(line => known(line.y)))],
    now: frames.rounds[at],
    onpick: round => goTo(frames.rounds.indexOf(round)),
  });
}
