// Start, choices, and newer numbers while a run goes on.

function chooseDefaults() {
  const names = data.algorithms.map(a => a.name),
    shown = names.filter(name => framesOf(name).length);
  if (!names.includes(chosen.algorithm) || (shown.length && !shown.includes(chosen.algorithm)))
    chosen.algorithm = shown.find(name => framesOf(name)[0].similarity || framesOf(name)[0].bias) || shown[0] || names[0];
  if (!quantity()) chosen.quantity = data.quantities[0].name;
  chosen.scale ||= quantity().powers ? "log" : "linear";
  chooseSeed();
}

function chooseSeed() {
  const seeds = framesOf(chosen.algorithm).map(f => f.seed);
  if (!seeds.includes(chosen.seed)) chosen.seed = seeds[0] ?? null;
}

function colourAlgorithms() {
  const rules = mix => data.algorithms.map((a, j) => `--a${j}:${mix(a.colour)}`).join(";");
  let sheet = $("colours");
  if (!sheet) document.head.append((sheet = make("style", {id: "colours"})));
  sheet.textContent = `:root{${rules(c => c)}}@media screen and (prefers-color-scheme:dark){:root{${rules(c => `color-mix(in oklab,${c} 78%,white)`)}}}`;
}

function showCollaboration() {
  const frames = current();
  $("collaboration").hidden = !frames || clientCount() < 2;
  if ($("collaboration").hidden) return;
  showAgreement();
  showRamp();
  showFrame();
}

function showAll() {
  fillControls();
  showHeadline();
  showCards();
  showLegend();
  showCurves();
  showCollaboration();
  showClient();
  showBenefit();
  showMachines();
  showCosts();
  tellSideways();
}

// A table that is wider than its place says so.
function tellSideways() {
  for (const box of document.querySelectorAll(".scroll")) {
    const wider = box.scrollWidth > box.clientWidth + 1,
      told = box.previousElementSibling?.classList.contains("sideways") ? box.previousElementSibling : null;
    box.classList.toggle("more", wider);
    if (wider && !told) box.before(make("small", {class: "sideways"}, "wider than the screen: scroll sideways →"));
    if (!wider && told) told.remove();
  }
}
new ResizeObserver(tellSideways).observe(document.body);

function show(numbers) {
  const frames = data && current(),
    following = !frames || chosen.frame >= frames.rounds.length - 1;
  data = numbers;
  colourAlgorithms();
  chooseDefaults();
  if (following && current()) chosen.frame = current().rounds.length - 1;
  chosen.client = Math.min(chosen.client, clientCount() - 1);
  if (chosen.partner === null || chosen.partner === chosen.client || chosen.partner >= clientCount())
    chosen.partner = closestTo(chosen.client);
  showAll();
}

$("quantity").onchange = event => {
  chosen.quantity = event.target.value;
  chosen.scale = quantity().powers ? "log" : "linear";
  showCurves();
  showClient();
  showBenefit();
};
$("axis").onchange = event => {
  chosen.axis = event.target.value;
  showCurves();
  showClientCurve();
};
for (const radio of document.getElementsByName("scale"))
  radio.onchange = () => {
    chosen.scale = radio.value;
    showCurves();
    showClientCurve();
  };
$("algorithm").onchange = event => {
  player.stop();
  chosen.cluster = null;
  chosen.algorithm = event.target.value;
  chooseSeed();
  chosen.frame = current().rounds.length - 1;
  fillControls();
  showHeadline();
  showCards();
  showCollaboration();
  showClient();
  showBenefit();
  showMachines();
};
$("seed").onchange = event => {
  player.stop();
  chosen.cluster = null;
  chosen.seed = +event.target.value;
  fillControls();
  showCards();
  showCollaboration();
  showClient();
  showMachines();
};
$("order").onchange = event => {
  chosen.order = event.target.value;
  chosen.cluster = null;
  showRamp();
  showFrame();
  showStrip();
};
$("slider").oninput = event => {
  player.stop();
  goTo(+event.target.value);
};
$("play").onclick = player.toggle;
$("client-choice").onchange = event => choose(+event.target.value, null);
$("client-search").onchange = search;
$("partner-choice").onchange = event => choose(chosen.client, +event.target.value);

let width = innerWidth,
  waiting;
addEventListener("resize", () => {
  if (innerWidth !== width) {
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(showAll, 80);
  }
});
for (const media of [dark, printing]) media.addEventListener("change", showAll);

const sections = new IntersectionObserver(
  seen => {
    for (const {target, isIntersecting} of seen)
      if (isIntersecting)
        for (const link of document.querySelectorAll("nav a"))
          link.classList.toggle("here", link.hash === `#${target.id}`);
  },
  {rootMargin: "-20% 0px -70% 0px"},
);
document.querySelectorAll("section").forEach(section => sections.observe(section));

// Newer numbers from where the page came from, for as long as runs go on; a server that is gone is said and asked again.
async function follow() {
  let version = data.live.version;
  $("live").hidden = false;
  for (;;) {
    $("live").textContent = data.live.done ? "Finished." : `Live: ${data.live.said}`;
    if (data.live.done) return;
    await new Promise(resolve => setTimeout(resolve, data.live.seconds * 1000));
    try {
      const answer = await fetch(`data.json?after=${version}`);
      if (answer.status === 200) {
        const numbers = await answer.json();
        version = numbers.live.version;
        show(numbers);
      }
    } catch {
      $("live").textContent = "The server is gone; these are its last numbers.";
    }
  }
}

show(JSON.parse($("data").textContent));
if (data.live) follow();
