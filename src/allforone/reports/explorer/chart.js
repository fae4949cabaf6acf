// Lines with shades on two axes, in SVG; the arrow keys and the pointer read values off.

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "5 2 1 2", "9 3 2 3 2 3"];

const swatch = (colour, dash) =>
  draw(
    "svg",
    {"class": "swatch", "width": 24, "height": 10, "aria-hidden": true},
    draw("line", {
      "x1": 1,
      "x2": 23,
      "y1": 5,
      "y2": 5,
      "style": `stroke:${colour}`,
      "stroke-width": 3,
      "stroke-dasharray": dash || null,
    }),
  );

function ticks(low, high, most) {
  const rough = (high - low) / most,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= rough * 0.999);
  const found = [];
  for (let j = Math.ceil(low / step - 1e-9); j * step <= high + step * 1e-9; j++)
    found.push(+(j * step).toPrecision(12));
  return found;
}

function logTicks(low, high, most) {
  // of values that are powers of ten
  const step = Math.max(1, Math.ceil((high - low) / most));
  if (high - low >= 1.2)
    return ticks(Math.ceil(low), Math.floor(high), (Math.floor(high) - Math.ceil(low)) / step || 1).filter(
      Number.isInteger,
    );
  return ticks(10 ** low, 10 ** high, 4)
    .filter(v => v > 0)
    .map(Math.log10);
}

// series: [{name, colour, dash, x, y, spread, thin}] of the quantity q; with log, y and spread are powers of ten, with
// xLog x is
function lineChart(
  box,
  {
    series,
    xTitle,
    yTitle,
    q = null,
    log = false,
    xLog = false,
    tellX = null,
    height = 380,
    range = null,
    now = null,
    onpick = null,
    empty = "Nothing is known of this.",
  },
) {
  const width = Math.max(260, box.clientWidth || 600),
    left = 58,
    right = 14,
    top = 22,
    bottom = 42;
  const shown = series.filter(line => line.y.some((v, j) => Number.isFinite(v) && Number.isFinite(line.x[j]))),
    percent = q?.percent && !log;
  box.replaceChildren();
  if (!shown.length) {
    box.append(make("p", {class: "note"}, empty));
    return;
  }
  const xs = known(shown.flatMap(line => line.x)),
    x0 = Math.min(...xs),
    x1 = Math.max(...xs, x0 + 1e-9);
  const edges = shown
    .flatMap(line => line.y.flatMap((v, j) => [v - (line.spread?.[j] || 0), v + (line.spread?.[j] || 0)]))
    .filter(Number.isFinite);
  let [low, high] = range || [Math.min(...edges), Math.max(...edges)];
  if (percent && !range) {
    // of shares, what is beyond all or nothing is shown only where a mean is there
    const means = shown.flatMap(line => known(line.y));
    [low, high] = [Math.max(low, Math.min(0, ...means)), Math.min(high, Math.max(1, ...means))];
  }
  if (high - low < 1e-9) {
    low -= 0.5;
    high += 0.5;
  }
  if (!range) {
    const air = 0.04 * (high - low);
    high += percent && high === 1 ? 0 : air;
    low -= low === 0 ? 0 : air;
  }
  const X = v => left + ((v - x0) / (x1 - x0)) * (width - left - right);
  const Y = v => top + ((high - v) / (high - low)) * (height - top - bottom);
  const tell = v => (log ? short(10 ** v) : q ? tellValue(v, q) : short(v));
  const svg = draw("svg", {
    width,
    height,
    "viewBox": `0 0 ${width} ${height}`,
    "tabindex": 0,
    "role": "img",
    "aria-label": `${yTitle} by ${xTitle}: ${shown.map(l => `${l.name} ends at ${tell(l.y.at(-1))}`).join(", ")}. Arrow keys read values.`,
  });
  const clip = `clip-${box.id}`;
  svg.append(
    draw(
      "clipPath",
      {id: clip},
      draw("rect", {x: left, y: top - 2, width: width - left - right + 3, height: height - top - bottom + 4}),
    ),
  );
  const marks = log ? logTicks(low, high, height / 60) : ticks(low, high, height / 62);
  for (const v of marks) {
    svg.append(
      draw("line", {class: "grid", x1: left, x2: width - right, y1: Y(v), y2: Y(v)}),
      draw(
        "text",
        {"x": left - 8, "y": Y(v) + 4, "text-anchor": "end"},
        log
          ? Number.isInteger(v) && (v < -2 || v > 3)
            ? `10${raised(v)}`
            : short(10 ** v)
          : percent
            ? `${+(100 * v).toFixed(1)} %`
            : short(v),
      ),
    );
  }
  const asX = (v, tell) => (tellX || tell)(xLog ? 10 ** v : v);
  for (const v of (xLog ? logTicks : ticks)(x0, x1, Math.min(10, width / 80)))
    svg.append(
      draw(
        "text",
        {"x": X(v), "y": height - bottom + 18, "text-anchor": "middle"},
        asX(v, value => (Math.abs(value) >= 1000 ? grouped(value) : String(+value.toPrecision(12)))),
      ),
    );
  svg.append(
    draw("text", {"class": "title", "x": (left + width - right) / 2, "y": height - 6, "text-anchor": "middle"}, xTitle),
    draw("text", {class: "title strong", x: 2, y: 12}, yTitle),
  );
  const lines = draw("g", {"clip-path": `url(#${clip})`});
  for (const line of shown)
    if (line.spread) {
      const at = line.x.map((x, j) => [x, line.y[j], line.spread[j]]).filter(p => p.every(Number.isFinite));
      const up = at.map(([x, y, s]) => `${X(x).toFixed(1)},${Y(y + s).toFixed(1)}`),
        down = at.map(([x, y, s]) => `${X(x).toFixed(1)},${Y(y - s).toFixed(1)}`);
      lines.append(
        draw("polygon", {class: "band", style: `fill:${line.colour}`, points: up.concat(down.reverse()).join(" ")}),
      );
    }
  for (const line of shown) {
    const points = line.x
      .map((x, j) => [x, line.y[j]])
      .filter(p => p.every(Number.isFinite))
      .map(([x, y]) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`);
    lines.append(
      points.length > 1
        ? draw("polyline", {
            "class": "curve",
            "data-name": line.name,
            "style": `stroke:${line.colour}${line.thin ? ";stroke-width:1.3" : ""}`,
            "stroke-dasharray": line.dash || null,
            "points": points.join(" "),
          })
        : draw("circle", {
            cx: points[0]?.split(",")[0],
            cy: points[0]?.split(",")[1],
            r: 4,
            style: `fill:${line.colour}`,
          }),
    );
  }
  svg.append(lines);
  const pointer = draw("line", {class: "now", y1: top, y2: height - bottom});
  const mark = v => {
    pointer.setAttribute("x1", X(v));
    pointer.setAttribute("x2", X(v));
    pointer.style.display = v >= x0 && v <= x1 ? "" : "none";
  };
  if (now !== null) {
    mark(now);
    svg.append(pointer);
  }

  const cross = draw("line", {class: "cross", y1: top, y2: height - bottom, style: "display:none"});
  svg.append(cross);
  const stops = [...new Set(xs)].sort((a, b) => a - b);
  let at = stops.length - 1;
  function read(place, event) {
    at = Math.min(stops.length - 1, Math.max(0, place));
    cross.style.display = "";
    cross.setAttribute("x1", X(stops[at]));
    cross.setAttribute("x2", X(stops[at]));
    const rows = shown
      .map(line => {
        let j = line.x.findIndex(x => x >= stops[at] - 1e-9);
        if (j < 0) j = line.x.length - 1;
        return [line, line.y[j], line.spread?.[j]];
      })
      .filter(row => Number.isFinite(row[1]))
      .sort((a, b) => b[1] - a[1]);
    const table = make(
      "table",
      {},
      ...rows.map(([line, v, s]) =>
        make(
          "tr",
          {},
          make("td", {}, swatch(line.colour, line.dash), line.name),
          make("td", {}, tell(v) + (s && !log ? ` ± ${tell(s).replace(" %", "")}` : "")),
        ),
      ),
    );
    const corner = svg.getBoundingClientRect();
    tip.show(
      [make("b", {}, `${xTitle} ${asX(stops[at], short)}`), table],
      event || {pageX: scrollX + corner.left + X(stops[at]), pageY: scrollY + corner.top + top + 90},
    );
  }
  const nearest = event => {
    const v = x0 + ((event.clientX - svg.getBoundingClientRect().left - left) / (width - left - right)) * (x1 - x0);
    return stops.reduce((best, x, j) => (Math.abs(x - v) < Math.abs(stops[best] - v) ? j : best), 0);
  };
  const leave = () => {
    cross.style.display = "none";
    tip.hide();
  };
  svg.addEventListener("pointermove", event => read(nearest(event), event));
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  if (onpick) svg.addEventListener("click", event => onpick(stops[nearest(event)]));
  svg.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9}[event.key];
    if (step) {
      event.preventDefault();
      read(at + step);
    } else if (event.key === "Escape") leave();
    else if (event.key === "Enter" && onpick) onpick(stops[at]);
  });
  box.append(svg);
  return {mark};
}

const keys = (box, lines) =>
  box.replaceChildren(...lines.map(line => make("span", {class: "key"}, swatch(line.colour, line.dash), line.name)));
