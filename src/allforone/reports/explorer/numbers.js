"use strict";
// Reading the packed numbers, writing them for people, and making elements.

const $ = id => document.getElementById(id);

function give(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
const make = (tag, attributes = {}, ...children) => give(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  give(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const unpacked = new WeakMap();

function unpack(packed) {
  if (!unpacked.has(packed)) {
    const text = atob(packed.numbers),
      bytes = new Uint8Array(text.length);
    for (let j = 0; j < text.length; j++) bytes[j] = text.charCodeAt(j);
    if (packed.top === undefined) unpacked.set(packed, new Float32Array(bytes.buffer));
    else {
      const shares = new Uint16Array(bytes.buffer),
        values = new Float32Array(shares.length);
      for (let j = 0; j < shares.length; j++) values[j] = shares[j] === 65535 ? NaN : (shares[j] / 65534) * packed.top;
      unpacked.set(packed, values);
    }
  }
  return unpacked.get(packed);
}

// What stands at place `at` of the first dimension, flat.
function slice(packed, at) {
  const size = packed.shape.slice(1).reduce((a, b) => a * b, 1);
  return unpack(packed).subarray(at * size, (at + 1) * size);
}

// A value of a quantity: with the digits that it asks for, or with those that count where it spans orders of magnitude.
const fixed = (value, q) => (q.percent ? 100 * value : value).toFixed(q.digits);
const tellValue = (value, q) =>
  !Number.isFinite(value) ? "–" : q.percent ? `${fixed(value, q)} %` : q.logs ? short(value) : fixed(value, q);

const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
const deviation = values => {
  const centre = mean(values);
  return Math.sqrt(mean(values.map(v => (v - centre) ** 2)));
};
const known = values => Array.from(values).filter(Number.isFinite);
const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e5 || size < 1e-3) {
    const [digits, power] = value.toExponential(1).split("e");
    return `${digits.replace(".0", "")}·10${raised(+power)}`;
  }
  return size >= 100 ? grouped(value) : String(+value.toPrecision(3));
}
const raised = power => [...String(power)].map(c => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[+c])).join("");
const grouped = value => Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");

function bytes(value, digits = 2) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : digits > 2 ? +value.toPrecision(digits) : value.toPrecision(2)} ${units[unit]}`;
}

const dark = matchMedia("(prefers-color-scheme: dark)"),
  printing = matchMedia("print");
const RAMPS = {
  light: ["#f3f6f8", "#cde5df", "#69b7c2", "#2474a9", "#15235a"],
  dark: ["#1b222b", "#1f4468", "#2c82a3", "#7fcfbc", "#f6fac9"],
};

function ramp(share) {
  const stops = RAMPS[dark.matches && !printing.matches ? "dark" : "light"];
  const place = Math.min(1, Math.max(0, share)) * (stops.length - 1),
    low = Math.min(stops.length - 2, Math.floor(place));
  const channel = (hex, j) => parseInt(hex.slice(1 + 2 * j, 3 + 2 * j), 16);
  const mixed = [0, 1, 2].map(
    j => channel(stops[low], j) + (place - low) * (channel(stops[low + 1], j) - channel(stops[low], j)),
  );
  return `rgb(${mixed.map(Math.round).join(" ")})`;
}

const tip = {
  show(content, event) {
    const box = $("tip");
    box.replaceChildren(...[content].flat());
    box.hidden = false;
    const {width, height} = box.getBoundingClientRect(),
      wide = document.documentElement.clientWidth;
    box.style.left = `${Math.max(4, Math.min(event.pageX + 14, wide - width - 6))}px`;
    box.style.top = `${event.pageY - height - 12 < scrollY ? event.pageY + 18 : event.pageY - height - 12}px`;
  },
  hide() {
    $("tip").hidden = true;
  },
};
