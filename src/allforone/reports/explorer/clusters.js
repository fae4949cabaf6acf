// Clusters in the weights, and how well they agree with the truth.

// How much i and k use each other, next to how much each uses itself; what is next to nothing counts as nothing.
function closeness(weights, n) {
  const close = new Float64Array(n * n),
    least = 0.05;
  const one = (i, k) => {
    const share = weights[i * n + i] > 0 ? Math.min(1, weights[i * n + k] / weights[i * n + i]) : 0;
    return share >= least ? share : 0;
  };
  for (let i = 0; i < n; i++)
    for (let k = 0; k < i; k++) close[i * n + k] = close[k * n + i] = (one(i, k) + one(k, i)) / 2;
  return close;
}

// Join the two closest groups (mean closeness) again and again; of all partitions on the way, the one of best modularity.
function findClusters(weights, n) {
  const close = closeness(weights, n),
    total = close.reduce((a, b) => a + b, 0);
  let groups = Array.from({length: n}, (_, i) => [i]),
    best = groups,
    bestQuality = -Infinity;
  if (total === 0) return labels(groups, n);
  const between = Array.from({length: n}, (_, i) => Array.from(close.subarray(i * n, (i + 1) * n)));
  const degree = between.map(row => row.reduce((a, b) => a + b, 0)),
    inside = new Array(n).fill(0);
  for (;;) {
    const quality = groups.reduce((sum, _, g) => sum + inside[g] / total - (degree[g] / total) ** 2, 0);
    if (quality > bestQuality + 1e-9) {
      bestQuality = quality;
      best = groups.map(group => [...group]);
    }
    let closest = 0,
      a = -1,
      b = -1;
    for (let g = 0; g < groups.length; g++)
      for (let h = 0; h < g; h++) {
        const value = between[g][h] / (groups[g].length * groups[h].length);
        if (value > closest) {
          closest = value;
          a = h;
          b = g;
        }
      }
    if (a < 0) return labels(best, n);
    inside[a] += inside[b] + 2 * between[a][b];
    degree[a] += degree[b];
    groups[a] = groups[a].concat(groups[b]);
    for (let g = 0; g < groups.length; g++) between[a][g] = between[g][a] = between[a][g] + between[b][g];
    between[a][a] = 0;
    for (const list of [groups, inside, degree, between]) list.splice(b, 1);
    for (const row of between) row.splice(b, 1);
  }
}

// [n], numbered by their first member.
function labels(groups, n) {
  const found = new Array(n);
  [...groups]
    .sort((a, b) => Math.min(...a) - Math.min(...b))
    .forEach((group, number) =>
      group.forEach(i => {
        found[i] = number;
      }),
    );
  return found;
}

function adjustedRand(one, other) {
  const pairs = counts => [...counts.values()].reduce((sum, c) => sum + (c * (c - 1)) / 2, 0);
  const tally = keys => keys.reduce((map, key) => map.set(key, (map.get(key) || 0) + 1), new Map());
  const both = pairs(tally(one.map((a, j) => `${a} ${other[j]}`))),
    first = pairs(tally(one)),
    second = pairs(tally(other));
  const chance = (first * second) / ((one.length * (one.length - 1)) / 2),
    most = (first + second) / 2;
  return most === chance ? 1 : (both - chance) / (most - chance);
}
