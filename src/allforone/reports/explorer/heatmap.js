// Cells coloured by a number, on a canvas; pointer and arrow keys tell and choose cells.

// options: rows, columns, share(r, c) in [0, 1] or NaN, rowLabel(r), columnLabel(c), splits (rows before which a gap is
// drawn; columns alike unless `onlyRows`), label, tell(r, c), pick(r, c), rowChosen, columnChosen, size, rowHeight, now
function heatMap(box, options) {
  const {rows, columns, splits = [], onlyRows = false, labelled = true} = options;
  const width = Math.min(options.size || 1e9, box.clientWidth || 400),
    gap = splits.length && rows <= 60 ? 5 : splits.length ? 2 : 0;
  const left = labelled ? Math.max(30, options.labelWidth || 0) : 0,
    turned = labelled && !onlyRows && left > 44, // names stand upright over their columns
    top = labelled && !onlyRows ? (turned ? left - 2 : 20) : 0,
    bottom = onlyRows ? 22 : 0;
  const side = (width - left - (onlyRows ? 0 : gap * splits.length)) / columns;
  const tall = options.rowHeight || side;
  const height = top + tall * rows + gap * splits.length + bottom;
  const shift = place => gap * splits.filter(s => s <= place).length;
  const X = c => left + c * side + (onlyRows ? 0 : shift(c)),
    Y = r => top + r * tall + shift(r);
  const scale = Math.min(3, devicePixelRatio || 1);
  let canvas = box.querySelector("canvas");
  if (!canvas) {
    canvas = make("canvas", {tabindex: 0, role: "img"});
    box.replaceChildren(canvas);
    listen(canvas);
  }
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.setAttribute("aria-label", `${options.label} Arrow keys move over the cells, Enter chooses.`);
  const pen = canvas.getContext("2d"),
    style = getComputedStyle(document.documentElement);
  const ink = name => style.getPropertyValue(name).trim();
  pen.scale(scale, scale);
  const edge = side > 7 && tall > 7 ? 1 : 0;
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) {
      const share = options.share(r, c),
        x = X(c),
        y = Y(r);
      pen.fillStyle = Number.isNaN(share) ? ink("--line") : ramp(share);
      pen.fillRect(x, y, side - edge + (edge ? 0 : 0.6), tall - edge + (edge ? 0 : 0.6));
      if (Number.isNaN(share) && side > 7) {
        pen.strokeStyle = ink("--soft");
        pen.lineWidth = 0.7;
        pen.beginPath();
        pen.moveTo(x + 2, y + tall - 3);
        pen.lineTo(x + side - 3, y + 2);
        pen.stroke();
      }
    }
  if (labelled) {
    const every = Math.max(1, Math.ceil(13 / tall)),
      across = Math.max(1, Math.ceil((onlyRows ? 46 : turned ? 12 : 17) / side));
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (let r = 0; r < rows; r += every) {
      const is = r === options.rowChosen;
      pen.fillStyle = ink(is ? "--mark" : "--soft");
      pen.font = `${is ? "700 " : ""}11px system-ui, sans-serif`;
      pen.textAlign = "right";
      pen.fillText(options.rowLabel(r), left - 7, Y(r) + tall / 2);
    }
    for (let c = 0; c < columns; c += across) {
      pen.font = "11px system-ui, sans-serif";
      pen.textAlign = turned ? "left" : "center";
      pen.fillStyle = ink("--soft");
      pen.save();
      pen.translate(X(c) + side / 2, onlyRows ? height - 9 : top - (turned ? 6 : 10));
      if (turned) pen.rotate(-Math.PI / 2);
      pen.fillText(options.columnLabel(c), 0, 0);
      pen.restore();
    }
  }
  const frame = (x, y, w, h, name, thick) => {
    pen.strokeStyle = ink(name);
    pen.lineWidth = thick;
    pen.strokeRect(x, y, w, h);
  };
  if (options.rowChosen >= 0) frame(left + 0.5, Y(options.rowChosen) - 0.5, width - left - 1.5, tall, "--mark", 1.6);
  if (options.now >= 0)
    frame(X(options.now), top, Math.max(1.5, side - edge), height - top - bottom - 1, "--mark", 1.3);
  if (canvas.cursor && document.activeElement === canvas)
    frame(X(canvas.cursor[1]) + 0.5, Y(canvas.cursor[0]) + 0.5, side - 2, tall - 2, "--ink", 2);
  canvas.cell = event => {
    const spot = canvas.getBoundingClientRect(),
      zoom = width / spot.width;
    const x = (event.clientX - spot.left) * zoom,
      y = (event.clientY - spot.top) * zoom;
    const c = Array.from({length: columns}, (_, j) => j).find(j => x >= X(j) && x < X(j) + side);
    const r = Array.from({length: rows}, (_, j) => j).find(j => y >= Y(j) && y < Y(j) + tall);
    return r === undefined || c === undefined ? null : [r, c];
  };
  canvas.options = options;
  canvas.again = () => heatMap(box, canvas.options);
}

function listen(canvas) {
  canvas.addEventListener("pointermove", event => {
    const cell = canvas.cell(event);
    if (cell && canvas.options.tell) tip.show(canvas.options.tell(...cell), event);
    else tip.hide();
    canvas.style.cursor = cell && canvas.options.pick ? "pointer" : "";
  });
  canvas.addEventListener("pointerleave", tip.hide);
  canvas.addEventListener("click", event => {
    const cell = canvas.cell(event);
    if (cell && canvas.options.pick) {
      canvas.cursor = cell;
      canvas.options.pick(...cell);
    }
  });
  canvas.addEventListener("keydown", event => {
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    const {rows, columns, tell, pick} = canvas.options,
      cursor = canvas.cursor || [0, 0];
    if (step) {
      event.preventDefault();
      canvas.cursor = canvas.cursor
        ? [
            Math.min(rows - 1, Math.max(0, cursor[0] + step[0])),
            Math.min(columns - 1, Math.max(0, cursor[1] + step[1])),
          ]
        : [0, 0];
      canvas.again();
      if (tell) $("readout").textContent = tell(...canvas.cursor);
    } else if ((event.key === "Enter" || event.key === " ") && pick) {
      event.preventDefault();
      pick(...cursor);
    }
  });
  canvas.addEventListener("focus", () => {
    if (canvas.matches(":focus-visible")) {
      canvas.cursor ||= [0, 0];
      canvas.again();
    }
  });
  canvas.addEventListener("blur", () => canvas.again());
}
