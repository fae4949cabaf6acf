// Many clients: clusters in the place of pairs, the members of a cluster, and of each client its strongest partners.

const MOST_MEMBERS = 120;
const MOST_ROWS = 40;

const isCrowd = frames => frames?.partners !== undefined;
const everyone = () => data.clients.map((_, i) => i);

// Where the numbers of client i about client k stand in a frame; -1 if they are not there.
function placeOf(frames, at, i, k) {
  if (!isCrowd(frames)) return i * clientCount() + k;
  const slots = frames.partners.shape[2],
    slot = slice(frames.partners, at)
      .subarray(i * slots, (i + 1) * slots)
      .indexOf(k);
  return slot < 0 ? -1 : i * slots + slot;
}

// Of whom client i has numbers in a frame: of all others or, in a crowd, of its strongest partners.
function partnersAt(frames, at, i) {
  if (!isCrowd(frames)) return everyone().filter(k => k !== i);
  const slots = frames.partners.shape[2];
  return known(slice(frames.partners, at).subarray(i * slots, (i + 1) * slots)).filter(k => k !== i);
}

// Itself, and whom client i of a crowd used most over all frames, by falling weight.
function usedMost(frames, i) {
  const sums = new Map([[i, Infinity]]);
  frames.rounds.forEach((_, at) => {
    for (const k of partnersAt(frames, at, i)) sums.set(k, (sums.get(k) || 0) + pairAt(frames, "weights", at, i, k));
  });
  return [...sums].sort((a, b) => b[1] - a[1]).map(([k]) => k);
}

// Whom client i's strip shows, in the order of the heat map: all or, in a crowd, whom it used most.
function partnersEver(frames, i) {
  const {order} = arrangement(frames);
  if (!isCrowd(frames)) return order;
  const most = new Set(usedMost(frames, i).slice(0, MOST_ROWS));
  return order.filter(k => most.has(k));
}

// The blocks of a frame: the true clusters, or those found in its round.
const blocksOf = (frames, at = chosen.frame) => (frames.blocks[chosen.order] || frames.blocks.found)[at];
const labelsOf = blocks => Array.from(unpack(blocks.labels), Math.round);
const heaviest = frames => Math.max(1e-9, ...frames.rounds.flatMap((_, at) => known(unpack(blocksOf(frames, at).weights))));
const blockName = (blocks, b) => (blocks.rest && b === blocks.sizes.length - 1 ? "the smaller clusters" : `cluster ${b}`);
const blockLabel = (blocks, b) => (blocks.rest && b === blocks.sizes.length - 1 ? "…" : String(b));
const blockSize = (blocks, b) => `${grouped(blocks.sizes[b])} ${blocks.sizes[b] === 1 ? "client" : "clients"}`;

function blockText(blocks, weights, r, c) {
  const weight = weights[r * blocks.sizes.length + c],
    who = `A member of ${blockName(blocks, r)} (${blockSize(blocks, r)})`;
  if (Number.isNaN(weight)) return `Nobody of ${blockName(blocks, r)} was there.`;
  const each = weight / blocks.sizes[c];
  return r === c
    ? `${who} gives ${short(weight)} of its weight within it, itself included.`
    : `${who} gives ${short(weight)} to ${blockName(blocks, c)} (${blockSize(blocks, c)}), ${short(each)} to each.`;
}

function showBlocks(frames, at) {
  const blocks = blocksOf(frames, at),
    size = blocks.sizes.length,
    weights = unpack(blocks.weights),
    top = heaviest(frames),
    here = labelsOf(blocks)[chosen.client];
  const labels = {rowLabel: r => blockLabel(blocks, r), columnLabel: c => blockLabel(blocks, c)};
  const open = r => showMembers(frames, r);
  heatMap($("matrix"), {
    rows: size,
    columns: size,
    size: 520,
    ...labels,
    label: `Weights between clusters in round ${frames.rounds[at]}.`,
    rowChosen: here,
    share: (r, c) => Math.sqrt(weights[r * size + c] / top),
    tell: (r, c) => blockText(blocks, weights, r, c),
    pick: open,
  });
  const between = Array.from(weights).filter((_, j) => Math.floor(j / size) !== j % size);
  showGraph($("graph"), {
    order: Array.from({length: size}, (_, b) => b),
    splits: [],
    weights,
    top: Math.max(1e-9, ...known(between)),
    groups: Array.from({length: size}, (_, b) => b),
    chosenClient: here,
    pick: open,
    radiusOf: b => Math.max(7, 34 * Math.sqrt(blocks.sizes[b] / Math.max(...blocks.sizes)) * Math.min(1, 9 / size)),
    label: b => blockLabel(blocks, b),
    tell: b => sentence(`${blockName(blocks, b)}: ${blockSize(blocks, b)}`),
  });
  if (frames.truth) showFoundAndTrue(frames, at);
  showMembers(frames, blocks.sizes[chosen.cluster] ? chosen.cluster : here);
}

// Of each found cluster, how much of it is in each true one.
function showFoundAndTrue(frames, at) {
  const found = frames.blocks.found[at],
    truth = frames.blocks.truth[at],
    labels = labelsOf(found),
    trueLabels = labelsOf(truth),
    shared = found.sizes.map(() => new Array(truth.sizes.length).fill(0));
  labels.forEach((b, i) => shared[b][trueLabels[i]]++);
  heatMap($("truth"), {
    rows: found.sizes.length,
    columns: truth.sizes.length,
    size: 520,
    rowHeight: Math.max(8, Math.min(20, 240 / found.sizes.length)),
    labelWidth: 30,
    rowLabel: r => blockLabel(found, r),
    columnLabel: c => blockLabel(truth, c),
    label: "Found clusters in rows, true clusters in columns.",
    rowChosen: labels[chosen.client],
    share: (r, c) => shared[r][c] / found.sizes[r],
    tell: (r, c) => sentence(`${blockName(found, r)}: ${shared[r][c]} of ${blockSize(found, r)} are of true ${blockName(truth, c)}`),
  });
}

function showMembers(frames, block) {
  const blocks = blocksOf(frames),
    labels = labelsOf(blocks),
    members = everyone().filter(i => labels[i] === block);
  chosen.cluster = block;
  $("members-title").textContent = sentence(`${blockName(blocks, block)}: ${blockSize(blocks, block)}`);
  $("members").replaceChildren(
    ...members
      .slice(0, MOST_MEMBERS)
      .map(i =>
        make(
          "button",
          {"type": "button", "data-member": i, "aria-pressed": String(i === chosen.client), "onclick": () => choose(i, null)},
          data.clients[i].name,
        ),
      ),
    members.length > MOST_MEMBERS ? ` and ${grouped(members.length - MOST_MEMBERS)} more; find them by name below.` : "",
  );
}

// A client by its number or name, as typed; else by how a name begins.
function findClient(text) {
  const wanted = text.trim().toLowerCase().replace(/^client /, "");
  if (!wanted) return -1;
  const names = data.clients.map(c => c.name.toLowerCase()),
    exact = names.indexOf(wanted);
  if (exact >= 0) return exact;
  if (/^\d+$/.test(wanted)) return +wanted < names.length ? +wanted : -1;
  return names.findIndex(name => name.startsWith(wanted));
}

function search(event) {
  const found = findClient(event.target.value);
  event.target.setAttribute("aria-invalid", String(found < 0));
  if (found >= 0) choose(found, null);
}
