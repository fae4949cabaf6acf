// The headline, the curves and the costs.

let data;
const chosen = {
  quantity: null,
  axis: "round",
  scale: null,
  hidden: new Set(),
  algorithm: null,
  seed: null,
  frame: 0,
  client: 0,
  partner: null,
  cluster: null,
  order: "found",
};

const algorithm = name => data.algorithms.find(a => a.name === name);
const colour = name => `var(--a${data.algorithms.findIndex(a => a.name === name)})`;
const dash = name => DASHES[data.algorithms.findIndex(a => a.name === name) % DASHES.length];
const inRole = role => data.algorithms.find(a => a.role === role)?.name;
const brief = name => algorithm(name).label.split(" (")[0];
const quantity = () => data.quantities.find(q => q.name === chosen.quantity);
const isLog = () => chosen.scale === "log" && quantity().logs;
const clientName = i => (/^\d+$/.test(data.clients[i].name) ? `client ${data.clients[i].name}` : data.clients[i].name);
// A name where there is little room, and how wide the widest of some is.
const LONGEST_NAME = () => (innerWidth < 600 ? 10 : 16);
const shortName = i => {
  const {name} = data.clients[i],
    most = LONGEST_NAME();
  return name.length > most ? `${name.slice(0, most - 1).trimEnd()}…` : name;
};
const nameWidth = clients => clients.reduce((wide, i) => Math.max(wide, 6.4 * shortName(i).length), 0);
const areNamed = () => data.clients.some(client => !/^\d+$/.test(client.name));
const sentence = text => text[0].toUpperCase() + text.slice(1);
const AXES = {
  round: {title: "round"},
  samples: {title: "gradient samples per client"},
  messages: {title: "messages sent by all clients", sent: true},
  bytes: {title: "bytes sent by all clients", sent: true, tell: value => bytes(value, 3)},
  seconds: {title: "seconds of training"},
};
//: Times that one algorithm must send what another does for the axis to be logarithmic.
const FAR_APART = 10;

// What a chart needs to know of the chosen axis, and its lines on it. Who sends nothing is a level line: what can be
// reached for nothing. On a logarithmic axis x are powers of ten.
function onAxis(series) {
  const {title, sent, tell = null} = AXES[chosen.axis];
  if (!sent) return {series, xTitle: title};
  const spent = known(series.flatMap(line => line.x)).filter(x => x > 0),
    totals = known(series.map(line => line.x.at(-1))).filter(x => x > 0);
  if (!spent.length) return {series: [], xTitle: title, empty: "Nothing is sent, or it is not known how much."};
  const xLog = Math.max(...totals) > FAR_APART * Math.min(...totals),
    begin = xLog ? Math.min(...spent) : 0,
    end = Math.max(...spent);
  const lines = series
    .map(line =>
      line.x.at(-1) === 0
        ? {...line, x: [begin, end], y: [line.y.at(-1), line.y.at(-1)], spread: [line.spread.at(-1), line.spread.at(-1)]}
        : line,
    )
    .map(line => ({...line, x: line.x.map(x => (x === null ? NaN : xLog ? Math.log10(x) : x))}));
  return {series: lines, xTitle: title, xLog, tellX: tell};
}

function showHeadline() {
  const names = data.algorithms.length;
  document.title = `${data.problem} · allforone report`;
  $("title").textContent = data.problem;
  $("lead").textContent =
    `${count(data.clients.length, "client")}, ${count(names, "algorithm")}, ${data.seeds.length > 1 ? "seeds" : "seed"} ${data.seeds.join(", ")}.` +
    (data.truth
      ? ` The clients form ${count(new Set(data.truth).size, "true cluster")}, which only an oracle is told.`
      : "");
  const body = make("tbody");
  for (const {name, label} of data.algorithms) {
    const row = make(
      "tr",
      {class: name === chosen.algorithm ? "subject" : null},
      make("th", {scope: "row"}, swatch(colour(name), dash(name)), label),
    );
    for (const cell of data.table.rows[name])
      row.append(make("td", {class: cell.best && names > 1 ? "best" : null}, cell.text));
    body.append(row);
  }
  const head = ["algorithm", ...data.table.head].map(text => make("th", {scope: "col"}, text));
  $("table").replaceChildren(make("thead", {}, make("tr", {}, ...head)), body);
}

const finalValue = (name, q) => {
  const whole = data.progress[name].of[q.name].all;
  return q.powers ? 10 ** unpack(whole.log_mean).at(-1) : unpack(whole.mean).at(-1);
};

function showCards() {
  const name = chosen.algorithm || data.algorithms[0].name,
    q = data.quantities[0],
    cards = [];
  const card = (what, number, more, mood = "") =>
    cards.push(
      make(
        "div",
        {class: "card"},
        make("div", {class: "what"}, what),
        make("div", {class: `number ${mood}`}, number),
        make("div", {class: "more"}, more),
      ),
    );
  const others = ["alone", "shared", "told"].map(inRole).filter(other => other && other !== name);
  card(
    `${algorithm(name).label}: ${q.title}`,
    tellValue(finalValue(name, q), q),
    others.map(other => `${brief(other)} ${tellValue(finalValue(other, q), q)}`).join(" · "),
  );
  const gained = gains(name, q);
  if (gained) {
    const better = gained.filter(g => g.mean >= 0).length,
      least = gained.at(-1);
    card(
      "No worse off than alone",
      `${better} of ${gained.length}`,
      `clients; least: ${clientName(least.client)}, ${tellGain(least.mean, q)}`,
      better === gained.length ? "good" : "",
    );
  }
  const frames = current();
  if (frames) {
    const parts = partitions(frames),
      truth = frames.truth;
    if (truth) {
      const scores = parts.map(p => adjustedRand(p, truth)),
        best = Math.max(...scores);
      card(
        "Agreement with true clusters",
        scores.at(-1).toFixed(2),
        "adjusted Rand index at the end, 1 is the truth" +
          (scores.length > 1 ? `; best ${best.toFixed(2)}, from round ${frames.rounds[scores.indexOf(best)]}` : ""),
      );
    } else card("Clusters found", String(new Set(parts.at(-1)).size), "at the end, by who listened to whom");
  }
  const watched = frames ? Object.entries(frames.guard) : [];
  if (watched.length) {
    const given = watched.filter(([, verdict]) => verdict.alone).map(([i]) => clientName(+i));
    card(
      "Given its local model by the guard",
      given.length ? `${given.length} of ${watched.length}` : "nobody",
      given.length ? given.join(", ") : `of ${count(watched.length, "client")}: collaboration surely hurt none`,
    );
  }
  const cost = data.costs[name],
    alone = inRole("alone");
  const ratio = alone && name !== alone ? cost.samples / data.costs[alone].samples : null;
  card(
    "Samples drawn per client",
    grouped(cost.samples),
    ratio === null
      ? "those for estimating similarity included"
      : Math.abs(ratio - 1) < 0.005
        ? `as many as ${brief(alone)}`
        : `${ratio.toFixed(2)} × those of ${brief(alone)}`,
  );
  $("cards").replaceChildren(...cards);
}

function showLegend() {
  $("legend").replaceChildren(
    ...data.algorithms.map(({name, label}) =>
      make(
        "button",
        {
          "type": "button",
          "aria-pressed": String(!chosen.hidden.has(name)),
          "title": `show or hide ${label}`,
          "onclick": () => {
            chosen.hidden.has(name) ? chosen.hidden.delete(name) : chosen.hidden.add(name);
            showLegend();
            showCurves();
          },
        },
        swatch(colour(name), dash(name)),
        label,
      ),
    ),
  );
}

function showCurves() {
  const q = quantity(),
    log = isLog();
  for (const radio of document.getElementsByName("scale")) {
    radio.checked = radio.value === (log ? "log" : "linear");
    radio.disabled = !q.logs;
  }
  const series = data.algorithms
    .filter(a => !chosen.hidden.has(a.name))
    .map(({name, label}) => {
      const progress = data.progress[name],
        whole = progress.of[q.name].all;
      return {
        name: label,
        colour: colour(name),
        dash: dash(name),
        x: progress[chosen.axis],
        y: Array.from(unpack(log ? whole.log_mean : whole.mean)),
        spread: Array.from(unpack(log ? whole.log_std : whole.std)),
      };
    });
  lineChart($("curves"), {
    ...onAxis(series),
    log,
    q,
    yTitle: q.title,
    height: innerWidth < 600 ? 320 : 420,
    range: rangeOf(series, q),
  });
}

// Shares such as an accuracy begin near chance and rush up; what matters comes after that.
function rangeOf(series, q) {
  const begin = known(series.map(line => line.y[Math.floor((line.y.length - 1) / 6)]));
  if (!q.percent || q.lower || !begin.length) return null;
  return [Math.max(0, Math.min(...begin) - 0.1), Math.max(1, ...known(series.flatMap(line => line.y)))];
}

function showCosts() {
  const columns = [
    ["samples per client", cost => cost.samples, grouped],
    ["messages", cost => cost.messages, grouped],
    ["bytes", cost => cost.bytes, bytes],
    ["seconds", cost => cost.seconds, v => v.toFixed(2)],
  ];
  const costs = Object.values(data.costs);
  if (costs.some(cost => cost.epsilon)) columns.push(["ε spent, at most", mostSpent, v => v.toPrecision(3)]);
  const rows = data.algorithms.map(({name, label}) => {
    const row = make("tr", {}, make("th", {scope: "row"}, swatch(colour(name), dash(name)), label));
    for (const [, of, tell] of columns) {
      const value = of(data.costs[name]),
        most = Math.max(...costs.map(cost => of(cost) || 0));
      row.append(
        value === null
          ? make("td", {}, "not known")
          : make(
              "td",
              {},
              tell(value),
              make("span", {
                class: "bar",
                style: `width:calc(${most ? (100 * value) / most : 0}% - 1.4rem);background:${colour(name)}`,
              }),
            ),
      );
    }
    return row;
  });
  const head = ["algorithm", ...columns.map(c => c[0])].map(text => make("th", {scope: "col"}, text));
  $("costs").replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

// By the client that has spent most of its privacy; not known where nothing was private.
function mostSpent({epsilon}) {
  return epsilon ? Math.max(...epsilon.filter(spent => spent !== null)) : null;
}
