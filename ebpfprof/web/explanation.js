"use strict";
// What is wrong with the process, as `ebpfprof explain` says it: observed when the page shows the
// process, then once a minute, or at the button.

const EXPLAINED_FOR_S = 10;
const EXPLAINED_EVERY_MS = 60_000;

class Explanation {
  constructor(section, api) {
    this._section = section;
    this._api = api;
    this._state = section.querySelector("[role=status]");
    this._list = section.querySelector("ol");
    this._rest = section.querySelector("[data-rest]");
    this._button = section.querySelector("button");
    this._button.addEventListener("click", () => this._observe());
    this._pid = null;
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
    if (isNew) {
      this._pid = target.pid;
      this._found = null;
      this._isRunning = false;
      this._draw("");
    }
    this._button.disabled = this._isRunning;
    const isDue = isNew || (!isPaused && performance.now() > this._dueMs);
    if (isDue && !this._isRunning) this._observe();
  }

  async _observe() {
    const pid = this._pid;
    this._isRunning = true;
    this._button.disabled = true;
    this._draw(`Observing for ${EXPLAINED_FOR_S} s…`);
    let says = "";
    try {
      const found = await this._api.explain(pid, EXPLAINED_FOR_S);
      if (pid !== this._pid) return;
      this._found = found;
      says = `Observed for ${formatValue(found.seconds * 1e9, "nanoseconds")} until ${formatTime(Date.now() / 1000)}.`;
    } catch (error) {
      if (pid !== this._pid) return;
      says = error.message;
      if (!(error instanceof ApiError)) throw error;
    } finally {
      if (pid === this._pid) {
        this._isRunning = false;
        this._button.disabled = false;
        this._dueMs = performance.now() + EXPLAINED_EVERY_MS;
        this._draw(says);
      }
    }
  }

  _draw(says) {
    this._state.textContent = FlameText.printable(says);
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
