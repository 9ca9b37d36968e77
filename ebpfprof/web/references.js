"use strict";
// What keeps the objects on the heap alive, read at the button: it takes the server some seconds.

class References extends Asked {
  constructor(section, api) {
    super(section, api);
    [this._answers, this._leaks, this._table, this._flame, this._notes] =
      ["[data-answers]", ".findings", "[data-table]", "[data-flame]", "[data-notes]"]
        .map((css) => section.querySelector(css));
    this._findings = new Findings(this._leaks);
  }

  /** Show what was read of the process; nothing is read for it. */
  show(target) {
    const isShown = Boolean(target && target.go && !target.ended);
    if (target?.pid !== this._pid) this._begin(target?.pid ?? null);
    this._section.hidden = !isShown && !this._found;
    this._button.disabled = !isShown || this._isRunning;
  }

  _ask() {
    return this._askOnce("Reading the heap…", (pid) => this._api.references(pid), (found) => {
      const size = `${formatValue(found.used_bytes, "bytes")} in ${formatValue(found.objects, "count")} objects`;
      return `${size} are reachable, at ${formatTime(found.time_s)}. Read in ${formatValue(found.seconds * 1e9, "nanoseconds")}.`;
    });
  }

  _draw(says) {
    this._say(says);
    const { answers = [], notes = [], rows = [], leaks = [], profile } = this._found ?? {};
    const texts = (tag, lines) => lines.map((text) => newElement(tag, { textContent: FlameText.printable(text) }));
    this._answers.replaceChildren(...texts("li", answers));
    this._notes.replaceChildren(...texts("p", notes));
    this._findings.show(this._found && { problem: "", findings: leaks });
    this._table.replaceChildren(...(rows.length ? [this._rows(rows)] : []));
    this._flame.hidden = !rows.length;
    if (rows.length) {
      this._graph ??= new FlameGraph(this._flame);
      this._graph.show(new FlameStacks(profile, null), { hideIdle: false });
    }
  }

  _rows(rows) {
    const head = ["Bytes", "Share", "Objects", "Path (type)"].map((textContent, i) =>
      newElement("th", { textContent, scope: "col", className: i < 3 ? "number" : "text" }));
    const lines = rows.map(({ depth, name, bytes, share, objects }) => {
      const place = newElement("td", { className: "path", textContent: FlameText.printable(name) });
      place.style.setProperty("--depth", Math.min(depth, References.MOST_INDENTED));
      const numbers = [formatValue(bytes, "bytes"), formatShare(share, 1), formatValue(objects, "count")];
      return newElement("tr", {}, ...numbers.map((textContent) => newElement("td", { className: "number", textContent })), place);
    });
    return newElement("table", {}, newElement("thead", {}, newElement("tr", {}, ...head)), newElement("tbody", {}, ...lines));
  }

  static MOST_INDENTED = 12;
}
