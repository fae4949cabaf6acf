// Why one client does or does not use another: from what was recorded, in words.

const NEAR = 4; // frames before and after, over which a number's spread is told
const LITTLE = 0.05; // of one's own weight: a partner below it is hardly used
const WHOLE = 0.95; // from this trust on, a difference is said to be let through

function pairAt(frames, name, at, i, k) {
  if (name === "best") return onlyPartner(frames, at, i, k).best;
  if (!frames[name]) return NaN;
  const place = placeOf(frames, at, i, k);
  return place >= 0 ? slice(frames[name], at)[place] : name === "weights" ? 0 : NaN;
}

function spreadAround(frames, name, at, i, k) {
  const values = [];
  for (let f = Math.max(0, at - NEAR); f <= Math.min(frames.rounds.length - 1, at + NEAR); f++)
    if (!absent(frames, f).has(i) && !absent(frames, f).has(k)) values.push(pairAt(frames, name, f, i, k));
  return known(values).length > 1 ? deviation(known(values)) : NaN;
}

// The same pair in the other seeds, where these deal the clients to the same clusters.
function overSeeds(frames, name, i, k) {
  const alike = framesOf(chosen.algorithm).filter(
    f => f[name] && JSON.stringify(f.truth) === JSON.stringify(frames.truth),
  );
  const values = known(alike.map(f => pairAt(f, name, Math.min(chosen.frame, f.rounds.length - 1), i, k)));
  return values.length > 1 ? [Math.min(...values), Math.max(...values)] : null;
}

function isUsed(frames, at, i, k) {
  const weight = pairAt(frames, "weights", at, i, k);
  return weight > 0 && weight >= LITTLE * pairAt(frames, "weights", at, i, i);
}

// A verdict in a few words, and in sentences.
function why(frames, at, i, k) {
  const A = clientName(i),
    B = clientName(k);
  if (absent(frames, at).has(i))
    return ["it was absent", `${sentence(A)} was absent in this round: its model stayed as it was.`];
  if (absent(frames, at).has(k))
    return ["absent", `${sentence(B)} was absent in this round, so it could not be asked.`];
  if (placeOf(frames, at, i, k) < 0)
    return [
      "not recorded",
      `${sentence(B)} has no weight, or is not among the ${frames.partners.shape[2] - 1} partners that ${A} listened to most in this round. Of so many clients the page knows no more.`,
    ];
  if (Number.isFinite(pairAt(frames, "bias", at, i, i))) return whyByError(frames, at, i, k);
  if (Number.isFinite(pairAt(frames, "similarity", at, i, k))) return whyBySimilarity(frames, at, i, k);
  const {label} = algorithm(chosen.algorithm),
    weight = pairAt(frames, "weights", at, i, k);
  return weight > 0
    ? ["used", `${label} gives ${B} a weight of ${short(weight)}. It does not estimate how similar clients are.`]
    : [
        "not used",
        `${label} gives ${B} no weight. It does not estimate how similar clients are; its rule alone decides.`,
      ];
}

// What k would be to i as its only partner, in units of i's squared gradient: the weight w of least
// w² bias + (1 − w)² alone + w² noise, and what it saves.
function onlyPartner(frames, at, i, k) {
  const [bias, noise, alone] = [
    pairAt(frames, "bias", at, i, k),
    pairAt(frames, "noise", at, i, k),
    pairAt(frames, "noise", at, i, i),
  ];
  const best = alone / (alone + noise + bias);
  return {alone, bias, noise, best, saved: alone * best, lowered: (alone * noise) / (alone + noise)};
}

// What is left of i's noise by the weights of the round, and what the rule gave others before trust cut it.
function withAll(frames, at, i) {
  if (isCrowd(frames))
    return {left: slice(frames.together.left, at)[i], given: slice(frames.together.given, at)[i]};
  let left = 0,
    given = 0;
  for (let k = 0; k < clientCount(); k++) {
    const weight = pairAt(frames, "weights", at, i, k);
    left += weight ** 2 * pairAt(frames, "noise", at, i, k);
    if (k !== i && weight > 0) given += weight / (pairAt(frames, "trust", at, i, k) || 1);
  }
  return {left, given};
}

const tellWeight = weight => (weight > 0 && weight < 0.001 ? "below 0.001" : short(weight));

function whyByError(frames, at, i, k) {
  const A = clientName(i),
    B = clientName(k),
    own = pairAt(frames, "weights", at, i, i),
    weight = pairAt(frames, "weights", at, i, k),
    trust = pairAt(frames, "trust", at, i, k);
  const {alone, bias, noise, best, saved, lowered} = onlyPartner(frames, at, i, k);
  if (trust === 0)
    return ["not let through", `Nothing of ${B} was let through: its answer was missing, or far too long.`];
  if (Number.isNaN(bias))
    return partnersAt(frames, at, i).every(other => Number.isNaN(pairAt(frames, "bias", at, i, other)))
      ? ["not known yet", `Nothing is known of others yet, so ${A} trains alone.`]
      : [
          "no partner",
          `${sentence(B)} is no partner: the two have not met yet, or its gradient at ${A}'s model is next to nothing.`,
        ];
  if (alone === 0)
    return ["no noise", `No noise can be seen in ${A}'s steps that ${B} could lower. Its weight is ${tellWeight(weight)}.`];
  const found = bias
    ? `Its gradient is off by ${short(bias)} (bias)`
    : "As far as can be seen, both have the same task (no bias)";
  const worth = saved < alone / 1000 ? "next to nothing" : short(saved);
  const pair = `Alone, ${A}'s steps err by ${short(alone)} times its squared gradient, by noise. With ${B} as its only partner, noise could fall to ${short(lowered)}. ${found}, so its best weight is ${tellWeight(best)}, which saves ${worth}. `;
  const {left, given} = withAll(frames, at, i),
    asked = weight / (trust || 1),
    gets = weight >= 0.001 ? `only ${short(weight)}` : weight > 0 ? "hardly any weight" : "no weight";
  if (trust < WHOLE && asked >= LITTLE * own)
    return [
      "partly let through",
      `${pair}Among all partners it would get ${tellWeight(asked)}. Only ${tellShare(trust)} of that is let through, since ${B}'s gradient in this round is too far from ${A}'s: its weight is ${tellWeight(weight)}.`,
    ];
  if (isUsed(frames, at, i, k))
    return [
      bias ? "worth its bias" : "same task",
      `${pair}Among all partners it gets ${tellWeight(weight)}. Together they lower noise to ${short(left)}.`,
    ];
  if (given < LITTLE * own)
    return ["not worth it", `${pair}It gets ${gets}. Nobody is worth more in this round, so ${A} trains alone.`];
  if (best < LITTLE) {
    const fault = bias > noise ? "too different" : "too noisy";
    return [fault, `${pair}It is ${fault}: among all partners it gets ${gets}.`];
  }
  return [
    "others do better",
    `${pair}But others have lowered noise to ${short(left)} already, and what is left is not worth ${B}'s bias: it gets ${gets}.`,
  ];
}

const tellShare = share => (share < 0.01 ? "less than 1 %" : `${Math.round(100 * share)} %`);

function whyBySimilarity(frames, at, i, k) {
  const A = clientName(i),
    B = clientName(k),
    {threshold} = algorithm(chosen.algorithm),
    weight = pairAt(frames, "weights", at, i, k),
    own = pairAt(frames, "weights", at, i, i),
    r = pairAt(frames, "similarity", at, i, k),
    share = own > 0 ? weight / own : 0;
  if (weight > 0)
    return [
      !isUsed(frames, at, i, k) ? "hardly used" : r < 0.3 ? "a little similar" : "used",
      `${sentence(B)} counts with weight ${short(weight)}, ${share >= 0.995 ? `as much as ${A} gives itself` : `${tellShare(share)} of what ${A} gives itself`}. Its gradient at ${A}'s model has similarity ${short(r)} with ${A}'s own.`,
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

// In which rounds client i used client k.
function usedWhen(frames, i, k) {
  if (frames.constant) return "";
  const used = frames.rounds.filter((_, at) => isUsed(frames, at, i, k));
  if (!used.length && isCrowd(frames)) return "";
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
  const how = isUsed(frames, at, i, k) ? "" : pairAt(frames, "weights", at, i, k) > 0 ? "hardly " : "not ";
  $("why-title").textContent = `Why is ${clientName(k)} ${how}used by ${clientName(i)}?`;
  $("why-text").textContent = why(frames, at, i, k)[1] + usedWhen(frames, i, k);
  const lines = [frames.bias ? "best" : "similarity", "weights"]
    .filter(name => name === "best" || frames[name])
    .map((name, j) => ({
      name: {best: "best weight as the only partner", weights: "weight"}[name] || name,
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
