"use strict";
// Sorts and filters the rows of a panel. Without it, tables stand as they are listed.
for (const panel of document.querySelectorAll(".panel")) {
  const pick = (name) => panel.querySelector(`[data-pick="${name}"]`);
  const picked = (name) => pick(name) ? pick(name).value : "";
  const bodies = [...panel.querySelectorAll("tbody.rows")];
  const rows = bodies.map((body) => [...body.rows].map((row, place) => ({
    row,
    place,
    name: row.cells[0].textContent,
    arm: row.cells[1].textContent,
    effect: row.dataset.e === "" ? -Infinity : Number(row.dataset.e),
    size: Number(row.dataset.n),
  })));
  const orders = {
    listed: (a, b) => a.place - b.place,
    effect: (a, b) => b.effect - a.effect || a.place - b.place,
    name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }) || a.place - b.place,
    size: (a, b) => b.size - a.size || a.place - b.place,
  };
  const show = () => {
    const text = picked("text").trim().toLowerCase();
    const metric = picked("metric");
    const arm = picked("arm");
    let shown = 0;
    let total = 0;
    bodies.forEach((body, place) => {
      const part = body.closest(".of-metric");
      part.hidden = metric !== "" && part.dataset.metric !== metric;
      for (const row of body.closest("table").querySelectorAll("tbody.overall tr")) {
        row.hidden = arm !== "" && row.cells[1].textContent !== arm;
      }
      for (const one of [...rows[place]].sort(orders[picked("sort")])) {
        one.row.hidden = (arm !== "" && one.arm !== arm) || !one.name.toLowerCase().includes(text);
        body.append(one.row);
        total += 1;
        shown += one.row.hidden || part.hidden ? 0 : 1;
      }
    });
    panel.querySelector("[role=status]").textContent = `Showing ${shown} of ${total}.`;
  };
  panel.addEventListener("input", show);
  panel.querySelector(".controls").hidden = false;
  show();
}
