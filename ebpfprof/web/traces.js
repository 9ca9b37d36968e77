"use strict";
// Execution traces as files: the next seconds, and the last ones if serve keeps them.

const NEXT_S = 5;
const OPENED_BY = {
  go: (name) => `go tool trace ${name}`,
  perfetto: (name) => `https://ui.perfetto.dev, which opens ${name} and keeps it in the browser`,
  html: (name) => `a browser, with ${name}`,
};

class Traces {
  constructor(section, api) {
    this._section = section;
    this._api = api;
    [this._last, this._next, this._format, this._status] =
      ["[data-last]", "[data-next]", "select", "[role=status]"].map((css) => section.querySelector(css));
    this._next.textContent = `Trace of the next ${NEXT_S} s`;
    this._last.addEventListener("click", () => this._save({ last: "" }, "Writing the file…"));
    this._next.addEventListener("click", () => this._save({ seconds: NEXT_S }, `Recording for ${NEXT_S} s…`));
  }

  /** The process that is shown; of its last `lastS` seconds, null if none are kept. */
  show(target, lastS) {
    const isOther = this._target?.pid !== target.pid;
    this._target = target;
    this._section.hidden = !target.go || (Boolean(target.ended) && !target.last.is_there);
    this._next.hidden = Boolean(target.ended);
    this._last.hidden = lastS === null;
    this._last.textContent = `Trace of ${target.ended ? "its" : "the"} last ${lastS} s`;
    this._last.disabled = !target.last.is_there;
    const why = lastS === null ? "For the last seconds: serve --last 10s" : target.last.says;
    if (this._busy || !(isOther || this._hint)) return; // the message about a file remains
    this._hint = true;
    this._say(target.last.is_there ? "" : why);
  }

  async _save(time, says) {
    if (this._busy) return;
    const { pid } = this._target;
    this._busy = true;
    this._hint = false;
    this._say(says);
    try {
      const format = this._format.value;
      const { name, data, missing } = await this._api.trace(pid, time, format);
      const url = URL.createObjectURL(data);
      newElement("a", { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may ask the user where to
      this._say([`Next: ${OPENED_BY[format](name)}`, ...missing].join(" · "));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this._say(error.message, true);
    } finally {
      this._busy = false;
    }
  }

  _say(text, isBad = false) {
    this._status.classList.toggle("bad", isBad);
    if (this._status.textContent !== text) this._status.textContent = FlameText.printable(text);
  }
}
