"use strict";
const stops = JSON.parse(document.getElementById("stops").textContent);
const slider = document.getElementById("epsilon");
const metric = document.getElementById("metric");
const panels = [...document.querySelectorAll(".panel")];
const drawn = panels.filter((panel) => panel.querySelector(".mark"));
const [track, bar, label] = [".track", ".after", "text.cost"].map((one) => document.querySelector(".sure " + one));

function show() {
  const stop = stops[slider.value];
  for (const one of document.querySelectorAll("[data-slot]")) one.textContent = stop.texts[one.dataset.slot] || "0%";
  for (const one of document.querySelectorAll("[data-share]")) one.style.width = (stop.shares[one.dataset.share] || 0) + "%";
  for (const one of document.querySelectorAll("[data-part]")) one.hidden = !stop.shares[one.dataset.part];
  drawn.forEach((panel, place) => {
    const [x, ys, labelX, labelYs, anchor] = stop.marks[place];
    const mark = panel.querySelector(".mark");
    const line = mark.querySelector("line");
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    mark.querySelectorAll("circle").forEach((dot, at) => {
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", ys[at]);
    });
    mark.querySelectorAll("text").forEach((label, at) => {
      label.setAttribute("x", labelX);
      label.setAttribute("y", labelYs[at]);
      label.setAttribute("text-anchor", anchor);
    });
  });
  panels.forEach((panel, place) => {
    panel.hidden = metric !== null && Number(metric.value) !== place % drawn.length;
  });
  const width = Number(track.getAttribute("width")) * (parseFloat(stop.texts.sure) / 100 - 0.5);
  bar.setAttribute("width", width.toFixed(1));
  label.setAttribute("x", (Number(bar.getAttribute("x")) + width).toFixed(1));
  label.textContent = "at most " + stop.texts.sure + " after";
  slider.setAttribute("aria-valuetext", "ε = " + stop.texts.epsilon);
}

function copy(button) {
  const code = document.getElementById(button.dataset.copy);
  const done = () => { button.textContent = "Copied"; };
  const select = () => getSelection().selectAllChildren(code);
  navigator.clipboard.writeText(code.textContent).then(done, select);
}

slider.addEventListener("input", show);
if (metric) metric.addEventListener("input", show);
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copy(button));
  button.hidden = !navigator.clipboard;
}
document.getElementById("controls").hidden = false;
show();
