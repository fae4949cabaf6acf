// How well found clusters agree with the truth.

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
