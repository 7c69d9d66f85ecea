"use strict";
// Shows only what was recorded. The address names it: #LOCK/FAULT/PROMISE/STEP.
const { faults, promises, locks } = JSON.parse(document.getElementById("data").textContent);
const ours = locks.find((lock) => !lock.is_published);
const cells = faults.flatMap((fault, column) => locks.map((lock) => ({ lock, fault, shown: lock.cells[column] })));
const found = (lock, fault) => cells.find((cell) => cell.lock === lock && cell.fault === fault);
const at = (id) => document.getElementById(id);

function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// What is shown: a cell, one of its reels, and how many of its steps. `runs` are the reels on the stage.
const now = { cell: cells[0], reel: 0, step: 1, runs: [] };
let player = 0;

function places(reel) {
  const isStored = reel.steps.some((step) => step.place === "store");
  return [...reel.processes, "server", ...(isStored ? ["store"] : []), "fault"];
}

const counted = (number) => ["nobody", "one", "two", "three"][number] ?? String(number);

function row(step, reel, index) {
  const overlap = step.holders.length > 1;
  const made = element("tr", "", { class: [overlap && "overlap", step.is_broken && "broken"].filter(Boolean).join(" ") });
  made.dataset.step = index + 1;
  made.append(element("td", `${(step.at / 1000).toFixed(1)} ms`));
  for (const place of places(reel)) {
    const isHere = place === step.place;
    const holds = step.holders.includes(place);
    const mark = (holds && overlap) || (isHere && step.is_broken) ? "⚠ " : "";
    const isServer = place === "server" && step.owner;
    const state = holds ? (overlap ? `${counted(step.holders.length)} hold` : "holds") : isServer ? `has ${step.owner}` : "";
    const way = !isHere ? "" : step.kind === "granted" ? "server → " : "";
    const onward = isHere && ["asks", "gives_back"].includes(step.kind) ? " → server" : "";
    const cell = element("td", mark + way + (isHere ? step.text : state) + onward);
    cell.classList.toggle("hold", holds);
    cell.classList.toggle("server", Boolean(isServer));
    cell.classList.toggle("here", isHere);
    made.append(cell);
  }
  return made;
}

function run(lock, { promise, reel }) {
  const made = element("section", "", { class: "run", "aria-label": `${lock.name}: ${lock.about}` });
  made.append(element("h3", `${lock.name}: ${lock.about}`));
  const table = element("table");
  const head = element("tr");
  head.append(...["time", ...places(reel)].map((name) => element("th", name, { scope: "col" })));
  table.append(head);
  reel.steps.forEach((step, index) => {
    if (step.left_out) {
      const gap = element("tr", "", { "data-step": index + 1 });
      gap.append(element("td", "…"), element("td", `${step.left_out} steps are left out`, { colspan: places(reel).length }));
      table.append(gap);
    }
    table.append(row(step, reel, index));
  });
  const told = promise
    ? element("p", `⚠ Promise ${promise.name} is broken. Promised: “${promise.means}” The checker: ${reel.verdict}.`, { class: "verdict" })
    : element("p", "✓ The checker finds no broken promise in this run.", { class: "fine" });
  const passed = `Queue: one that waited saw ${reel.passed_over} grants go to processes that asked later, more than any other in this run. An ask that is still on its way to the server counts as one that waits.`;
  made.append(told, ...(now.cell.fault.id === "Calm" ? [element("p", passed)] : []), table);
  return made;
}

// Fills the stage: the exhibit, and ours next to it under the same fault.
function show() {
  const { cell } = now;
  const shown = cell.shown[now.reel];
  const beside = cell.lock === ours ? [] : found(ours, cell.fault).shown.slice(0, 1).map((one) => [ours, one]);
  now.runs = [[cell.lock, shown], ...beside];
  at("title").textContent = `${cell.lock.name}, ${cell.fault.title}`;
  at("about").textContent = cell.fault.about;
  at("promises").replaceChildren(...(cell.shown.length > 1 ? cell.shown : []).map(({ promise }, index) => {
    const button = element("button", `broken: ${promise.name}`, { "aria-pressed": index === now.reel });
    button.onclick = () => go(cell, index, 1);
    return button;
  }));
  at("stage").replaceChildren(...now.runs.map(([lock, one]) => run(lock, one)));
  for (const button of at("hall").querySelectorAll("button")) {
    if (button.dataset.cell === `${cell.lock.name}/${cell.fault.id}`) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

// The steps are those of the exhibit; ours next to it shows what had happened by the same time.
function steps() { return now.runs[0][1].reel.steps.length; }

function reached(index, number) {
  const [, { reel }] = now.runs[index];
  if (index === 0) return number;
  if (number === steps()) return reel.steps.length;
  const time = now.runs[0][1].reel.steps[number - 1].at;
  return reel.steps.filter((step) => step.at <= time).length;
}

function step(number) {
  now.step = Math.min(Math.max(number, 1), steps());
  [...at("stage").children].forEach((shown, index) => {
    const last = reached(index, now.step);
    for (const line of shown.querySelectorAll("tr[data-step]")) {
      line.classList.toggle("ahead", Number(line.dataset.step) > last);
      line.classList.toggle("now", Number(line.dataset.step) === last);
    }
  });
  at("slider").max = steps();
  at("slider").value = now.step;
  at("count").textContent = `step ${now.step} of ${steps()}`;
  const { lock, fault, shown } = now.cell;
  const { promise } = shown[now.reel];
  history.replaceState(null, "", `#${lock.name}/${fault.id}/${promise ? promise.number : "kept"}/${now.step}`);
}

function go(cell, reel, number) {
  Object.assign(now, { cell, reel });
  show();
  step(number);
}

function open() {
  const [name, id, number, wanted] = decodeURIComponent(location.hash.slice(1)).split("/");
  const cell = cells.find(({ lock, fault }) => lock.name === name && fault.id === id) ?? cells[0];
  const reel = cell.shown.findIndex(({ promise }) => promise && String(promise.number) === number);
  // A visitor who follows a link sees the whole stretch, and steps back in it.
  go(cell, Math.max(reel, 0), wanted === undefined ? Infinity : Number(wanted) || 1);
}

function play(on) {
  clearInterval(player);
  player = on ? setInterval(() => (now.step < steps() ? step(now.step + 1) : play(false)), 700) : 0;
  at("play").textContent = on ? "pause" : "▶ play";
}

function turn(by) {
  const next = (cells.indexOf(now.cell) + by + cells.length) % cells.length;
  go(cells[next], 0, 1);
}

const acts = {
  Home: () => step(1),
  ArrowLeft: () => step(now.step - 1),
  " ": () => {
    if (!player && now.step === steps()) step(1);
    play(!player);
  },
  ArrowRight: () => step(now.step + 1),
  End: () => step(Infinity),
  n: () => turn(1),
  p: () => turn(-1),
};

const head = element("tr");
head.append(element("th", "lock"), ...faults.map((fault) => element("th", fault.title, { scope: "col" })));
at("hall").append(head, ...locks.map((lock) => {
  const line = element("tr");
  line.append(element("th", `${lock.name}: ${lock.about}`, { scope: "row" }), ...faults.map((fault) => {
    const cell = found(lock, fault);
    const numbers = cell.shown.filter(({ promise }) => promise).map(({ promise }) => promise.number).join(" ");
    const button = element("button", numbers ? `⚠ ${numbers}` : "kept", { class: numbers ? "broken" : "kept" });
    button.dataset.cell = `${lock.name}/${fault.id}`;
    button.onclick = () => {
      go(cell, 0, 1);
      document.querySelector("main").scrollIntoView();
    };
    const box = element("td");
    box.append(button);
    return box;
  }));
  return line;
}));
at("legend").append(...promises.map(({ name, means }) => element("li", `${name.replace(/^\d+ /, "")}: ${means}`)));
const buttons = { first: "Home", back: "ArrowLeft", play: " ", forward: "ArrowRight", last: "End" };
for (const [id, key] of Object.entries(buttons)) at(id).onclick = acts[key];
at("slider").oninput = () => step(Number(at("slider").value));
addEventListener("keydown", (event) => {
  const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  const isOnControl = event.target.closest("button, a") && event.key === " ";
  if (!act || isOnControl || event.target === at("slider") || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
});
addEventListener("hashchange", () => {
  open();
  document.querySelector("main").scrollIntoView();
});
open();
