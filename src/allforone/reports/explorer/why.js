// Why one client does or does not use another: Python's verdict, with the numbers filled in.

const NEAR = 4; // frames before and after, over which a number's spread is told
const LITTLE = 0.05; // of one's own weight: a partner below it is hardly used

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

// What k would be to i as its only partner: the weight of least error, in units of i's squared gradient.
function onlyPartner(frames, at, i, k) {
  const [bias, noise, alone] = [
    pairAt(frames, "bias", at, i, k),
    pairAt(frames, "noise", at, i, k),
    pairAt(frames, "noise", at, i, i),
  ];
  const best = alone / (alone + noise + bias);
  return {alone, bias, noise, best, saved: alone * best, lowered: (alone * noise) / (alone + noise)};
}

// What is left of i's noise by the weights of the round.
function noiseLeft(frames, at, i) {
  if (isCrowd(frames)) return frames.together.left ? slice(frames.together.left, at)[i] : NaN;
  let left = 0;
  for (const k of everyone())
    left += pairAt(frames, "weights", at, i, k) ** 2 * (pairAt(frames, "noise", at, i, k) || 0);
  return left;
}

const tellWeight = weight => (weight > 0 && weight < 0.001 ? "below 0.001" : short(weight));
const tellShare = share => (share < 0.01 ? "less than 1 %" : `${Math.round(100 * share)} %`);

// The verdict that Python found, in a few words and in its sentences, with the numbers filled in.
function why(frames, at, i, k) {
  const place = placeOf(frames, at, i, k),
    code = place < 0 ? NaN : slice(frames.verdicts, at)[place],
    gone = absent(frames, at).has(i) ? 0 : absent(frames, at).has(k) ? 1 : data.reasons.length - 1,
    [verdict, text] = data.reasons[Number.isNaN(code) ? gone : Math.round(code)],
    [A, B] = [clientName(i), clientName(k)],
    [own, weight, trust] = [
      pairAt(frames, "weights", at, i, i),
      pairAt(frames, "weights", at, i, k),
      pairAt(frames, "trust", at, i, k),
    ],
    {alone, bias, best, saved, lowered} = onlyPartner(frames, at, i, k),
    share = own > 0 ? weight / own : 0;
  const words = {
    A,
    B,
    As: sentence(A),
    Bs: sentence(B),
    alone: short(alone),
    lowered: short(lowered),
    best: tellWeight(best),
    left: text.includes("{left}") ? short(noiseLeft(frames, at, i)) : "",
    asked: tellWeight(weight / (trust || 1)),
    weight: tellWeight(weight),
    r: short(pairAt(frames, "similarity", at, i, k)),
    found: bias ? `Its gradient is off by ${short(bias)} (bias)` : "As far as can be seen, both have the same task (no bias)",
    worth: saved < alone / 1000 ? "next to nothing" : short(saved),
    trust: tellShare(trust),
    gets: weight >= 0.001 ? `only ${short(weight)}` : weight > 0 ? "hardly any weight" : "no weight",
    share: `${share >= 0.995 ? "as much as" : `${tellShare(share)} of what`} ${A} gives itself`,
    threshold: algorithm(chosen.algorithm).threshold,
    label: algorithm(chosen.algorithm).label,
    partners: frames.partners ? frames.partners.shape[2] - 1 : 0,
  };
  const filled = pattern => pattern.replace(/\{(\w+)\}/g, (_, word) => words[word]);
  return [filled(verdict), filled(text)];
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
