"use strict";
/* The rows of a trace on a canvas that scrolls: a group as the share of its goroutines in each
   state, a goroutine as its spans. TracePage decides what to draw. */

class TraceCanvas {
  static ROW = 22;
  static BAR = 16;
  static NAMES = 240; // the width of the names, CSS pixels
  static NARROW = 600; // where there is less room, names are above the lanes
  static LINE = 18; // the height of a name above its lane
  static AXIS = 22;
  static HATCH = 7; // between two lines of a pause

  constructor() {
    this.scroller = newElement("div", { className: "trace-scroller", tabIndex: 0 });
    this.scroller.setAttribute("role", "group");
    this.scroller.setAttribute("aria-label", "Timeline. Left and right move it, plus and minus zoom, up and down choose a row.");
    this.spacer = newElement("div", { className: "trace-spacer" });
    this.canvas = newElement("canvas", { className: "trace-canvas" });
    this.spacer.append(this.canvas);
    this.scroller.append(this.spacer);
    this.context = this.canvas.getContext("2d");
    this.rows = [];
    this.scroller.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  /* Shows rows of `data` from one time to another; `selected` is {goroutine, index} or null. */
  show(data, rows, from, to, selected) {
    Object.assign(this, { data, rows, from, to, selected });
    this.draw();
  }

  get isNarrow() {
    return this.scroller.clientWidth < TraceCanvas.NARROW;
  }

  /* The width of the column of names. */
  get names() {
    return this.isNarrow ? 0 : TraceCanvas.NAMES;
  }

  /* The height of a row, and of the name above its lane. */
  get rowHeight() {
    return TraceCanvas.ROW + this.lineHeight;
  }

  get lineHeight() {
    return this.isNarrow ? TraceCanvas.LINE : 0;
  }

  get width() {
    return Math.max(10, this.scroller.clientWidth - this.names);
  }

  xOf(time) {
    return this.names + ((time - this.from) / (this.to - this.from)) * this.width;
  }

  timeAt(x) {
    return this.from + ((x - this.names) / this.width) * (this.to - this.from);
  }

  topOf(index) {
    return TraceCanvas.AXIS + index * this.rowHeight - this.scroller.scrollTop;
  }

  /* The middle of the lane of a row. */
  middleOf(index) {
    return this.topOf(index) + this.lineHeight + TraceCanvas.ROW / 2;
  }

  /* The row and the time under the pointer; the time is null on a name. */
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    if (y < TraceCanvas.AXIS) return null;
    const index = Math.floor((y - TraceCanvas.AXIS + this.scroller.scrollTop) / this.rowHeight);
    if (!this.rows[index]) return null;
    const isName = x < this.names || y < this.topOf(index) + this.lineHeight;
    return { index, row: this.rows[index], time: isName ? null : this.timeAt(x) };
  }

  reveal(index) {
    const top = index * this.rowHeight, { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop || top > scrollTop + clientHeight - 2 * this.rowHeight - TraceCanvas.AXIS) {
      this.scroller.scrollTop = Math.max(0, top - clientHeight / 2);
    }
  }

  draw() {
    if (!this.data || this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.drawNow();
    });
  }

  drawNow() {
    this.spacer.style.height = `${TraceCanvas.AXIS + this.rows.length * this.rowHeight}px`;
    const { clientWidth: width, clientHeight: height } = this.scroller, scale = devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const style = getComputedStyle(document.documentElement);
    this.colours = this.data.states.map((state) => style.getPropertyValue(`--${state}`).trim());
    this.text = style.getPropertyValue("--text").trim();
    this.quiet = style.getPropertyValue("--quiet").trim();
    this.line = style.getPropertyValue("--line").trim();
    this.mark = style.getPropertyValue("--mark").trim();
    this.panel = style.getPropertyValue("--panel").trim();
    this.pause = style.getPropertyValue("--pause").trim();
    const draw = this.context;
    draw.setTransform(scale, 0, 0, scale, 0, 0);
    draw.clearRect(0, 0, width, height);
    draw.font = "12px system-ui, sans-serif";
    draw.textBaseline = "middle";
    draw.save();
    draw.beginPath();
    draw.rect(0, TraceCanvas.AXIS, width, height);
    draw.clip();
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / this.rowHeight));
    const last = Math.min(this.rows.length, first + Math.ceil(height / this.rowHeight) + 1);
    this.drawPauses(Math.min(height, this.topOf(this.rows.length)));
    for (let index = first; index < last; index++) this.drawRow(this.rows[index], this.topOf(index));
    this.drawWake();
    draw.restore();
    this.drawAxis(width);
  }

  drawRow(row, top) {
    const bar = top + this.lineHeight + (TraceCanvas.ROW - TraceCanvas.BAR) / 2, isMember = row.goroutine || row.thread;
    this.drawName(row, top, isMember);
    if (row.runtime) this.drawRuntime(row.runtime, bar);
    else if (row.heap) this.drawHeap(row.heap, bar);
    else if (isMember) this.drawSpans(isMember, bar);
    else this.drawGroup(row.group, bar);
  }

  drawName({ title }, top, isMember) {
    const draw = this.context, { isNarrow } = this, left = isMember ? 22 : 6, height = isNarrow ? TraceCanvas.LINE : TraceCanvas.ROW;
    const text = this.fitted(title, (isNarrow ? this.width : this.names) - left - 6);
    if (isNarrow) { // a pause may lie behind it
      draw.fillStyle = this.panel;
      draw.fillRect(0, top + 1, left + draw.measureText(text).width + 6, height - 1);
    }
    draw.fillStyle = isMember ? this.quiet : this.text;
    draw.fillText(text, left, top + height / 2 + (isNarrow ? 1 : 0));
  }

  /* As much of a text as there is room for, with an ellipsis. */
  fitted(text, room) {
    if (this.context.measureText(text).width <= room) return text;
    let fits = 0, fails = text.length;
    while (fails - fits > 1) {
      const letters = (fits + fails) >> 1;
      if (this.context.measureText(`${text.slice(0, letters)}…`).width <= room) fits = letters;
      else fails = letters;
    }
    return `${text.slice(0, fits)}…`;
  }

  /* Pauses of the recording, hatched from the axis down to a place; what is known of them is drawn above that. */
  drawPauses(bottom) {
    const draw = this.context, top = TraceCanvas.AXIS, right = this.names + this.width, height = bottom - top;
    const pauses = this.data.pausesBetween(this.from, this.to).map(([begin, end]) => {
      const left = Math.max(this.names, this.xOf(begin));
      return [left, Math.min(right, this.xOf(end)) - left];
    });
    draw.save();
    draw.strokeStyle = draw.fillStyle = this.pause;
    draw.lineWidth = 1;
    draw.beginPath();
    for (const [left, width] of pauses) {
      if (width < 3) { // no room for lines
        draw.fillRect(left, top, width, height);
        continue;
      }
      draw.fillRect(left, top, 1, height);
      draw.fillRect(left + width - 1, top, 1, height);
      draw.rect(left, top, width, height);
    }
    draw.clip();
    draw.beginPath();
    for (let x = this.names; x < right + height; x += TraceCanvas.HATCH) {
      draw.moveTo(x, top);
      draw.lineTo(x - height, bottom);
    }
    draw.stroke();
    draw.restore();
  }

  drawRuntime(parts, bar) {
    const draw = this.context;
    for (const [begin, end, what] of parts) {
      if (end < this.from || begin > this.to) continue;
      const left = Math.max(this.names, this.xOf(begin)), right = Math.min(this.names + this.width, this.xOf(end));
      draw.fillStyle = what.startsWith("world") ? this.mark : this.quiet;
      draw.fillRect(left, bar, Math.max(1, right - left), TraceCanvas.BAR);
    }
  }

  /* The heap as an area, its goal as a line above. */
  drawHeap({ times, live, goal }, bar) {
    const draw = this.context, most = goal.reduce((a, b) => Math.max(a, b), live.reduce((a, b) => Math.max(a, b), 1)), bottom = bar + TraceCanvas.BAR;
    const top = (bytes) => bottom - (bytes / most) * TraceCanvas.BAR;
    for (let i = 0; i < times.length; i++) {
      const end = i + 1 < times.length ? times[i + 1] : this.data.length_ns;
      if (end < this.from || times[i] > this.to) continue;
      const left = Math.max(this.names, this.xOf(times[i])), width = Math.min(this.names + this.width, this.xOf(end)) - left;
      this.fill(0, left, top(live[i]), width, bottom - top(live[i]));
      draw.fillStyle = this.mark;
      if (goal[i]) draw.fillRect(left, top(goal[i]), width, 1);
    }
  }

  /* Each pixel has what the group did most of its width; long spans have their names on them. */
  drawSpans(goroutine, bar) {
    const draw = this.context, pixel = (this.to - this.from) / this.width;
    let dense = null;
    goroutine.between(this.from, this.to, (i, begin, end) => {
      const left = this.xOf(begin), width = this.xOf(end) - left;
      if (end - begin < pixel) {
        dense ??= [];
        dense.push(i);
        return;
      }
      this.fill(goroutine.states[i], left, bar, width, TraceCanvas.BAR);
      const what = this.data.what(goroutine, i);
      if (width > 8 * what.length) {
        draw.fillStyle = this.text;
        draw.fillText(what, left + 4, bar + TraceCanvas.BAR / 2);
      }
      if (this.selected?.goroutine === goroutine && this.selected.index === i) this.outline(left, bar, width);
    });
    if (dense) this.drawDense([goroutine], bar);
    this.drawRegions(goroutine.regions, bar);
  }

  /* The regions of a goroutine as lines above its lane; of regions inside of each other the outer one. */
  drawRegions({ begins, ends }, bar) {
    const draw = this.context, right = this.names + this.width;
    draw.fillStyle = this.text;
    let drawn = 0;
    for (let i = 0; i < begins.length && begins[i] < this.to; i++) {
      if (ends[i] <= this.from) continue;
      const left = Math.max(this.names, this.xOf(begins[i])), end = Math.max(left + 1, Math.min(right, this.xOf(ends[i]) - 1));
      if (end <= drawn) continue; // inside of one that is drawn
      draw.fillRect(left, bar - 2, end - left, 1.5);
      drawn = end;
    }
  }

  /* The states of spans that are narrower than a pixel, in proportion. */
  drawDense(members, bar) {
    const pixels = Math.floor(this.width);
    const sums = this.data.density(members, this.from, this.to, pixels);
    for (let pixel = 0; pixel < pixels; pixel++) {
      const whole = sums.reduce((sum, each) => sum + each[pixel], 0);
      if (!whole || sums.some((each) => each[pixel] > members.length * 0.999)) continue;
      this.stack(sums, pixel, whole, bar);
    }
  }

  drawGroup(group, bar) {
    const pixels = Math.floor(this.width);
    const sums = this.data.density(group.members, this.from, this.to, pixels);
    for (let pixel = 0; pixel < pixels; pixel++) {
      const whole = sums.reduce((sum, each) => sum + each[pixel], 0);
      if (whole) this.stack(sums, pixel, Math.max(whole, group.members.length * 0.02), bar);
    }
  }

  stack(sums, pixel, whole, bar) {
    let bottom = bar + TraceCanvas.BAR;
    sums.forEach((each, state) => {
      if (!each[pixel]) return;
      const tall = Math.max(state === 2 ? 0 : 1, (each[pixel] / whole) * TraceCanvas.BAR);
      const height = Math.min(tall, bottom - bar);
      bottom -= height;
      this.fill(state, this.names + pixel, bottom, 1.2, height);
    });
  }

  fill(state, left, top, width, height) {
    this.context.fillStyle = this.colours[state];
    this.context.fillRect(left, top, width, height);
  }

  outline(left, bar, width) {
    const draw = this.context;
    draw.strokeStyle = this.text;
    draw.lineWidth = 2;
    draw.strokeRect(left + 1, bar, Math.max(2, width - 2), TraceCanvas.BAR);
  }

  /* A line from the goroutine that woke the selected one. */
  drawWake() {
    const { goroutine, index } = this.selected ?? {};
    if (!goroutine || !goroutine.by[index]) return;
    const rowOf = (goid) => this.rows.findIndex((row) => row.goroutine?.goid === goid);
    const from = rowOf(goroutine.by[index]), to = rowOf(goroutine.goid);
    if (from < 0 || to < 0) return;
    const draw = this.context, x = this.xOf(goroutine.begins[index]);
    draw.strokeStyle = draw.fillStyle = this.mark;
    draw.lineWidth = 1.5;
    draw.beginPath();
    draw.moveTo(x, this.middleOf(from));
    draw.lineTo(x, this.middleOf(to));
    draw.stroke();
    draw.beginPath();
    draw.arc(x, this.middleOf(to), 3, 0, 7);
    draw.fill();
  }

  drawAxis(width) {
    const draw = this.context, step = TraceCanvas.stepOf((this.to - this.from) / (this.width / 110));
    draw.fillStyle = this.quiet;
    draw.strokeStyle = this.line;
    draw.lineWidth = 1;
    for (let time = Math.ceil(this.from / step) * step; time <= this.to; time += step) {
      const x = Math.round(this.xOf(time)) + 0.5;
      draw.beginPath();
      draw.moveTo(x, TraceCanvas.AXIS - 5);
      draw.lineTo(x, TraceCanvas.AXIS);
      draw.stroke();
      if (x < width - 40) draw.fillText(FlameText.quantity(time, "nanoseconds"), x + 3, TraceCanvas.AXIS / 2);
    }
    draw.beginPath();
    draw.moveTo(0, TraceCanvas.AXIS - 0.5);
    draw.lineTo(width, TraceCanvas.AXIS - 0.5);
    draw.stroke();
  }

  /* 1, 2 or 5 times a power of ten. */
  static stepOf(least) {
    const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
  }
}
