"use strict";
// What a process used and did in the last minutes: strips over one axis of time with one cursor.
// A strip is a row of STRIPS: another one needs no other change here.

const STRIPS_FOR_S = 600;
const STRIPS_LEAST_S = 60; // a shorter history fills a part of the axis
const STRIP_PX = 52;
const STRIP_TICK_PX = 84; // the least room for a time of day
const STRIP_TICKS_S = [10, 15, 30, 60, 120, 300];
const STRIP_LIMIT = 2; // times what is used: a limit further away would flatten the strip

const cpus = (value) => `${FlameText.threeDigits(value)} CPUs`;
const bytes = (value) => FlameText.quantity(value, "bytes");
const rounded = (value) => formatValue(Number(value.toPrecision(2)), "count");
const partOf = (share) => FlameText.share(share, 1);

// Each series: its name, its value of a moment (null if unknown), its text, and how it is drawn:
// "area" (stacked on the areas before it), "line", "bars", or "limit" (a line that does not stretch
// the strip). `isQuiet`: its name is left out while it is 0. `unit` is the text of the scale.
const STRIPS = [
  {
    name: "goroutines", title: "Goroutines", unit: (value) => formatValue(value, "count"),
    series: [
      ["running", "running"], ["runnable", "runnable"], ["syscall", "in system calls"], ["lock", "wait for locks"],
      ["channel", "wait for channels"], ["network", "wait for the network"], ["other", "wait otherwise"],
    ].map(([state, name]) => ({
      name, look: state, drawn: "area", isQuiet: true, of: ({ goroutines }) => goroutines?.[state] ?? null, text: (value) => formatValue(value, "count"),
    })),
  },
  {
    name: "requests", title: "Requests", unit: (value) => `${rounded(value)}/s`,
    series: [
      { name: "a second or more (HTTP/1)", look: "requests", drawn: "bars", of: ({ requests }) => requests ?? null, text: (value) => rounded(value) },
    ],
  },
  {
    name: "cpu", title: "CPU", unit: cpus,
    series: [
      { name: "used", look: "cpu", drawn: "area", of: ({ cpu }) => cpu.used, text: cpus },
      { name: "of the time throttled", look: "throttled", drawn: "part", of: ({ cpu }) => cpu.throttled, text: partOf },
      { name: "quota", look: "quota", drawn: "limit", of: ({ cpu }) => cpu.quota, text: cpus },
      { name: "GOMAXPROCS", look: "gomaxprocs", drawn: "limit", of: ({ cpu }) => cpu.gomaxprocs, text: (value) => formatValue(value, "count") },
    ],
  },
  {
    name: "memory", title: "Memory", unit: bytes,
    series: [
      { name: "heap", look: "heap", drawn: "area", of: ({ memory }) => memory.heap_bytes, text: bytes },
      { name: "goal", look: "goal", drawn: "line", of: ({ memory }) => memory.goal_bytes, text: bytes },
      { name: "resident", look: "resident", drawn: "line", of: ({ memory }) => memory.resident_bytes, text: bytes },
      { name: "GOMEMLIMIT", look: "memlimit", drawn: "limit", of: ({ memory }) => memory.gomemlimit_bytes, text: bytes },
      { name: "container", look: "group", drawn: "line", of: ({ memory }) => memory.group_used_bytes, text: bytes },
      { name: "its limit", look: "grouplimit", drawn: "limit", of: ({ memory }) => memory.group_limit_bytes, text: bytes },
    ],
  },
  {
    name: "collections", title: "Garbage collections", unit: (value) => `${FlameText.threeDigits(value)}/s`,
    series: [
      { name: "a second", look: "collections", drawn: "bars", of: ({ collections, seconds }) => (collections ? collections.count / seconds : null), text: FlameText.threeDigits },
      { name: "of the time stopped", look: "stopped", drawn: "none", of: ({ collections }) => collections?.stopped ?? null, text: partOf },
    ],
  },
];

/** The numbers that are drawn, without a page. */
const StripNumbers = {
  /** The times of the axis, [from, to]. */
  range(points) {
    const to = points.at(-1).time_s;
    return [Math.min(points[0].time_s, to - STRIPS_LEAST_S), to];
  },

  /** The moments in pieces that were sampled without a gap, as indices. */
  pieces(points) {
    const pieces = [];
    points.forEach(({ seconds }, index) => {
      if (index > 0 && seconds !== null) pieces.at(-1).push(index);
      else pieces.push([index]);
    });
    return pieces;
  },

  /** For each area of a strip, [bottom, top] at each moment: stacked; null where nothing is known. */
  stacked(strip, points) {
    const sums = points.map(() => 0);
    return strip.series.filter(({ drawn }) => drawn === "area").map((series) => points.map((point, index) => {
      const value = series.of(point);
      if (value === null) return null;
      const bottom = sums[index];
      sums[index] += value;
      return [bottom, sums[index]];
    }));
  },

  /** The highest value of the scale; limits count only if they are near. */
  most(strip, points) {
    const highest = (drawn) => Math.max(0, ...strip.series.filter((each) => each.drawn === drawn).flatMap((series) => points.map((point) => series.of(point) ?? 0)));
    const areas = StripNumbers.stacked(strip, points).flat();
    const used = Math.max(0, ...areas.map((area) => area?.[1] ?? 0), highest("line"), highest("bars"));
    const limits = strip.series.filter(({ drawn }) => drawn === "limit").map((series) => Math.max(0, ...points.map((point) => series.of(point) ?? 0)));
    return Math.max(used, ...limits.filter((limit) => limit <= STRIP_LIMIT * used)) || 1;
  },

  /** Give each moment of the time of these windows their requests a second. */
  addRequests(points, windows) {
    for (const { start_s, end_s, per_second } of windows) {
      for (const point of points) if (point.time_s > start_s && point.time_s <= end_s) point.requests = per_second;
    }
  },

  /** The moment that is nearest to a time. */
  nearest(points, timeS) {
    let nearest = 0;
    points.forEach(({ time_s }, index) => {
      if (Math.abs(time_s - timeS) < Math.abs(points[nearest].time_s - timeS)) nearest = index;
    });
    return nearest;
  },

  /** Round times of day between two times, at most `count`. */
  ticks([from, to], count) {
    const step = STRIP_TICKS_S.find((each) => (to - from) / each <= count) ?? STRIP_TICKS_S.at(-1);
    const ticks = [];
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) ticks.push(time);
    return ticks;
  },

  /** [series, its text] of those that a moment has. */
  texts(strip, point) {
    return strip.series.map((series) => [series, series.of(point)])
      .filter(([{ isQuiet }, value]) => value !== null && !(isQuiet && !value))
      .map(([series, value]) => [series, series.text(value)]);
  },
};

class Strips {
  constructor(section, api) {
    this._section = section;
    this._api = api;
    this._pid = null;
    this._points = [];
    this._timeS = null; // of the cursor; null: the last moment
    this._when = section.querySelector("[data-when]");
    this._problem = section.querySelector("[data-problem]");
    this._box = section.querySelector("[data-strips]");
    this._rows = new Map(STRIPS.map((strip) => [strip, this._row(strip)]));
    this._axis = newElement("div", { className: "strip-axis", tabIndex: 0, role: "slider", ariaValueMin: "0" });
    this._axis.setAttribute("aria-label", "Time. Left and right move the cursor, Escape shows the last moment.");
    this._line = newElement("div", { className: "strip-cursor", hidden: true });
    this._box.append(...[...this._rows.values()].map(({ row }) => row), this._axis, this._line);
    this._box.addEventListener("keydown", (event) => this._key(event));
    this._box.addEventListener("pointermove", (event) => this._point(event));
    this._box.addEventListener("pointerdown", (event) => this._point(event));
    this._box.addEventListener("pointerleave", () => this._move(null));
    new ResizeObserver(() => this._draw()).observe(this._box);
  }

  /** Ask for what is new of a process, and show it; null: show nothing. */
  async show(target) {
    if (!target) {
      this._section.hidden = true;
      return;
    }
    if (target.pid !== this._pid) {
      Object.assign(this, { _pid: target.pid, _points: [], _timeS: null });
      this._section.hidden = true;
    }
    const found = await this._api.series(target.pid, this._points.at(-1)?.time_s ?? 0);
    if (target.pid !== this._pid) return;
    const known = this._points.at(-1)?.time_s ?? 0;
    this._points.push(...found.points.filter(({ time_s }) => time_s > known));
    StripNumbers.addRequests(this._points, found.requests);
    const oldest = (this._points.at(-1)?.time_s ?? 0) - STRIPS_FOR_S;
    this._points = this._points.filter(({ time_s }) => time_s >= oldest);
    this._problem.textContent = FlameText.printable(found.problem);
    this._section.hidden = !this._points.length && !found.problem;
    this._draw();
  }

  _row(strip) {
    const plot = StripsSvg.element("svg", { class: "strip-plot", role: "img" });
    const values = newElement("ul", { className: "strip-values" });
    const row = newElement("div", { className: "strip" },
      newElement("div", { className: "strip-words" }, newElement("h3", { textContent: strip.title }), values), plot);
    row.dataset.strip = strip.name;
    return { row, values, plot };
  }

  get _index() {
    return this._timeS === null ? this._points.length - 1 : StripNumbers.nearest(this._points, this._timeS);
  }

  _draw() {
    const points = this._points;
    if (!points.length || !this._box.clientWidth) return;
    const range = StripNumbers.range(points);
    for (const [strip, { row, plot }] of this._rows) {
      row.hidden = !points.some((point) => strip.series.some((series) => series.of(point) !== null));
      if (!row.hidden) StripsSvg.draw(plot, strip, points, range);
    }
    const width = this._plotPlace().width;
    const share = (time) => (time - range[0]) / (range[1] - range[0]);
    const ticks = StripNumbers.ticks(range, Math.max(2, Math.floor(width / STRIP_TICK_PX)));
    this._axis.replaceChildren(...ticks.filter((time) => share(time) * width > 26 && (1 - share(time)) * width > 26).map((time) => {
      const tick = newElement("span", { textContent: formatTime(time), ariaHidden: "true" });
      tick.style.left = `${100 * share(time)}%`;
      return tick;
    }));
    this._drawCursor();
  }

  /** The cursor, and what was then, in words. */
  _drawCursor() {
    const points = this._points;
    const point = points[this._index];
    const said = [];
    for (const [strip, { row, values, plot }] of this._rows) {
      if (row.hidden) continue;
      const texts = StripNumbers.texts(strip, point);
      values.replaceChildren(...texts.map(([{ name, look }, text]) =>
        newElement("li", {}, StripsSvg.swatch(look), newElement("b", { textContent: text }), ` ${name}`)));
      const words = texts.map(([{ name }, text]) => `${text} ${name}`).join(", ") || "not known";
      plot.setAttribute("aria-label", `${strip.title}: ${words}`);
      said.push(`${strip.title}: ${words}`);
    }
    const when = formatTime(point.time_s);
    this._when.textContent = `at ${when}`;
    const [from, to] = StripNumbers.range(points);
    const { left, width } = this._plotPlace();
    this._line.hidden = this._timeS === null;
    this._line.style.left = `${left + (width * (point.time_s - from)) / (to - from)}px`;
    this._axis.setAttribute("aria-valuemax", String(points.length - 1));
    this._axis.setAttribute("aria-valuenow", String(this._index));
    this._axis.setAttribute("aria-valuetext", `${when}. ${said.join(". ")}.`);
  }

  /** Where the plots are in the box: they are all below each other. */
  _plotPlace() {
    const { left, width } = this._axis.getBoundingClientRect();
    return { left: left - this._box.getBoundingClientRect().left, width };
  }

  _point(event) {
    if (!this._points.length) return;
    const { left, width } = this._plotPlace();
    const [from, to] = StripNumbers.range(this._points);
    const share = (event.clientX - this._box.getBoundingClientRect().left - left) / width;
    if (share >= 0) this._move(from + share * (to - from));
  }

  /** Move the cursor to the moment that is nearest to a time; null: to the last one, and stay there. */
  _move(timeS) {
    if (!this._points.length) return;
    this._timeS = timeS === null ? null : this._points[StripNumbers.nearest(this._points, timeS)].time_s;
    this._drawCursor();
  }

  _key(event) {
    const last = this._points.length - 1;
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -last, End: last };
    if (last < 0 || isTyping(event)) return;
    if (event.key in steps) {
      const index = Math.max(0, Math.min(last, this._index + steps[event.key]));
      this._move(this._points[index].time_s);
    } else if (event.key === "Escape") {
      this._move(null);
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** Draws a strip. Areas and lines differ in pattern and dashes, too, not in color alone. */
const StripsSvg = {
  element(tag, attributes = {}) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  },

  /** A sample of how a series looks. */
  swatch(look) {
    const swatch = StripsSvg.element("svg", { class: "strip-swatch", viewBox: "0 0 14 10", "aria-hidden": "true" });
    const isLine = STRIPS.some(({ series }) => series.some((each) => each.look === look && ["line", "limit"].includes(each.drawn)));
    if (isLine) swatch.append(StripsSvg.element("path", { d: "M0 5H14", class: `strip-line look-${look}` }));
    else swatch.append(...StripsSvg.filled("M0 0H14V10H0Z", look));
    return swatch;
  },

  /** A shape in its color, with its pattern above. */
  filled(d, look) {
    const shapes = [StripsSvg.element("path", { d, class: `strip-area look-${look}` })];
    if (document.getElementById(`pattern-${look}`)) shapes.push(StripsSvg.element("path", { d, fill: `url(#pattern-${look})` }));
    return shapes;
  },

  draw(plot, strip, points, [from, to]) {
    const width = plot.clientWidth;
    plot.setAttribute("viewBox", `0 0 ${width} ${STRIP_PX}`);
    const most = StripNumbers.most(strip, points);
    const x = (index) => Math.round(10 * (width * (points[index].time_s - from)) / (to - from)) / 10;
    const y = (value) => Math.round(10 * (STRIP_PX - 1 - ((STRIP_PX - 4) * Math.min(value, most)) / most)) / 10;
    const pieces = StripNumbers.pieces(points);
    /** The runs of moments without a gap that have a value. */
    const runs = (isKnown) => pieces.flatMap((piece) => {
      const found = [[]];
      for (const index of piece) {
        if (isKnown(index)) found.at(-1).push(index);
        else found.push([]);
      }
      return found.filter((run) => run.length);
    });
    const shapes = [StripsSvg.element("path", { d: `M0 ${y(0)}H${width}`, class: "strip-ground" })];
    const stacks = StripNumbers.stacked(strip, points);
    strip.series.filter(({ drawn }) => drawn === "area").forEach(({ look }, number) => {
      const area = stacks[number];
      if (!area.some((each) => each && each[1] > each[0])) return;
      const d = runs((index) => area[index]).map((run) => {
        const along = (side, indices) => indices.map((index) => `${x(index)} ${y(area[index][side])}`).join("L");
        const last = run.length === 1 ? `L${x(run[0]) + 1} ${y(area[run[0]][1])}` : "";
        return `M${along(1, run)}${last}L${along(0, [...run].reverse())}Z`;
      }).join("");
      shapes.push(...StripsSvg.filled(d, look));
    });
    for (const { of, look, drawn } of strip.series) {
      const values = points.map(of);
      if (drawn === "bars" || drawn === "part") {
        // Each is of the time since the moment before. A part of the time hangs from the top.
        const d = pieces.flatMap((piece) => piece.slice(1)).filter((index) => values[index]).map((index) => {
          const edge = drawn === "bars" ? y(values[index]) : (STRIP_PX - 4) * values[index];
          return `M${x(index - 1)} ${drawn === "bars" ? y(0) : 0}V${edge}H${Math.max(x(index) - 0.5, x(index - 1) + 0.5)}V${drawn === "bars" ? y(0) : 0}Z`;
        }).join("");
        if (d) shapes.push(...StripsSvg.filled(d, look));
      } else if (drawn === "line" || drawn === "limit") {
        const isShown = (index) => values[index] !== null && values[index] <= most;
        const d = runs(isShown).map((run) => `M${run.map((index) => `${x(index)} ${y(values[index])}`).join("L")}`).join("");
        if (d) shapes.push(StripsSvg.element("path", { d, class: `strip-line look-${look}` }));
      }
    }
    const scale = StripsSvg.element("text", { x: 4, y: 12, class: "strip-scale" });
    scale.textContent = strip.unit(most);
    plot.replaceChildren(...shapes, scale);
  },
};
