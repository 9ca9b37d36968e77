"use strict";
// What is wrong with the process, as `ebpfprof explain` says it: observed when the page shows the
// process, then once a minute, or at the button.

const EXPLAINED_FOR_S = 10;
const EXPLAINED_EVERY_MS = 60_000;

class Explanation extends Asked {
  constructor(section, api) {
    super(section, api);
    this._list = section.querySelector("ol");
    this._rest = section.querySelector("[data-rest]");
  }

  /** Show the process, and observe it if that is due; with `isPaused` only if it is new. */
  show(target, isPaused) {
    const isShown = Boolean(target && target.go && !target.ended);
    if (!isShown) {
      this._section.hidden = !(target && target.pid === this._pid && this._found);
      this._button.disabled = true;
      return;
    }
    this._section.hidden = false;
    const isNew = target.pid !== this._pid;
    if (isNew) this._begin(target.pid);
    this._button.disabled = this._isRunning;
    const isDue = isNew || (!isPaused && performance.now() > this._dueMs);
    if (isDue && !this._isRunning) this._ask();
  }

  async _ask() {
    const pid = this._pid;
    try {
      await this._askOnce(`Observing for ${EXPLAINED_FOR_S} s…`, (of) => this._api.explain(of, EXPLAINED_FOR_S), (found) =>
        `Observed for ${formatValue(found.seconds * 1e9, "nanoseconds")} until ${formatTime(Date.now() / 1000)}.`);
    } finally {
      if (pid === this._pid) this._dueMs = performance.now() + EXPLAINED_EVERY_MS;
    }
  }

  _draw(says) {
    this._say(says);
    const { findings = [], fine = [], incomplete = [] } = this._found ?? {};
    this._list.replaceChildren(...findings.map((each) => this._item(each)));
    const rest = [];
    if (this._found && !findings.length) rest.push("Nothing is wrong, as far as this shows.");
    if (fine.length) rest.push(`OK: ${fine.join(", ")}.`);
    rest.push(...incomplete);
    this._rest.replaceChildren(...rest.map((text) => newElement("p", { textContent: FlameText.printable(text) })));
  }

  _item({ level, title, lines, next }) {
    const item = newElement("li", { className: level }, newElement("strong", { textContent: FlameText.printable(title) }));
    for (const line of lines) item.append(newElement("p", { textContent: FlameText.printable(line) }));
    if (next) item.append(newElement("p", {}, "Next: ", newElement("code", { textContent: FlameText.printable(`sudo ${next}`) })));
    return item;
  }
}
