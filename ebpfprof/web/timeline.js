"use strict";
// The steps of the history over time, drawn to scale; the mouse or the keyboard picks a time from
// them. uPlot draws the axes; times without a recording stay empty.

const TIMELINE_HEIGHT = 116;
const TIMELINE_LEAST_S = 60; // a shorter history fills a part of the axis
const TIMELINE_AXIS_PX = 72;
const TIMELINE_LEAST_AXIS_PX = 44;
const TIMELINE_TICKS_PX = 20; // ticks and gaps beside a label
// The distances that ticks may have: 1, 2, 5, 10, ... of most units, powers of 2 of bytes.
const TIMELINE_STEPS = {
  bytes: Array.from({ length: 60 }, (_, power) => 2 ** (power - 10)),
  others: Array.from({ length: 90 }, (_, n) => Number(`${[1, 2, 5][n % 3]}e${Math.floor(n / 3) - 9}`)),
};

class Timeline {
  /** `onpick(from_s, to_s)` is called with Unix times when a time was picked. */
  constructor(container, { onpick }) {
    this._onpick = onpick;
    this._windows = [];
    this._cursor = -1;
    this._anchor = -1;
    this._unit = "nanoseconds";
    this._box = document.createElement("div");
    this._box.className = "timeline";
    this._box.tabIndex = 0;
    this._box.setAttribute("role", "slider");
    this._box.setAttribute("aria-label",
      "Timeline. Left and right move, with Shift they select more, Enter picks.");
    this._text = document.createElement("p");
    this._text.className = "timeline-text";
    this._text.setAttribute("aria-live", "polite");
    this._legend = document.createElement("p");
    this._legend.className = "timeline-legend";
    const words = document.createElement("div");
    words.className = "timeline-words";
    words.append(this._text, this._legend);
    container.append(this._box, words);
    this._box.addEventListener("keydown", (event) => this._key(event));
    new ResizeObserver(() => this._resize()).observe(this._box);
  }

  /** `windows` are the server's, with values of that `unit`; `window` and `base` were picked. Bars
      show what each window has in a second, or if `isMoment` its values as they are. Nanoseconds in
      a nanosecond are `atATime`: how many goroutines waited. */
  show(windows, { unit, isMoment, atATime = "", window, base }) {
    const time = this._cursor >= 0 && this._windows[this._cursor] ? this._windows[this._cursor].start_s : null;
    this._windows = windows;
    this._unit = unit;
    this._isMoment = isMoment;
    this._atATime = !isMoment && unit === "nanoseconds" ? atATime : "";
    this._picked = window;
    this._base = base;
    if (time !== null && !this._drags) {
      this._cursor = windows.findIndex((each) => each.start_s === time);
      if (this._cursor < 0) this._anchor = -1;
    }
    this._draw();
  }

  /** Where a step is, left and right, in pixels of the window: for tests and for touch. */
  placeOf(index) {
    const { start_s, end_s } = this._windows[index];
    const left = this._plot.over.getBoundingClientRect().left;
    return [start_s, end_s].map((time) => left + this._plot.valToPos(time, "x"));
  }

  _resize() {
    const width = this._box.clientWidth;
    if (width && !this._plot) this._draw();
    else if (width && width !== this._plot.width) this._plot.setSize({ width, height: TIMELINE_HEIGHT });
  }

  /** The amount of a step: in a second, or as it is. */
  _size({ start_s, end_s, value }) {
    if (this._isMoment) return value;
    return value / Math.max(end_s - start_s, 1e-3) / (this._atATime ? 1e9 : 1);
  }

  _range() {
    const windows = this._windows;
    const end = windows.length ? windows[windows.length - 1].end_s : Date.now() / 1000;
    const start = windows.length ? windows[0].start_s : end;
    return [Math.min(start, end - TIMELINE_LEAST_S), end];
  }

  _draw() {
    if (!this._plot && this._box.clientWidth) this._plot = this._made();
    const windows = this._windows;
    if (this._plot) this._plot.setData([windows.map((each) => each.start_s), windows.map((each) => this._size(each))]);
    const at = windows[this._cursor] || windows[windows.length - 1];
    this._box.setAttribute("aria-valuemin", "0");
    this._box.setAttribute("aria-valuemax", String(Math.max(windows.length - 1, 0)));
    this._box.setAttribute("aria-valuenow", String(Math.max(this._cursor, 0)));
    this._box.setAttribute("aria-valuetext", at ? this._textOf(at) : "No step has ended yet.");
    this._text.textContent = at ? this._textOf(at) : "";
    this._drawLegend();
  }

  _drawLegend() {
    const per = this._atATime || (this._isMoment ? "at the end of a step" : "per second");
    const hasGaps = this._windows.some(({ start_s }, n) => n > 0 && start_s - this._windows[n - 1].end_s > 1);
    const isThere = { picked: this._picked, base: this._base, empty: hasGaps, step: true };
    const entries = [["step", per], ["picked", "shown below"], ["base", "compared with"], ["empty", "not recorded"]];
    const shown = entries.filter(([name]) => isThere[name]);
    const wanted = JSON.stringify(shown);
    if (this._legend.dataset.shown === wanted) return;
    this._legend.dataset.shown = wanted;
    this._legend.replaceChildren(...shown.map(([name, words]) => {
      const colour = document.createElement("i");
      colour.className = `swatch ${name}`;
      const entry = document.createElement("span");
      entry.append(colour, words);
      return entry;
    }));
  }

  _made() {
    const colour = (name) => () => getComputedStyle(this._box).getPropertyValue(name).trim();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const plot = new uPlot({
      width: this._box.clientWidth,
      height: TIMELINE_HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      select: { show: false },
      padding: [8, 32, 0, 0], // room for half of the last time
      scales: {
        x: { time: true, range: () => this._range() },
        y: { range: (_, __, most) => [0, most > 0 ? most * 1.05 : 1] },
      },
      axes: [
        { ...axis, size: 30, space: TIMELINE_AXIS_PX, values: (_, times, __, ___, step) => times.map((time) => formatTime(time).slice(0, step < 60 ? 8 : 5)) },
        { ...axis, size: (made, values) => this._axisWidth(made, values), incrs: () => TIMELINE_STEPS[this._unit] || TIMELINE_STEPS.others, values: (_, values) => values.map((value) => this._amount(value)) },
      ],
      series: [{}, { fill: colour("--accent"), width: 0, points: { show: false }, paths: (made) => this._bars(made) }],
      hooks: { drawClear: [(made) => this._drawMarks(made)] },
    }, [[], []], this._box);
    plot.over.addEventListener("pointerdown", (event) => this._press(event));
    plot.over.addEventListener("pointermove", (event) => this._move(event));
    plot.over.addEventListener("pointerup", () => this._release());
    plot.over.addEventListener("pointercancel", () => this._drop());
    return plot;
  }

  /** Room for the longest of these labels: a part of a number would be another number. */
  _axisWidth({ ctx, axes }, values) {
    if (!values) return TIMELINE_AXIS_PX;
    ctx.save();
    ctx.font = axes[1].font[0];
    const widest = Math.max(0, ...values.map((text) => ctx.measureText(text).width)) / devicePixelRatio;
    ctx.restore();
    return Math.max(TIMELINE_LEAST_AXIS_PX, Math.ceil(widest) + TIMELINE_TICKS_PX);
  }

  _amount(value) {
    if (this._atATime) return value < 1000 ? String(Number(value.toPrecision(6))) : formatValue(value, "count");
    return value ? `${formatValue(value, this._unit)}${this._isMoment ? "" : "/s"}` : "0";
  }

  /** A bar for each step, as wide as the step is long; at least a pixel high. */
  _bars(plot) {
    const fill = new Path2D();
    const ground = plot.valToPos(0, "y", true);
    for (const each of this._windows) {
      const [left, right] = this._edges(plot, each);
      const top = Math.min(plot.valToPos(this._size(each), "y", true), ground - 1);
      fill.rect(left, top, right - left, ground - top);
    }
    return { fill };
  }

  /** The left and right edge of a step on the canvas, with a gap to the next one where there is room. */
  _edges(plot, { start_s, end_s }) {
    const [left, right] = [plot.valToPos(start_s, "x", true), plot.valToPos(end_s, "x", true)];
    const gap = right - left > 4 ? 1 : 0;
    return [left, Math.max(right - gap, left + 1)];
  }

  /** Mark behind the bars what was picked, and what is being picked. */
  _drawMarks(plot) {
    const chosen = this._chosen();
    const style = getComputedStyle(this._box);
    const { top, height } = plot.bbox;
    this._windows.forEach((each, index) => {
      const isIn = (time) => time && each.end_s > time.from && each.start_s < time.to;
      const isChosen = chosen && index >= chosen[0] && index <= chosen[1];
      const name = isIn(this._base) ? "--base" : isChosen || isIn(this._picked) ? "--picked" : "";
      if (!name) return;
      plot.ctx.fillStyle = style.getPropertyValue(name).trim();
      const [left, right] = this._edges(plot, each);
      plot.ctx.fillRect(left, top, right - left + 1, height);
    });
  }

  _textOf(step) {
    const { start_s, end_s, value } = step;
    if (this._atATime) {
      const words = value ? `${formatNumber(this._size(step))} ${this._atATime}` : "nothing recorded";
      return `${formatTime(start_s)}: ${words}`;
    }
    const text = `${formatTime(start_s)}: ${formatValue(value, this._unit)}`;
    return this._isMoment ? text : `${text} in ${formatDuration((end_s - start_s) * 1e9)}`;
  }

  _chosen() {
    if (this._cursor < 0 || this._anchor < 0) return null;
    return [Math.min(this._cursor, this._anchor), Math.max(this._cursor, this._anchor)];
  }

  /** The step at the pointer, or the one that is nearest to it. */
  _index(event) {
    const time = this._plot.posToVal(event.clientX - this._plot.over.getBoundingClientRect().left, "x");
    const distance = ({ start_s, end_s }) => Math.max(start_s - time, time - end_s, 0);
    let nearest = 0;
    this._windows.forEach((each, index) => {
      if (distance(each) < distance(this._windows[nearest])) nearest = index;
    });
    return nearest;
  }

  _press(event) {
    if (!this._windows.length || event.button !== 0) return;
    this._drags = true;
    this._plot.over.setPointerCapture(event.pointerId);
    this._cursor = this._anchor = this._index(event);
    this._draw();
  }

  _move(event) {
    if (!this._windows.length) return;
    if (!this._drags) {
      this._text.textContent = this._textOf(this._windows[this._index(event)]);
      return;
    }
    this._cursor = this._index(event);
    this._draw();
  }

  _release() {
    if (!this._drags) return;
    this._drags = false;
    this._pick();
  }

  _drop() {
    this._drags = false;
    this._cursor = this._anchor = -1;
    this._draw();
  }

  _pick() {
    const chosen = this._chosen();
    if (!chosen) return;
    const [from, to] = chosen.map((index) => this._windows[index]);
    this._anchor = -1;
    this._onpick(from.start_s, to.end_s);
  }

  _key(event) {
    const last = this._windows.length - 1;
    if (last < 0) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -last - 1, End: last + 1 };
    if (event.key in steps) {
      if (this._cursor < 0) this._cursor = last;
      if (this._anchor < 0 || !event.shiftKey) this._anchor = this._cursor;
      this._cursor = Math.max(0, Math.min(last, this._cursor + steps[event.key]));
      if (!event.shiftKey) this._anchor = this._cursor;
      this._draw();
    } else if (event.key === "Enter" || event.key === " ") {
      if (this._cursor < 0) this._cursor = last;
      if (this._anchor < 0) this._anchor = this._cursor;
      this._pick();
    } else {
      return;
    }
    event.preventDefault();
  }
}
