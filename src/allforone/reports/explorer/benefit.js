// What collaboration brings each client, and who gives and who receives.

// Per client over training alone, most first, as Python found them; null where nobody trained alone.
function gains(name, q) {
  const found = data.gains[name][q.name] || [];
  return found.length ? found : null;
}

// What a guard found for each client on data that no model was trained on, and how that is read.
const GUARDED = {name: "loss", title: "loss on new data", percent: true, digits: 0, unit: "% of its local model's loss"};
const guardGains = () => (current()?.guarded.length ? current().guarded : null);

const gainUnit = q => (q.unit ? q.unit : q.percent ? "percentage points" : q.powers ? "powers of ten" : q.name);
const gainNumber = (value, q) => (q.percent ? 100 * value : value);
const signed = value => `${value < 0 ? "−" : "+"}${short(Math.abs(value))}`;
const gainText = (value, q) =>
  q.logs ? signed(+value.toPrecision(2)) : `${value < 0 ? "−" : "+"}${fixed(Math.abs(value), q)}`;
const tellGain = (value, q) => `${gainText(value, q)} ${gainUnit(q)}`;

// Of a crowd, those at both ends of a list.
const ENDS = 20;
const ends = list => (data.crowd && list.length > 2 * ENDS ? [...list.slice(0, ENDS), ...list.slice(-ENDS)] : list);

function showBenefit() {
  const name = chosen.algorithm || data.algorithms[0].name,
    compared = gains(name, quantity()),
    gained = compared || guardGains(),
    q = compared ? quantity() : GUARDED,
    alone = inRole("alone"),
    {label} = algorithm(name);
  $("gain-figure").hidden = !gained;
  $("gain-figure").parentElement.classList.toggle("single", !gained);
  const manySeeds = compared && Math.max(...gained.map(g => g.seeds.length)) > 1;
  if (gained) {
    const better = gained.filter(g => g.mean >= 0).length,
      always = gained.filter(g => (compared ? g.low >= 0 : g.low > 0)).length,
      least = gained.at(-1),
      most = gained[0];
    $("benefit-lead").textContent =
      (compared
        ? `With ${label}, ${better} of ${gained.length} clients end no worse than alone${manySeeds ? `, ${always} of them in every seed` : ""}. `
        : `By new data, ${label} lowered the loss of ${better} of ${gained.length} clients, ${always} of them surely. `) +
      `Least: ${clientName(least.client)}, ${tellGain(least.mean, q)}; most: ${clientName(most.client)}, ${tellGain(most.mean, q)}.`;
    $("gain-title").textContent =
      `Gain in ${q.title} over ${compared ? brief(alone) : "its local model"}, by client${data.crowd ? `: the ${ENDS} who gain most and the ${ENDS} who gain least` : ""}`;
    showGains(ends(gained), q, compared ? brief(alone) : "alone");
  } else
    $("benefit-lead").textContent =
      name === alone
        ? `Choose another algorithm above to see what it brings over ${brief(alone)}.`
        : `To see what collaboration brings, compare with training alone: ${data.compare}`;
  showExchange(name);
  $("benefit-note").textContent =
    (manySeeds ? "Bar: lowest to highest seed; small marks: each seed; dot: their mean. " : "") +
    (gained && !compared ? "Bar: 95 % interval of the guard, on data that no model was trained on. " : "") +
    "Receives: the weight a client gives to others' gradients, mean over rounds; gives: the weight that others give to its.";
}

function rowsChart(box, clients, left, right, paint) {
  const tall = Math.max(13, Math.min(26, 420 / clients.length)),
    width = Math.max(260, box.clientWidth || 500),
    height = 26 + tall * clients.length + 40;
  const svg = draw("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img"});
  clients.forEach((i, place) => {
    const y = 26 + tall * (place + 0.5);
    if (i === chosen.client)
      svg.append(draw("rect", {x: 0, y: y - tall / 2, width, height: tall, style: "fill:var(--wash)"}));
    svg.append(
      draw(
        "text",
        {
          "x": left - 10,
          "y": y + 4,
          "text-anchor": "end",
          "class": i === chosen.client ? "strong" : null,
          "style": "cursor:pointer",
          "onclick": () => choose(i, null),
        },
        shortName(i),
        draw("title", {}, clientName(i)),
      ),
    );
  });
  paint(svg, place => 26 + tall * (place + 0.5), left, width - right, height - 40);
  box.replaceChildren(svg);
  return svg;
}

const labelRoom = () => Math.max(34, 16 + nameWidth(everyone()));

function showGains(gained, q, other) {
  const value = v => gainNumber(v, q),
    low = Math.min(0, ...gained.map(g => value(g.low))),
    high = Math.max(0, ...gained.map(g => value(g.high)));
  const svg = rowsChart(
    $("gain"),
    gained.map(g => g.client),
    labelRoom(),
    62,
    (svg, Y, x0, x1, bottom) => {
      const X = v => x0 + ((v - low) / (high - low || 1)) * (x1 - x0);
      for (const v of ticks(low, high || 1, 5))
        svg.append(
          draw("line", {class: v === 0 ? "zero" : "grid", x1: X(v), x2: X(v), y1: 22, y2: bottom}),
          draw("text", {"x": X(v), "y": bottom + 16, "text-anchor": "middle"}, v ? signed(v) : "0"),
        );
      svg.append(
        draw(
          "text",
          {"x": (x0 + x1) / 2, "y": bottom + 35, "text-anchor": "middle"},
          q.unit ? `loss lower than ${other}, in ${gainUnit(q)}` : `${gainUnit(q)} better than ${other}`,
        ),
      );
      gained.forEach((g, place) => {
        const y = Y(place),
          fill = `fill:var(--${g.mean >= 0 ? "c0" : "c1"})`,
          stroke = `stroke:var(--${g.mean >= 0 ? "c0" : "c1"})`;
        svg.append(
          draw("line", {
            "x1": X(value(g.low)),
            "x2": X(value(g.high)),
            "y1": y,
            "y2": y,
            "style": stroke,
            "stroke-width": 3,
            "opacity": 0.4,
            "stroke-linecap": "round",
          }),
        );
        for (const s of g.seeds)
          svg.append(
            draw("line", {
              "x1": X(value(s.gain)),
              "x2": X(value(s.gain)),
              "y1": y - 4,
              "y2": y + 4,
              "style": stroke,
              "stroke-width": 1.5,
              "opacity": 0.75,
            }),
          );
        svg.append(
          g.mean >= 0
            ? draw("circle", {cx: X(value(g.mean)), cy: y, r: 4.5, style: fill})
            : draw("rect", {x: X(value(g.mean)) - 4.5, y: y - 4.5, width: 9, height: 9, style: fill}),
          draw(
            "text",
            {"class": g === gained.at(-1) ? "strong" : null, "x": x1 + 58, "y": y + 4, "text-anchor": "end"},
            gainText(g.mean, q),
          ),
        );
      });
    },
  );
  svg.setAttribute("aria-label", gained.map(g => `${clientName(g.client)} ${tellGain(g.mean, q)}`).join(", "));
}

function showExchange(name) {
  const {received, given} = data.exchange[name];
  if (!received.length) {
    $("exchange").replaceChildren(make("p", {class: "note"}, "No weights are recorded yet."));
    return;
  }
  const byBalance = received.map((_, i) => i).sort((a, b) => given[b] - received[b] - (given[a] - received[a]) || a - b),
    clients = ends(byBalance);
  if (data.crowd)
    $("exchange-title").textContent = `Who gives and who receives: the ${ENDS} who give most and the ${ENDS} who receive most`;
  const most = Math.max(1e-9, ...received, ...given);
  const svg = rowsChart($("exchange"), clients, labelRoom(), 8, (svg, Y, x0, x1, bottom) => {
    const centre = (x0 + x1) / 2,
      X = v => (v / most) * ((x1 - x0) / 2 - 44);
    svg.append(
      draw("text", {"class": "strong", "x": centre - 8, "y": 14, "text-anchor": "end"}, "◂ gives"),
      draw("text", {class: "strong", x: centre + 8, y: 14}, "receives ▸"),
      draw("line", {class: "zero", x1: centre, x2: centre, y1: 22, y2: bottom}),
    );
    clients.forEach((i, place) => {
      const y = Y(place),
        high = Math.max(6, Math.min(13, (bottom - 26) / clients.length - 5));
      svg.append(
        draw("rect", {
          x: centre - 1 - X(given[i]),
          y: y - high / 2,
          width: X(given[i]),
          height: high,
          rx: 1.5,
          style: "fill:var(--c1)",
        }),
        draw("rect", {
          x: centre + 1,
          y: y - high / 2,
          width: X(received[i]),
          height: high,
          rx: 1.5,
          style: "fill:var(--c0)",
        }),
        draw("text", {"x": centre - 7 - X(given[i]), "y": y + 4, "text-anchor": "end"}, given[i].toFixed(2)),
        draw("text", {x: centre + 7 + X(received[i]), y: y + 4}, received[i].toFixed(2)),
      );
    });
  });
  svg.setAttribute(
    "aria-label",
    clients.map(i => `${clientName(i)} gives ${given[i].toFixed(2)}, receives ${received[i].toFixed(2)}`).join("; "),
  );
}
