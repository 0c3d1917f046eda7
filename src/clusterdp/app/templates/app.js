"use strict";
// What makes forms easier: choosing a path, dropping one, copying, and a word while work is done.
// All of it works without, too: paths can be typed.
const at = document.body.dataset.at;

// Choosing a path: names of this machine's folders, from the app itself.
const picker = document.getElementById("picker");
let target = null;

async function list(under) {
  const answer = await fetch(`${at}/names?under=${encodeURIComponent(under)}`);
  const held = await answer.json();
  const folders = picker.querySelector("ul");
  const kind = target.dataset.pickKind;
  picker.querySelector("h2").textContent = kind === "folder" ? "Choose a folder" : "Choose a file";
  document.getElementById("picker-place").textContent = held.place;
  const problem = picker.querySelector(".error");
  problem.textContent = held.problem;
  problem.hidden = !held.problem;
  const inside = (name) => (held.place.endsWith("/") ? held.place : `${held.place}/`) + name;
  const entry = (name, path, isFolder) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = isFolder ? `${name}/` : name;
    button.className = isFolder ? "folder" : "file";
    button.addEventListener("click", () => isFolder ? list(path) : choose(path));
    const item = document.createElement("li");
    item.append(button);
    return item;
  };
  folders.replaceChildren(
    ...(held.above ? [entry("..", held.above, true)] : []),
    ...held.folders.map((name) => entry(name, inside(name), true)),
    ...(kind === "file" ? held.files.map((name) => entry(name, inside(name), false)) : []),
  );
  const whole = picker.querySelector("[data-choose]");
  whole.hidden = kind !== "folder";
  whole.onclick = () => choose(held.place);
  (folders.querySelector("button") || whole).focus();
}

function choose(path) {
  const field = document.getElementById(target.dataset.pickFor);
  field.value = path;
  picker.close();
  field.focus();
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

for (const button of document.querySelectorAll("[data-pick-for]")) {
  button.hidden = false;
  const label = document.querySelector(`label[for="${button.dataset.pickFor}"]`);
  if (label) button.setAttribute("aria-label", `Browse: ${label.textContent}`);
  button.addEventListener("click", () => {
    target = button;
    picker.showModal();
    list(document.getElementById(button.dataset.pickFor).value);
  });
}
if (picker) picker.querySelector("[data-close]").addEventListener("click", () => picker.close());

// Dropping a file: file managers that give its path, and not a copy of it, fill in the field.
for (const button of document.querySelectorAll("[data-pick-kind]")) {
  const field = document.getElementById(button.dataset.pickFor);
  field.addEventListener("dragover", (event) => {
    event.preventDefault();
    field.classList.add("dropped");
  });
  field.addEventListener("dragleave", () => field.classList.remove("dropped"));
  field.addEventListener("drop", (event) => {
    event.preventDefault();
    field.classList.remove("dropped");
    const listed = event.dataTransfer.getData("text/uri-list") || event.dataTransfer.getData("text/plain");
    const first = listed.split("\n")[0].trim();
    if (first) field.value = first.startsWith("file://") ? decodeURIComponent(new URL(first).pathname) : first;
    else if (event.dataTransfer.files.length) field.placeholder = `Type the path of ${event.dataTransfer.files[0].name}`;
  });
}

for (const button of document.querySelectorAll("[data-copies]")) {
  const code = button.parentElement.querySelector("code");
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(code.textContent).then(
      () => { button.textContent = "Copied"; },
      () => getSelection().selectAllChildren(code),
    );
  });
}

// A word while work is done. Buttons work again when the page is shown again, as by going back.
for (const form of document.querySelectorAll("form[data-working]")) {
  form.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (!button) return;
    button.dataset.words = button.textContent;
    button.setAttribute("aria-busy", "true");
    button.textContent = form.dataset.working;
  });
}
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("button[aria-busy]")) {
    button.removeAttribute("aria-busy");
    button.textContent = button.dataset.words;
  }
});

// Of a column that is no outcome, only what it is is asked.
for (const column of document.querySelectorAll("[data-column]")) {
  const [role, kind] = column.querySelectorAll("select");
  const [, values, , spread] = column.querySelectorAll("[data-of-outcome] > .field");
  const show = () => {
    column.querySelector("[data-of-outcome]").hidden = role.value !== "outcome";
    values.hidden = kind.value === "binary";
    spread.hidden = ["binary", "labels"].includes(kind.value);
  };
  column.addEventListener("input", show);
  show();
}

// The slider of a plan sets the ε that is going to be used.
{
  const slider = document.querySelector("input[type=range]#epsilon");
  const budget = document.querySelector(".decide [name=epsilon]");
  if (slider && budget) {
    const stops = JSON.parse(document.getElementById("stops").textContent);
    slider.addEventListener("input", () => { budget.value = stops[slider.value].texts.epsilon; });
  }
}

// How far a run is; then the page of what it made.
async function follow(box) {
  const answer = await fetch(box.dataset.follow);
  const held = await answer.json();
  if (held.finished) {
    location.reload();
    return;
  }
  const bar = box.querySelector("progress");
  if (held.total) {
    bar.max = held.total;
    bar.value = Math.min(held.done, held.total);
  } else bar.removeAttribute("value");
  const count = held.total ? ` ${held.done.toLocaleString("en")} of ${held.total.toLocaleString("en")}` : "";
  box.querySelector("[role=status]").textContent = held.stage + count;
  setTimeout(() => follow(box), 300);
}
for (const box of document.querySelectorAll("[data-follow]")) follow(box);

// After an error, the first field that is wrong.
const wrong = document.querySelector("[aria-invalid]");
if (wrong) wrong.focus();
