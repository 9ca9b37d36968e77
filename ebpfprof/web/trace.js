"use strict";
/* The page of one trace, which the element "trace" holds. */

class TracePage {
  static LEAST_NS = 200; // on the whole width
  static STEP = 1.6;
  static PHONE = "(max-width: 700px)"; // as in style.css
  static PAUSE = "The recording paused here to limit its overhead. What goroutines did is unknown.";

  constructor(app, trace) {
    this.data = new TraceData(trace);
    this.open = new Set(this.data.groups.filter((group) => group.members.length === 1).map((group) => group.name + group.created));
    Object.assign(this, { from: 0, to: Math.max(1, this.data.length_ns), selected: null, groups: this.data.groups });
    this.canvas = new TraceCanvas();
    this.texts = new TraceTexts((goid, time) => this.jump(goid, time));
    this.hover = newElement("p", { id: "hover", className: "quiet" });
    const graph = new WaitGraph(this.data.waits, (name) => this.find(name));
    app.before(this.header());
    app.append(...this.notes(), this.bar(), this.canvas.scroller, this.hover, this.texts.span,
      newElement("h2", { textContent: "Totals for the time shown" }), this.texts.unrecorded, newElement("div", { className: "scroll ranked" }, this.texts.table),
      ...[TraceTexts.tasks(this.data)].filter(Boolean), graph.section);
    graph.reveal();
    this.listen();
    this.draw();
  }

  header() {
    const { command, pid, go, length_ns, begin_unix_ns } = this.data;
    const time = new Date(Number(BigInt(begin_unix_ns) / 1000000n)).toISOString().slice(0, 19).replace("T", " ");
    const ns = (value) => FlameText.quantity(value, "nanoseconds"), unrecorded = this.data.unrecorded(0, length_ns);
    const theme = newElement("button", { type: "button", textContent: "Dark or light" });
    theme.addEventListener("click", () => { toggleTheme(); this.canvas.draw(); });
    return newElement("header", {},
      newElement("h1", { textContent: `Trace of ${command} (${pid})` }),
      newElement("span", { id: "when", className: "quiet", textContent: `${ns(length_ns)} from ${time} UTC, ${go}${unrecorded ? `; not recorded: ${ns(unrecorded)}` : ""}` }), theme);
  }

  notes() {
    if (!this.data.comments.length) return [];
    const items = this.data.comments.map((text) => newElement("li", { textContent: text }));
    return [newElement("details", { id: "notes", open: !matchMedia(TracePage.PHONE).matches },
      newElement("summary", { textContent: "How it was recorded" }), newElement("ul", {}, ...items))];
  }

  bar() {
    const button = (text, label, act) => {
      const found = newElement("button", { type: "button", textContent: text, title: label, ariaLabel: label });
      found.addEventListener("click", act);
      return found;
    };
    this.search = newElement("input", { type: "search", id: "search", placeholder: "Search: function, G17, lock, address", ariaLabel: "Search goroutines" });
    this.search.addEventListener("input", () => { this.groups = this.data.matching(this.search.value); this.draw(); });
    const legend = this.data.states.map((state) => {
      const patch = newElement("i", { className: `patch ${state}` });
      return newElement("span", {}, patch, ` ${state}`);
    });
    if (this.data.pauses.length) {
      const patch = newElement("i", { className: "patch pause" });
      legend.push(newElement("span", { id: "pause", title: TracePage.PAUSE }, patch, " not recorded"));
    }
    return newElement("div", { className: "bar" },
      newElement("span", { className: "grow" }, this.search),
      button("+", "Zoom in", () => this.zoom(1 / TracePage.STEP)), button("−", "Zoom out", () => this.zoom(TracePage.STEP)),
      button("◂", "Earlier", () => this.pan(-0.25)), button("▸", "Later", () => this.pan(0.25)),
      button("All", "The whole time", () => this.showRange(0, this.data.length_ns)),
      newElement("span", { id: "legend" }, ...legend));
  }

  /* ---- What is shown ---- */

  rows() {
    const rows = [];
    if (this.data.runtime.length) rows.push({ title: "runtime: GC, stops", runtime: this.data.runtime });
    if (this.data.heap.times.length) rows.push({ title: "heap and its goal", heap: this.data.heap });
    for (const group of this.groups) {
      const key = group.name + group.created, isOpen = this.open.has(key), { members } = group;
      if (members.length === 1) {
        rows.push({ title: members[0].title, goroutine: members[0], key });
        continue;
      }
      rows.push({ title: `${isOpen ? "▾" : "▸"} ${group.name} (${members.length})`, group, key });
      if (isOpen) for (const each of members) rows.push({ title: each.title, goroutine: each, key });
    }
    rows.push(...this.threadRows());
    return rows;
  }

  threadRows() {
    const members = this.data.threads, key = "threads", isOpen = this.open.has(key);
    if (!members.length || this.search.value) return [];
    const rows = [{ title: `${isOpen ? "▾" : "▸"} threads (${members.length})`, group: { name: "threads", members }, key }];
    if (isOpen) rows.push(...members.map((thread) => ({ title: thread.title, thread, key })));
    return rows;
  }

  draw() {
    this.canvas.show(this.data, this.rows(), this.from, this.to, this.selected);
    this.texts.showSpan(this.data, this.selected);
    clearTimeout(this.isDue);
    this.isDue = setTimeout(() => this.texts.showGroups(this.data, this.groups, this.from, this.to), 80);
  }

  showRange(from, to) {
    const whole = Math.max(1, this.data.length_ns), length = Math.min(whole, Math.max(TracePage.LEAST_NS, to - from));
    this.from = Math.min(Math.max(0, from), whole - length);
    this.to = this.from + length;
    this.draw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.showRange(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  pan(part) {
    const by = (this.to - this.from) * part;
    this.showRange(this.from + by, this.to + by);
  }

  /* Shows the goroutines that match a text. */
  find(text) {
    this.search.value = text;
    this.groups = this.data.matching(text);
    this.draw();
    this.canvas.scroller.scrollIntoView({ block: "nearest" });
  }

  select(goroutine, index) {
    this.selected = goroutine && index >= 0 ? { goroutine, index } : null;
    this.draw();
  }

  /* Shows what another goroutine did at a time. */
  jump(goid, time) {
    const goroutine = this.data.byGoid.get(goid);
    if (!goroutine) return;
    this.open.add(goroutine.name + goroutine.created);
    if (!this.groups.some((group) => group.members.includes(goroutine))) {
      this.search.value = "";
      this.groups = this.data.groups;
    }
    if (time < this.from || time > this.to) {
      const half = (this.to - this.from) / 2;
      this.showRange(time - half, time + half);
    }
    const index = Math.max(goroutine.at(time), 0);
    this.select(goroutine, index);
    this.canvas.reveal(this.canvas.rows.findIndex((row) => row.goroutine === goroutine));
  }

  /* ---- Pointer and keys ---- */

  listen() {
    const { scroller, canvas } = this.canvas;
    this.pointers = new Map(); // buttons and fingers that are down, by id: where each began and is, the time that it holds
    this.isDrag = false;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      if (!this.pointers.size) this.isDrag = false;
      this.grab(event.pointerId, event.clientX);
      this.describe(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      const pointer = this.pointers.get(event.pointerId);
      if (pointer) this.drag(pointer, event.clientX);
      else this.describe(event);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (this.release(event.pointerId) && !this.isDrag) this.click(event);
    });
    canvas.addEventListener("pointercancel", (event) => this.release(event.pointerId)); // the browser scrolls the rows
    scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    scroller.addEventListener("keydown", (event) => this.key(event));
  }

  /* A mouse button or a finger is put down. */
  grab(id, clientX) {
    this.pointers.set(id, { x: clientX });
    if (this.pointers.size > 1) this.isDrag = true;
    this.hold();
  }

  /* A pointer leaves; returns whether it was known. */
  release(id) {
    const isKnown = this.pointers.delete(id);
    this.hold();
    return isKnown;
  }

  /* From now on each pointer holds the time that is below it. */
  hold() {
    const { left } = this.canvas.canvas.getBoundingClientRect();
    for (const pointer of this.pointers.values()) Object.assign(pointer, { begin: pointer.x, time: this.canvas.timeAt(pointer.x - left) });
  }

  /* One pointer moves the time, two zoom: the time that each holds stays below it. */
  drag(pointer, clientX) {
    pointer.x = clientX;
    if (Math.abs(clientX - pointer.begin) < 4 && !this.isDrag) return;
    this.isDrag = true;
    const [one, two] = this.pointers.values(), { left } = this.canvas.canvas.getBoundingClientRect();
    const now = (this.to - this.from) / this.canvas.width;
    const isZoom = two && Math.abs(two.x - one.x) > 10 && Math.sign(two.x - one.x) === Math.sign(two.time - one.time);
    const scale = isZoom ? (two.time - one.time) / (two.x - one.x) : now;
    const from = one.time - (one.x - left - this.canvas.names) * scale;
    this.showRange(from, from + scale * this.canvas.width);
  }

  click(event) {
    const place = this.canvas.place(event);
    if (!place) return;
    const { row, time } = place;
    if (row.group && (time === null || !row.goroutine)) {
      if (!this.open.delete(row.key)) this.open.add(row.key);
      this.draw();
    } else if (row.goroutine && time !== null) {
      this.select(row.goroutine, row.goroutine.at(time));
    }
  }

  describe(event) {
    const place = this.canvas.place(event);
    this.hover.textContent = place ? this.described(place) : "";
  }

  described({ row, time }) {
    const ns = (value) => FlameText.quantity(value, "nanoseconds");
    const pause = time === null ? null : this.data.pausesBetween(time, time)[0];
    if (pause && !row.heap) return `not recorded for ${ns(pause[1] - pause[0])}. ${TracePage.PAUSE}`;
    if (time === null) return row.goroutine?.created ? `${row.title}, created by ${row.goroutine.created}` : row.title;
    if (row.runtime) {
      const parts = row.runtime.filter(([begin, end]) => begin <= time && time <= end);
      return parts.map(([begin, end, what]) => `${what}, ${ns(end - begin)}`).join("; ");
    }
    if (row.heap) return this.heapText(time);
    if (row.thread) return this.threadText(row.thread, time);
    if (!row.goroutine) {
      const many = row.key === "threads" ? "threads" : "goroutines";
      return `${row.group.name}: ${row.group.members.length} ${many} at ${ns(time)}`;
    }
    const index = row.goroutine.at(time);
    if (index < 0) return row.title;
    const length = ns(row.goroutine.ends[index] - row.goroutine.begins[index]);
    const [leaf] = this.data.frames(row.goroutine.stacks[index]).filter(({ name }) => !name.startsWith("runtime."));
    const thing = this.data.thing(row.goroutine, index);
    return `${row.title}: ${this.data.what(row.goroutine, index)} for ${length}${leaf ? ` in ${leaf.name}` : ""}${thing && `, waits ${thing}`}`;
  }

  heapText(time) {
    const { live, goal } = this.data.heap, index = this.data.heapAt(time), bytes = (value) => FlameText.quantity(value, "bytes");
    if (index < 0) return "";
    return `heap ${bytes(live[index])}${goal[index] ? `, collected at ${bytes(goal[index])}` : ", no goal"}`;
  }

  threadText(thread, time) {
    const index = thread.at(time);
    if (index < 0) return `${thread.title}: off the CPU`;
    const length = FlameText.quantity(thread.ends[index] - thread.begins[index], "nanoseconds"), waker = this.data.waker(thread, index);
    return `${thread.title}: ${this.data.what(thread, index)} for ${length}${waker && `, woken by ${waker}`}`;
  }

  wheel(event) {
    const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !event.metaKey && !isSideways) return; // rows scroll
    event.preventDefault();
    if (isSideways) {
      this.pan((event.deltaX || event.deltaY) / this.canvas.width);
      return;
    }
    const x = event.clientX - this.canvas.canvas.getBoundingClientRect().left;
    this.zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, this.canvas.timeAt(Math.max(this.canvas.names, x)));
  }

  key(event) {
    if (isTyping(event)) return;
    const acts = { "+": () => this.zoom(1 / TracePage.STEP), "=": () => this.zoom(1 / TracePage.STEP), "-": () => this.zoom(TracePage.STEP),
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), 0: () => this.showRange(0, this.data.length_ns),
      ArrowUp: () => this.step(-1), ArrowDown: () => this.step(1), Escape: () => this.select(null, -1) };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /* Chooses the next goroutine, or the previous one, at the same time. */
  step(by) {
    const rows = this.canvas.rows.filter((row) => row.goroutine);
    if (!rows.length) return;
    const now = rows.findIndex((row) => row.goroutine === this.selected?.goroutine);
    const next = rows[Math.min(Math.max(0, now + by), rows.length - 1)].goroutine;
    const time = this.selected ? this.selected.goroutine.begins[this.selected.index] : this.from;
    this.jump(next.goid, Math.min(Math.max(time, this.from), this.to));
  }
}

applyTheme(storedTheme());
window.tracePage = new TracePage(document.getElementById("app"), JSON.parse(document.getElementById("trace").textContent));
