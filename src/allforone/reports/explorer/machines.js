// Clients on machines: who was absent when and why, and what it took to ask each.

const bytesText = bytes => {
  const power = bytes < 1 ? 0 : Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 1000 ** power).toPrecision(power ? 3 : 1 + Math.floor(Math.log10(Math.max(1, bytes))))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
};

function showMachines() {
  const runs = data.machines[chosen.algorithm] || [],
    run = runs.find(r => r.seed === chosen.seed) || runs[0];
  $("machines").hidden = !run;
  document.querySelector('nav a[href="#machines"]').hidden = !run;
  if (!run) return;
  const ever = run.sites.filter(site => site.absences),
    worst = [...ever].sort((a, b) => b.absences - a.absences)[0];
  $("machines-lead").textContent = ever.length
    ? `${count(run.sites.length, "machine")}; absent at some time: ${ever.length}. Most often ${worst.name}, in ${count(worst.absences, "round")} of ${worst.rounds}; the last reason: ${worst.absent.at(-1)[1]}.`
    : `${count(run.sites.length, "machine")}, all there in every round.`;
  showPresence(run);
  const row = site =>
    make(
      "tr",
      {},
      make("th", {scope: "row"}, site.name),
      ...[
        `${site.rounds - site.absences} of ${site.rounds}`,
        site.seconds === null ? "–" : short(site.seconds),
        site.longest === null ? "–" : short(site.longest),
        bytesText(site.sent),
        bytesText(site.received),
        site.absent.length ? `round ${site.absent.at(-1)[0]}: ${site.absent.at(-1)[1]}` : "never",
      ].map(text => make("td", {}, text)),
    );
  const head = ["machine", "rounds there", "seconds a round", "longest", "to it", "from it", "last absent"];
  $("machine-table").replaceChildren(
    make("thead", {}, make("tr", {}, ...head.map(text => make("th", {scope: "col"}, text)))),
    make("tbody", {}, ...run.sites.map(row)),
  );
}

function showPresence(run) {
  const box = $("presence"),
    left = Math.min(220, 24 + 7 * Math.max(...run.sites.map(site => site.name.length))),
    wide = Math.max(260, box.clientWidth || 700),
    tall = 22,
    [first, last] = run.rounds,
    each = (wide - left - 12) / (last - first + 1),
    svg = draw("svg", {
      width: wide,
      height: tall * run.sites.length + 26,
      viewBox: `0 0 ${wide} ${tall * run.sites.length + 26}`,
      role: "img",
    });
  run.sites.forEach((site, place) => {
    const y = place * tall;
    svg.append(draw("text", {"x": left - 10, "y": y + 15, "text-anchor": "end"}, site.name));
    svg.append(
      draw("rect", {x: left, y: y + 4, width: each * (last - first + 1), height: tall - 8, style: "fill:var(--wash)"}),
    );
    for (const [round, why] of site.absent)
      svg.append(
        draw(
          "rect",
          {
            x: left + each * (round - first),
            y: y + 4,
            width: Math.max(1, each - 0.5),
            height: tall - 8,
            style: "fill:var(--ink)",
          },
          draw("title", {}, `round ${round}: ${why}`),
        ),
      );
  });
  const under = tall * run.sites.length + 18;
  svg.append(draw("text", {x: left, y: under}, `round ${first}`));
  svg.append(draw("text", {"x": wide - 12, "y": under, "text-anchor": "end"}, `${last}`));
  box.replaceChildren(svg);
}
