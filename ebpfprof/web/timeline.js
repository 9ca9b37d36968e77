"use strict";
// The windows of the history as bars; the mouse or the keyboard picks a time from them.

const SVG = "http://www.w3.org/2000/svg";
const TIMELINE_HEIGHT = 72;

class Timeline {
  /** `onpick(from_s, to_s)` is called with Unix times when a time was picked. */
  constructor(container, { onpick }) {
    this._onpick = onpick;
    this._windows = [];
    this._cursor = -1;
    this._anchor = -1;
    this._svg = document.createElementNS(SVG, "svg");
    this._svg.setAttribute("class", "timeline");
    this._svg.setAttribute("preserveAspectRatio", "none");
    this._svg.setAttribute("tabindex", "0");
    this._svg.setAttribute("role", "slider");
    this._svg.setAttribute("aria-label",
      "Timeline. Left and right move, with Shift they select more, Enter picks.");
    this._text = document.createElement("p");
    this._text.className = "timeline-text";
    this._text.setAttribute("aria-live", "polite");
    container.append(this._svg, this._text);
    this._svg.addEventListener("pointerdown", (event) => this._press(event));
    this._svg.addEventListener("pointermove", (event) => this._move(event));
    this._svg.addEventListener("pointerup", () => this._release());
    this._svg.addEventListener("pointercancel", () => this._drop());
    this._svg.addEventListener("keydown", (event) => this._key(event));
  }

  /** `windows` are the server's, with values of that `unit`; `window` and `base` were picked. Bars
      show what each window has in a second, or if `isMoment` its values as they are. */
  show(windows, { unit, isMoment, window, base }) {
    const time = this._cursor >= 0 && this._windows[this._cursor] ? this._windows[this._cursor].start_s : null;
    this._windows = windows;
    this._unit = unit;
    this._isMoment = isMoment;
    this._picked = window;
    this._base = base;
    if (time !== null && !this._drags) {
      this._cursor = windows.findIndex((each) => each.start_s === time);
      if (this._cursor < 0) this._anchor = -1;
    }
    this._draw();
  }

  _draw() {
    const windows = this._windows;
    const columns = Math.max(windows.length, 24);
    const first = columns - windows.length; // the newest stands at the right
    this._svg.setAttribute("viewBox", `0 0 ${columns} ${TIMELINE_HEIGHT}`);
    this._svg.replaceChildren();
    const size = ({ start_s, end_s, value }) => this._isMoment ? value : value / Math.max(end_s - start_s, 1e-3);
    const highest = Math.max(...windows.map(size), 1);
    const chosen = this._chosen();
    windows.forEach((each, index) => {
      const height = Math.max(1, (TIMELINE_HEIGHT - 6) * size(each) / highest);
      const back = this._rect(first + index, 0, TIMELINE_HEIGHT, "back");
      const bar = this._rect(first + index, TIMELINE_HEIGHT - height, height, "bar");
      for (const [name, time] of [["picked", this._picked], ["base", this._base]]) {
        if (time && each.end_s > time.from && each.start_s < time.to) back.classList.add(name);
      }
      if (chosen && index >= chosen[0] && index <= chosen[1]) back.classList.add("chosen");
      this._svg.append(back, bar);
    });
    const at = windows[this._cursor] || windows[windows.length - 1];
    this._svg.setAttribute("aria-valuemin", "0");
    this._svg.setAttribute("aria-valuemax", String(Math.max(windows.length - 1, 0)));
    this._svg.setAttribute("aria-valuenow", String(Math.max(this._cursor, 0)));
    const text = at ? this._textOf(at) : "Nothing was recorded yet.";
    this._svg.setAttribute("aria-valuetext", text);
    this._text.textContent = text;
  }

  _textOf({ start_s, end_s, value }) {
    const text = `${formatTime(start_s)}: ${formatValue(value, this._unit)}`;
    return this._isMoment ? text : `${text} in ${formatDuration((end_s - start_s) * 1e9)}`;
  }

  _rect(x, y, height, name) {
    const rect = document.createElementNS(SVG, "rect");
    rect.setAttribute("x", String(x + (name === "bar" ? 0.08 : 0)));
    rect.setAttribute("y", String(y));
    rect.setAttribute("width", name === "bar" ? "0.84" : "1");
    rect.setAttribute("height", String(height));
    rect.setAttribute("class", name);
    return rect;
  }

  _chosen() {
    if (this._cursor < 0 || this._anchor < 0) return null;
    return [Math.min(this._cursor, this._anchor), Math.max(this._cursor, this._anchor)];
  }

  _index(event) {
    const box = this._svg.getBoundingClientRect();
    const columns = Math.max(this._windows.length, 24);
    const column = Math.floor((event.clientX - box.left) / box.width * columns);
    const index = column - (columns - this._windows.length);
    return Math.max(0, Math.min(this._windows.length - 1, index));
  }

  _press(event) {
    if (!this._windows.length || event.button !== 0) return;
    this._drags = true;
    this._svg.setPointerCapture(event.pointerId);
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
