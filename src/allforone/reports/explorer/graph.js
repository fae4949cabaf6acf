// Who listens to whom as arrows between clients on a circle, neighbours by cluster; or between clusters.

const MOST_ARROWS = 400;
//: Nodes that have their names beside them at most.
const MOST_NAMED = 24;

const tellNode = (i, groups) =>
  `${sentence(clientName(i))}: ${count(data.clients[i].size, "sample")}, cluster ${groups[i]}`;

// A node's name outside of the ring, in the direction (dx, dy) from its middle.
function outside(text, radius, dx, dy) {
  const side = Math.abs(dx) > 0.3;
  return draw(
    "text",
    {
      "class": "beside",
      "x": (side ? Math.sign(dx) * (radius + 4) : 0).toFixed(1),
      "y": (side ? dy * (radius + 2) : Math.sign(dy) * (radius + 11)).toFixed(1),
      "style": `text-anchor:${side ? (dx > 0 ? "start" : "end") : "middle"}`,
    },
    text,
  );
}

// radiusOf, label and tell (a node's words) are those of clients, unless others are given; labels may stand beside nodes
function showGraph(box, {order, splits, weights, top, groups, chosenClient, pick, radiusOf, label = String, tell, beside = false}) {
  const n = order.length,
    size = Math.min(480, box.clientWidth || 400),
    middle = size / 2;
  const usual = Math.max(5, Math.min(15, (2.2 * size) / n / 2)),
    radius = radiusOf || (() => usual),
    widest = Math.max(...order.map(radius)),
    named = beside && n <= MOST_NAMED,
    across = middle - widest - (named ? 6 + nameWidth(order) : 6),
    ring = middle - widest - (named ? 22 : 6);
  const gap = splits.length ? 0.8 : 0,
    turns = n + gap * (splits.length + 1),
    where = new Map();
  order.forEach((i, place) => {
    // a gap between clusters, one of them on top
    const angle =
      (2 * Math.PI * (place + (1 + gap) / 2 + gap * splits.filter(s => s <= place).length)) / turns - Math.PI / 2;
    where.set(i, [middle + across * Math.cos(angle), middle + ring * Math.sin(angle)]);
  });
  const arrows = [];
  for (const i of order)
    for (const k of order) {
      const weight = weights[i * n + k];
      if (i !== k && weight > 0.004 * top) arrows.push([i, k, weight]);
    }
  arrows.sort((a, b) => b[2] - a[2]).splice(MOST_ARROWS);
  arrows.sort((a, b) => (a[0] === chosenClient) - (b[0] === chosenClient));
  const svg = draw("svg", {
    "width": size,
    "height": size,
    "viewBox": `0 0 ${size} ${size}`,
    "role": "group",
    "aria-label": `Graph of weights: ${count(arrows.length, "arrow")}. Arrow keys move between nodes, Enter chooses.`,
  });
  for (const [i, k, weight] of arrows) {
    const [x0, y0] = where.get(k),
      [x1, y1] = where.get(i),
      share = Math.sqrt(weight / top),
      toChosen = i === chosenClient;
    const bend = 0.28,
      cx = ((x0 + x1) / 2) * (1 - bend) + middle * bend,
      cy = ((y0 + y1) / 2) * (1 - bend) + middle * bend;
    const back = Math.hypot(x1 - cx, y1 - cy),
      ex = x1 - ((x1 - cx) / back) * (radius(i) + 3),
      ey = y1 - ((y1 - cy) / back) * (radius(i) + 3);
    svg.append(
      draw("path", {
        "class": `edge${toChosen ? " to" : ""}`,
        "d": `M${x0.toFixed(1)} ${y0.toFixed(1)}Q${cx.toFixed(1)} ${cy.toFixed(1)} ${ex.toFixed(1)} ${ey.toFixed(1)}`,
        "stroke-width": (0.5 + 3.2 * share).toFixed(2),
        "opacity": ((toChosen ? 0.55 : 0.07) + 0.4 * share).toFixed(2),
      }),
    );
    if (toChosen) {
      const angle = Math.atan2(y1 - cy, x1 - cx),
        head = 5 + 3 * share;
      const corner = turn =>
        `${(ex - head * Math.cos(angle + turn)).toFixed(1)},${(ey - head * Math.sin(angle + turn)).toFixed(1)}`;
      svg.append(
        draw("polygon", {
          class: "arrow to",
          points: `${(ex + 2 * Math.cos(angle)).toFixed(1)},${(ey + 2 * Math.sin(angle)).toFixed(1)} ${corner(0.5)} ${corner(-0.5)}`,
        }),
      );
    }
  }
  order.forEach((i, place) => {
    const [x, y] = where.get(i);
    const node = draw(
      "g",
      {
        "class": `node${i === chosenClient ? " chosen" : ""}`,
        "transform": `translate(${x.toFixed(1)} ${y.toFixed(1)})`,
        "data-client": i,
        "tabindex": i === chosenClient ? 0 : -1,
        "role": "button",
        "aria-label": tell ? tell(i) : `${clientName(i)}, cluster ${groups[i]}`,
        "aria-pressed": String(i === chosenClient),
        "onclick": () => pick(i),
        "onpointermove": event => tip.show(tell ? tell(i) : tellNode(i, groups), event),
        "onpointerleave": tip.hide,
        "onkeydown": event => {
          const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
          if (step) {
            event.preventDefault();
            svg.querySelector(`[data-client="${order[(place + step + n) % n]}"]`).focus();
          } else if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            pick(i);
          }
        },
      },
      draw("circle", {r: radius(i), style: `fill:var(--c${groups[i] % 8})`}),
    );
    if (named) node.append(outside(label(i), radius(i), (x - middle) / across, (y - middle) / ring));
    else if (radius(i) >= 9 && !beside) node.append(draw("text", {}, label(i)));
    svg.append(node);
  });
  const focused = box.contains(document.activeElement);
  box.replaceChildren(svg);
  if (focused) svg.querySelector(".node.chosen")?.focus();
}
