"use strict";
// Walks through the page as a visitor does, by clicks and keys, and records what can be seen.
(() => {
  const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const runs = () => [...document.querySelectorAll(".run")];
  const isSeen = (line) => getComputedStyle(line).visibility === "visible";
  const steps = (run) => [...run.querySelectorAll("tr[data-step]")].filter((line) => !line.querySelector("[colspan]"));
  const shown = (run) => steps(run).filter(isSeen).length;
  const isHatched = (cell) => getComputedStyle(cell).backgroundImage.includes("repeating-linear-gradient");
  const isOverlap = (line) => {
    const cells = [...line.cells].filter((cell) => cell.classList.contains("hold"));
    return isSeen(line) && cells.length > 1 && cells.every((cell) => isHatched(cell) && cell.textContent.includes("⚠"));
  };
  const overlaps = (run) => steps(run).filter(isOverlap).length;

  const look = (lock) => {
    const [exhibit] = runs();
    const pressed = ["", "ArrowRight", "ArrowRight", "ArrowLeft"].map((key) => {
      if (key) press(key);
      return shown(exhibit);
    });
    document.getElementById("last").click();
    const verdict = exhibit.querySelector("p").textContent;
    const broken = verdict.match(/Promise (\d)[^.]* is broken/);
    return {
      lock,
      title: document.getElementById("title").textContent,
      promise: broken && Number(broken[1]),
      runs: runs().length,
      steps: steps(exhibit).length,
      shown: pressed,
      at_end: shown(exhibit),
      overlaps: overlaps(exhibit),
      lost: steps(exhibit).filter((line) => isSeen(line) && line.textContent.includes("wrote is lost")).length,
      refused: steps(exhibit).filter((line) => isSeen(line) && line.textContent.includes("smaller: refused")).length,
      ours: runs().slice(1).reduce((sum, run) => sum + overlaps(run), 0),
    };
  };

  const seen = [];
  for (const button of document.querySelectorAll("#hall button")) {
    const [lock] = button.dataset.cell.split("/");
    button.click();
    const promises = document.querySelectorAll("#promises button").length;
    seen.push(look(lock));
    for (let index = 1; index < promises; index += 1) {
      document.querySelectorAll("#promises button")[index].click();
      seen.push(look(lock));
    }
  }
  document.getElementById("walk").textContent = JSON.stringify(seen);
})();
