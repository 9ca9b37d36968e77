"use strict";
/* A heatmap of waits: time to the right, length upwards, a stronger colour where more time was spent.
   A box drawn over it is a part of the profile (see HeatCells), which `onchange(part)` is called
   with; with null for all of it. */

class Heatmap {
  static LEVELS = 6;
  static STEP = Math.sqrt(10); // from a level to the next one
  static APPLY_AFTER_MS = 150;
  static TICKS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
  static LABEL_PX = 90;
  static TITLES = { mutex: "Delays of releases", runqueue: "Times in the run queue" }; // of others: their events
  static GAP_ROWS = 0.6; // between waits of unknown length and the others

  constructor(section, { onchange }) {
    Object.assign(this, { section, onchange, cursor: null, anchor: null });
    this.title = newElement("h2");
    this.text = newElement("p", { className: "heat-text", id: "heat-text" });
    this.all = newElement("button", { type: "button", textContent: "Show all" });
    this.all.addEventListener("click", () => this.choose(null));
    this.picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.picture.setAttribute("preserveAspectRatio", "none");
    this.picture.setAttribute("aria-hidden", "true");
    this.box = newElement("div", { className: "heat-box" });
    this.mark = newElement("div", { className: "heat-cursor", hidden: true });
    this.plot = newElement("div", { className: "heat-plot", tabIndex: 0, role: "application" }, this.picture, this.mark, this.box);
    this.plot.setAttribute("aria-roledescription", "heatmap");
    this.plot.setAttribute("aria-describedby", "heat-text");
    this.under = newElement("p", { className: "heat-under quiet" });
    this.under.setAttribute("aria-live", "polite");
    this.lengths = newElement("div", { className: "heat-lengths", ariaHidden: "true" });
    this.times = newElement("div", { className: "heat-times", ariaHidden: "true" });
    this.legend = newElement("p", { className: "heat-legend quiet" });
    this.notes = newElement("p", { className: "heat-notes quiet" });
    this.table = newElement("table");
    const table = newElement("details", { className: "heat-table" },
      newElement("summary", { textContent: "As a table" }), newElement("div", { className: "scroll" }, this.table));
    section.append(newElement("div", { className: "bar" }, this.title, this.all), this.text,
      newElement("div", { className: "heat-frame" }, this.lengths, this.plot, this.times), this.under, this.legend, this.notes, table);
    this.listen();
  }

  listen() {
    const { plot } = this;
    plot.addEventListener("keydown", (event) => this.key(event));
    plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) this.move(this.cursor ?? this.strongest()); });
    plot.addEventListener("blur", () => this.move(null));
    plot.addEventListener("pointerdown", (event) => this.press(event));
    plot.addEventListener("pointermove", (event) => this.drag(event));
    plot.addEventListener("pointerleave", () => { if (!this.isDragged) this.move(null); });
    plot.addEventListener("pointerup", () => this.release());
    plot.addEventListener("pointercancel", () => this.drop());
    new ResizeObserver(() => { if (this.grid?.most > 0) this.drawAxes(); }).observe(plot);
  }

  /* Shows a profile with slices. Returns whether there is anything to draw. */
  show(profile, { valueIndex, hideIdle, part }) {
    const { words, sample_types: types } = profile;
    const isNew = this.profile !== profile || this.valueIndex !== valueIndex || this.hideIdle !== hideIdle;
    Object.assign(this, { profile, valueIndex, hideIdle, part });
    this.unit = types[valueIndex].unit;
    this.events = words?.events ?? "events";
    if (isNew) {
      this.grid = HeatCells.grid(profile, valueIndex, hideIdle);
      if (this.cursor && !this.grid.cells[this.cursor.slice]?.[this.cursor.row]) this.cursor = null;
      if (this.grid.most > 0) this.draw();
    }
    if (!(this.grid.most > 0)) return false;
    if (!this.isDragged) {
      this.place(this.box, part);
      this.place(this.mark, this.cursor && this.between(this.cursor, this.cursor));
      this.tell();
    }
    this.all.hidden = !part;
    return true;
  }

  /* ---- Drawing ---- */

  /* The height of a picture in rows, and the top of a row in it. */
  get height() {
    return this.grid.rows.length + (this.grid.hasUnknown && this.grid.rows.length > 1 ? Heatmap.GAP_ROWS : 0);
  }

  topOf(row) {
    const isUnknown = this.grid.hasUnknown && row === 0;
    return isUnknown ? this.height - 1 : this.grid.rows.length - 1 - row;
  }

  get span() {
    const { times } = this.grid;
    return [times[0][0], times[times.length - 1][1]];
  }

  draw() {
    const { grid, picture } = this;
    const [begin, end] = this.span;
    picture.setAttribute("viewBox", `0 0 ${end - begin} ${this.height}`);
    const rects = [];
    grid.cells.forEach((column, slice) => {
      const [start, stop] = grid.times[slice];
      column.forEach(({ rate }, row) => {
        if (rate <= 0) return;
        const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        const places = { x: start - begin, width: stop - start, y: this.topOf(row), height: 1, class: `heat-${this.level(rate)}` };
        for (const [name, place] of Object.entries(places)) rect.setAttribute(name, place);
        rects.push(rect);
      });
    });
    picture.replaceChildren(...rects);
    const events = FlameText.printable(this.events);
    const keys = "Arrows move, Shift and arrows select, Enter selects a cell, Escape shows all.";
    const title = Heatmap.TITLES[this.profile.kind] ?? `${events.charAt(0).toUpperCase()}${events.slice(1)}`;
    this.title.textContent = `${title} by time and length`;
    this.plot.setAttribute("aria-label", `${this.title.textContent}. ${keys}`);
    this.drawAxes();
    this.drawLegend();
    this.drawNotes();
    this.drawTable();
  }

  /* From 1 to LEVELS. */
  level(rate) {
    const steps = Math.floor(Math.log(this.grid.most / rate) / Math.log(Heatmap.STEP) + 1e-9);
    return Math.max(1, Heatmap.LEVELS - steps);
  }

  drawAxes() {
    const { rows, hasUnknown } = this.grid;
    const [begin, end] = this.span;
    const known = hasUnknown ? rows.slice(1) : rows;
    const labels = known.length ? Heatmap.ticks(known[0][0], known[known.length - 1][1]).map((ns) => [this.topOfLength(ns), Heatmap.round(ns)]) : [];
    if (hasUnknown) labels.push([this.height - 0.5, "unknown"]);
    this.lengths.replaceChildren(...labels.map(([top, textContent]) => {
      const label = newElement("span", { textContent });
      label.style.top = `${(100 * top) / this.height}%`;
      return label;
    }));
    const least = ((end - begin) * Heatmap.LABEL_PX) / Math.max(this.plot.clientWidth, 2 * Heatmap.LABEL_PX);
    const step = Heatmap.TICKS_S.find((seconds) => seconds >= least) ?? least;
    const times = [];
    for (let time = Math.ceil(begin / step) * step; time <= end; time += step) times.push(time);
    this.times.replaceChildren(...times.map((time) => {
      const label = newElement("span", { textContent: formatTime(time) });
      const left = (100 * (time - begin)) / (end - begin);
      label.style.left = `${left}%`;
      label.className = time - begin < least / 2 ? "first" : end - time < least / 2 ? "last" : "";
      return label;
    }));
  }

  /* Where a length is, between the tops of rows. */
  topOfLength(ns) {
    const { rows, hasUnknown } = this.grid;
    const row = rows.findIndex(([least, most], index) => !(hasUnknown && index === 0) && ns >= least && ns < most);
    if (row < 0) return 0;
    const [least, most] = rows[row];
    return this.topOf(row) + 1 - (ns - least) / (most - least);
  }

  /* Round lengths: powers of ten, or more of them where the range is short. */
  static ticks(least, most) {
    const found = (parts) => {
      const all = [];
      for (let power = 1; power < most; power *= 10) all.push(...parts.map((part) => part * power));
      return all.filter((ns) => ns >= least && ns < most);
    };
    const tens = found([1]);
    return tens.length > 1 ? tens : found([1, 2, 5]);
  }

  static round(ns) {
    return FlameText.quantity(ns, "nanoseconds").replace(/\.0+ /, " ");
  }

  drawLegend() {
    const swatches = Array.from({ length: Heatmap.LEVELS }, (_, index) => newElement("i", { className: `heat-swatch heat-${index + 1}` }));
    const most = FlameText.quantity(this.grid.most, this.unit);
    this.legend.replaceChildren("less ", ...swatches, ` more: up to ${most}${this.unit === "count" ? ` ${this.events}` : ""} in a second. Each colour is about three times the one before.`);
  }

  drawNotes() {
    const { errors, incomplete, slices } = this.profile;
    const words = [`Each of the ${this.events} is where it ended.`];
    if (slices.times.length === 1) words.push("The recording was read only once: there is one column.");
    if (errors) words.push("These are estimates; the fewer are in a box, the larger is its error, which the table of operations shows.");
    if (incomplete) words.push(`Up to ${formatValue(incomplete.lost, "count")} events (${FlameText.share(incomplete.share, 1)}) were lost and are missing here.`);
    if (this.grid.hasUnknown) words.push("Of some the length is not known, such as those that a pause of the recording cut off.");
    this.notes.textContent = FlameText.printable(words.join(" "));
  }

  drawTable() {
    const { unit } = this;
    const heads = ["Length", ...(unit === "count" ? [] : ["Time"]), "Share", "Count", "Most at"];
    const rows = HeatCells.decades(this.grid).map(({ part, value, count, from }) => {
      const button = newElement("button", { type: "button", textContent: Heatmap.lengthWords(part) });
      button.addEventListener("click", () => this.choose(part));
      const cells = [...(unit === "count" ? [] : [FlameText.quantity(value, unit)]), FlameText.share(value, this.grid.total), formatValue(count, "count"), this.clock(from)];
      return newElement("tr", {}, newElement("td", {}, button), ...cells.map((textContent) => newElement("td", { className: "number", textContent })));
    });
    const head = newElement("tr", {}, ...heads.map((textContent) => newElement("th", { scope: "col", textContent })));
    this.table.replaceChildren(newElement("thead", {}, head), newElement("tbody", {}, ...rows));
  }

  /* ---- Words ---- */

  static lengthWords({ least, most }) {
    if (most <= 0) return "unknown length";
    const to = Heatmap.round(most);
    return least < 0 ? `unknown length, or below ${to}` : `${Heatmap.round(least)} to ${to}`;
  }

  /* A time of day, with tenths of a second where slices are short. */
  clock(seconds) {
    const { times } = this.grid;
    const isShort = times[times.length - 1][1] - times[0][0] < 0.99 * times.length;
    const rounded = isShort ? Math.round(10 * seconds) / 10 : seconds;
    return `${formatTime(rounded)}${isShort ? `.${Math.round(10 * rounded) % 10}` : ""}`;
  }

  words(part) {
    const { value, count } = HeatCells.sum(this.grid, part);
    const amount = this.unit === "count" ? "" : `${FlameText.quantity(value, this.unit)} (${FlameText.share(value, this.grid.total)}), `;
    return `${this.clock(part.from)} to ${this.clock(part.to)}, ${Heatmap.lengthWords(part)}: ${amount}${formatValue(count, "count")} ${this.events}`;
  }

  /* What is selected or stands out, and what is under the cursor or in the box that is drawn. */
  tell() {
    const { cursor, anchor, part } = this;
    const strongest = this.strongest();
    const text = part ? `Shown below: ${this.words(part)}` : `Most in a cell: ${this.words(this.between(strongest, strongest))}. Draw a box to see only what is in it.`;
    this.text.setAttribute("aria-live", part ? "polite" : "off"); // a recording that goes on changes it
    if (this.text.textContent !== text) this.text.textContent = text;
    this.under.textContent = cursor ? this.words(this.between(anchor ?? cursor, cursor)) : "";
  }

  /* ---- Places ---- */

  /* The cell with the strongest colour. */
  strongest() {
    const { cells, most } = this.grid;
    const slice = cells.findIndex((column) => column.some(({ rate }) => rate === most));
    return { slice, row: cells[slice].findIndex(({ rate }) => rate === most) };
  }

  /* The part from one cell to another. */
  between(one, other) {
    const { times, rows } = this.grid;
    const [first, last] = [Math.min(one.slice, other.slice), Math.max(one.slice, other.slice)];
    const [low, high] = [Math.min(one.row, other.row), Math.max(one.row, other.row)];
    return { from: times[first][0], to: times[last][1], least: rows[low][0], most: rows[high][1] };
  }

  /* Puts a box over a part; null hides it. */
  place(element, part) {
    const { rows } = this.grid;
    const inside = part ? rows.map((_, row) => row).filter((row) => rows[row][0] < part.most && rows[row][1] > part.least) : [];
    element.hidden = !inside.length;
    if (element.hidden) return;
    const [begin, end] = this.span;
    const part01 = (time) => Math.min(1, Math.max(0, (time - begin) / (end - begin)));
    const tops = inside.map((row) => this.topOf(row));
    const [top, bottom] = [Math.min(...tops), Math.max(...tops) + 1];
    element.style.left = `${100 * part01(part.from)}%`;
    element.style.width = `${100 * (part01(part.to) - part01(part.from))}%`;
    element.style.top = `${(100 * top) / this.height}%`;
    element.style.height = `${(100 * (bottom - top)) / this.height}%`;
  }

  /* The cell at the pointer, or the nearest one. */
  cellAt({ clientX, clientY }) {
    const { times, rows } = this.grid;
    const frame = this.picture.getBoundingClientRect();
    const [begin, end] = this.span;
    const time = begin + ((clientX - frame.left) / frame.width) * (end - begin);
    const top = ((clientY - frame.top) / frame.height) * this.height;
    const nearest = (count, distance) => Array.from({ length: count }, (_, index) => index).reduce((best, index) => (distance(index) < distance(best) ? index : best), 0);
    return {
      slice: nearest(times.length, (index) => Math.abs(time - (times[index][0] + times[index][1]) / 2) - (times[index][1] - times[index][0]) / 2),
      row: nearest(rows.length, (index) => Math.abs(top - this.topOf(index) - 0.5)),
    };
  }

  /* ---- What the user does ---- */

  move(cell) {
    this.cursor = cell;
    if (!this.grid?.most) return;
    this.place(this.mark, cell && this.between(cell, cell));
    this.tell();
  }

  choose(part) {
    this.anchor = null;
    clearTimeout(this.applying);
    this.onchange(part);
  }

  press(event) {
    if (event.button !== 0) return;
    this.plot.setPointerCapture(event.pointerId);
    this.isDragged = true;
    this.anchor = this.cellAt(event);
    this.drag(event);
  }

  drag(event) {
    const cell = this.cellAt(event);
    if (this.isDragged) this.place(this.box, this.between(this.anchor, cell));
    this.move(cell);
  }

  release() {
    if (!this.isDragged) return;
    const part = this.between(this.anchor, this.cursor);
    this.isDragged = false;
    const { value, count } = HeatCells.sum(this.grid, part);
    this.choose(value || count ? part : null);
  }

  drop() {
    this.isDragged = false;
    this.anchor = null;
    this.place(this.box, this.part);
    this.tell();
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], PageUp: [0, 4], PageDown: [0, -4], Home: [-Infinity, 0], End: [Infinity, 0] };
    const { times, rows } = this.grid;
    if (event.key in moves) {
      const now = this.cursor ?? this.strongest();
      const within = (value, most) => Math.min(Math.max(value, 0), most);
      const [right, up] = moves[event.key];
      const next = { slice: within(now.slice + right, times.length - 1), row: within(now.row + up, rows.length - 1) };
      this.anchor = event.shiftKey ? this.anchor ?? now : null;
      if (this.anchor) {
        const part = this.between(this.anchor, next);
        this.place(this.box, part);
        clearTimeout(this.applying);
        this.applying = setTimeout(() => this.onchange(part), Heatmap.APPLY_AFTER_MS);
      }
      this.move(next);
    } else if (event.key === "Enter" || event.key === " ") {
      this.cursor ??= this.strongest();
      this.choose(this.between(this.cursor, this.cursor));
    } else if (event.key === "Escape") {
      this.choose(null);
    } else {
      return;
    }
    event.preventDefault();
  }
}
