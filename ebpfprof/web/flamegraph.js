"use strict";
/* A flame graph of a profile: what it shows, and moving in it. It needs flametree.js and
   flamecanvas.js, and no build step.

   const graph = new FlameGraph(element, { onSelect(frame) {}, onZoom(frame) {} });
   graph.setData(profile, { valueIndex, hideIdle, base, groupBy: "operation", inverted: true });

   `profile` and `base` are the JSON of a profile (ebpfprof/export/json_profile.py). Callers are
   always above what they call. Inverted, the graph grows up from the leaf functions. */

class FlameGraph {
  static NEAR = 3; // how many callers of the zoomed frame have a button

  constructor(container, options = {}) {
    this.container = container;
    this.listeners = { select: [], zoom: [] };
    if (options.onSelect) this.on("select", options.onSelect);
    if (options.onZoom) this.on("zoom", options.onZoom);
    this.tree = null;
    this.matches = null;
    this.query = "";
    this.build();
    this.watch();
  }

  /* ---- What it shows ---- */

  /* `base` is a profile to compare with, `groupBy` is "", "operation" or "label:KEY". Selection,
     zoom and search stay where the new data has the same frames. */
  setData(profile, options = {}) {
    this.profile = profile;
    this.options = {
      valueIndex: profile.default, hideIdle: true, base: null, groupBy: "", inverted: false,
    };
    for (const [name, value] of Object.entries(options)) {
      if (value !== undefined) this.options[name] = value;
    }
    const { base } = this.options;
    this.options.baseScale = FlameGraph.baseScale(profile, base);
    this.type = profile.sample_types[this.options.valueIndex];
    // The stacks are made once, however often the same profiles are shown in another way.
    const known = this.stacks?.profiles ?? [];
    const isKnown = known[0] === profile && (known[1] ?? null) === base;
    const shown = JSON.stringify({ ...this.options, base: null });
    if (isKnown && shown === this.shown) return;
    this.shown = shown;
    const places = this.tree ? [...this.history, this.zoomed, this.selected] : [0, 0];
    const paths = places.map((node) => this.tree?.pathOf(node) ?? []);
    if (!isKnown) this.stacks = new FlameStacks(profile, base);
    const isFirst = this.tree === null;
    this.tree = new FlameTree(this.stacks, this.options);
    this.known = null;
    const found = paths.map((path) => this.tree.find(path));
    this.selected = found.pop();
    this.history = found.filter((node, i) => node !== found[i + 1]);
    this.zoomed = this.history.pop();
    this.search(this.query);
    this.changed();
    const edge = this.options.inverted ? this.scroller.scrollHeight : 0;
    if (isFirst || this.turned !== this.options.inverted) this.scroller.scrollTop = edge;
    this.turned = this.options.inverted;
    this.live.textContent = this.isEmpty ? "" : this.describe(this.selected);
  }

  /* The factor of the base: sums are compared per second, values of a moment as they are. */
  static baseScale(profile, base) {
    if (!base || profile.moment) return 1;
    if (!(profile.duration_s > 0) || !(base.duration_s > 0)) return 1;
    return profile.duration_s / base.duration_s;
  }

  /* Marks the functions with `text` in their name or file, in upper or lower case. Returns
     {value, share, functions}: the value of stacks through any of them, its share of all, and the
     number of functions. */
  search(text) {
    this.query = text;
    const { tree } = this;
    const result = { value: 0, share: 0, functions: 0 };
    const wanted = text.trim().toLowerCase();
    this.matches = null;
    if (tree && wanted) {
      const { names, files } = tree.names;
      const has = (name, i) => `${name}\n${files[i]}`.toLowerCase().includes(wanted);
      this.matches = Uint8Array.from(names, has);
      Object.assign(result, tree.found(this.matches));
      result.share = tree.later[0] > 0 ? result.value / tree.later[0] : 0;
    }
    this.drawing.redraw({ matches: this.matches });
    return result;
  }

  /* Each function that is shown (FlameTree.functions). */
  functions() {
    this.known ??= this.tree.functions();
    return this.known;
  }

  /* All that is known of a node (FlameTree.info), with the unit, and whether it matches the search. */
  info(node) {
    const matched = node > 0 && this.matches !== null && this.matches[this.tree.name[node]] === 1;
    return { ...this.tree.info(node), unit: this.type.unit, matched };
  }

  /* The frames that are drawn, from the root on: info() of each with x and width in pixels. */
  frames() {
    return this.drawing.rows.flatMap(({ nodes, lefts, widths }) =>
      nodes.map((node, i) => ({ ...this.info(node), x: lefts[i], width: widths[i] })),
    );
  }

  get isEmpty() {
    return this.tree === null || this.tree.width(0) === 0;
  }

  /* How much of the profile is hidden as idle waits, in the unit of the value shown. */
  get hidden() {
    return this.tree ? this.tree.hidden : 0;
  }

  on(event, listener) {
    this.listeners[event].push(listener);
  }

  emit(event, node) {
    for (const listener of this.listeners[event]) listener(this.info(node));
  }

  /* ---- Moving in it ---- */

  zoomTo(node) {
    if (node !== this.zoomed) this.history.push(this.zoomed);
    this.moveTo(node);
  }

  zoomOut() {
    if (this.zoomed !== 0) this.moveTo(this.history.pop() ?? this.tree.parent[this.zoomed]);
  }

  /* The zoomed frame, as the names from the root on. */
  get zoomPath() {
    return this.tree.pathOf(this.zoomed).map(([, name]) => name);
  }

  /* Zooms to the frame of such a path, or to its last frame that exists. */
  zoomToPath(names) {
    const node = this.tree.find(names.map((name) => ["", name]));
    if (node === this.zoomed) return;
    this.history = [];
    this.zoomed = node;
    this.changed();
    if (!this.drawing.place(this.selected)) this.select(node);
  }

  /* Shows the whole, with the root selected. */
  reset() {
    this.history = [];
    this.select(0);
    this.moveTo(0);
  }

  moveTo(node) {
    this.zoomed = node;
    this.changed();
    if (!this.drawing.place(this.selected)) this.select(node);
    this.drawing.reveal(this.selected);
    this.emit("zoom", node);
  }

  select(node) {
    this.selected = node;
    this.live.textContent = this.describe(node);
    this.drawing.reveal(node);
    this.drawing.redraw({ selected: node });
    this.emit("select", node);
  }

  describe(node) {
    const info = this.info(node);
    const { unit } = info;
    const place = this.placeText(info);
    const words = [info.inlined ? `${info.name} (inlined)` : info.name, place].filter(Boolean);
    words.push(`${FlameText.quantity(info.value, unit)} (${FlameText.share(info.share, 1)})`);
    if (this.options.base) words.push(this.changeText(info));
    if (info.kind !== "group") words.push(`flat ${FlameText.quantity(info.flat, unit)}`);
    return words.join(", ");
  }

  placeText({ file, line }) {
    if (line < 0) return `${file} (several lines)`;
    return line > 0 && file ? `${file}:${line}` : file;
  }

  changeText({ value, base, unit }) {
    const change = value - base;
    const sign = change > 0 ? "+" : "";
    const share = base > 0 ? ` (${sign}${FlameText.threeDigits((100 * change) / base)} %)` : "";
    const was = base > 0 ? `base ${FlameText.quantity(base, unit)}` : "not in base";
    return `${was}, change ${sign}${FlameText.quantity(change, unit)}${share}`;
  }

  step(towards) {
    if (!this.drawing.place(this.selected)) return this.select(this.zoomed);
    const node = this.drawing.beside(this.selected, towards);
    if (node !== undefined) this.select(node);
  }

  /* ---- Its elements ---- */

  build() {
    const element = (tag, name) => {
      const made = document.createElement(tag);
      made.className = name;
      return made;
    };
    this.element = element("div", "flamegraph");
    this.legend = element("div", "flame-legend");
    this.path = element("nav", "flame-path");
    this.path.setAttribute("aria-label", "Zoomed into");
    this.drawing = new FlameCanvas();
    this.canvas = this.drawing.canvas;
    this.scroller = this.drawing.scroller;
    this.message = element("p", "flame-message");
    this.tip = element("div", "flame-tip");
    this.live = element("p", "flame-live");
    this.legend.hidden = this.path.hidden = this.message.hidden = this.tip.hidden = true;
    this.scroller.tabIndex = -1;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute(
      "aria-label",
      "Flame graph. Arrows move between frames, Enter zooms in, Escape zooms out, Home resets.",
    );
    this.live.setAttribute("aria-live", "polite");
    this.tip.setAttribute("aria-hidden", "true");
    this.element.append(this.legend, this.path, this.message, this.scroller, this.live, this.tip);
    this.container.append(this.element);
  }

  watch() {
    const stop = new AbortController();
    const { signal } = stop;
    const listen = (target, type, listener) => target.addEventListener(type, listener, { signal });
    listen(this.canvas, "keydown", (event) => this.key(event));
    listen(this.canvas, "pointermove", (event) => this.hover(event));
    listen(this.canvas, "pointerleave", () => this.hover(null));
    listen(this.canvas, "click", (event) => {
      const node = this.drawing.nodeAt(event);
      if (node === null) return;
      // A finger can't hover: its first tap on a frame selects it, the second zooms in.
      const isFirst = event.pointerType === "touch" && node !== this.selected;
      this.select(node);
      if (!isFirst) this.zoomTo(node);
    });
    listen(this.canvas, "focus", () => this.drawing.redraw());
    listen(this.canvas, "blur", () => this.drawing.redraw());
    listen(this.scroller, "scroll", () => this.drawing.redraw());
    const recolour = () => this.drawing.recolour();
    listen(matchMedia("(prefers-color-scheme: dark)"), "change", recolour);
    const themes = new MutationObserver(recolour);
    themes.observe(document.documentElement, { attributeFilter: ["data-theme", "class"] });
    const sizes = new ResizeObserver(() => this.tree && this.changed());
    sizes.observe(this.scroller);
    this.unwatch = () => {
      stop.abort();
      themes.disconnect();
      sizes.disconnect();
    };
  }

  destroy() {
    this.unwatch();
    this.drawing.destroy();
    this.element.remove();
    this.tree = null;
  }

  key(event) {
    if (this.isEmpty || event.ctrlKey || event.altKey || event.metaKey) return;
    const [up, down] = this.options.inverted ? ["child", "parent"] : ["parent", "child"];
    const actions = {
      ArrowUp: () => this.step(up),
      ArrowDown: () => this.step(down),
      ArrowLeft: () => this.step("previous"),
      ArrowRight: () => this.step("next"),
      Enter: () => this.zoomTo(this.selected),
      Escape: () => this.zoomOut(),
      Backspace: () => this.zoomOut(),
      Home: () => this.reset(),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  }

  /* Shows the frames after new data, a zoom or a new size. */
  changed() {
    const { tree, drawing, zoomed, selected } = this;
    const { inverted, base } = this.options;
    drawing.clear(tree);
    this.hovered = null;
    this.tip.hidden = true;
    this.message.hidden = !this.isEmpty;
    this.scroller.hidden = this.isEmpty;
    this.showLegend();
    this.showPath();
    if (this.isEmpty) {
      const hidden = FlameText.quantity(tree.hidden, this.type.unit);
      this.message.textContent =
        tree.hidden > 0 ? `Nothing but idle waits: ${hidden} hidden.` : "Nothing was recorded.";
      return;
    }
    drawing.redraw({ selected, hovered: null });
    drawing.lay(tree, zoomed, { inverted, isDifference: Boolean(base) });
  }

  showLegend() {
    const { base, baseScale } = this.options;
    this.legend.hidden = !base;
    if (!base) return;
    const entries = [[-1, "only in the base"], [-0.4, "shrank"], [0, "the same"], [0.4, "grew"],
      [1, "not in the base"]];
    const parts = entries.map(([change, words]) => {
      const entry = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.style.background = this.drawing.changeColour(change);
      entry.append(swatch, words);
      return entry;
    });
    const note = document.createElement("span");
    note.textContent = "A frame is as wide as both profiles together.";
    if (baseScale !== 1) {
      note.textContent += ` The base is scaled by ${FlameText.threeDigits(baseScale)}: it took ` +
        `${FlameText.quantity(base.duration_s, "seconds")}, this profile ` +
        `${FlameText.quantity(this.profile.duration_s, "seconds")}.`;
    }
    this.legend.replaceChildren(...parts, note);
  }

  /* The zoomed frame and its callers, as buttons. */
  showPath() {
    this.path.hidden = this.isEmpty || this.zoomed === 0;
    if (this.path.hidden) return this.path.replaceChildren();
    const hadFocus = this.path.contains(document.activeElement);
    const above = this.tree.ancestors(this.zoomed);
    const near = above.length > FlameGraph.NEAR + 1 ? above.slice(-FlameGraph.NEAR) : above.slice(1);
    const button = (node) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = FlameCanvas.fitted(this.tree.nameOf(node), 48);
      made.addEventListener("click", () => (node === 0 ? this.reset() : this.zoomTo(node)));
      return made;
    };
    const buttons = [0, ...near, this.zoomed].map(button);
    const last = buttons[buttons.length - 1];
    last.setAttribute("aria-current", "true");
    const parts = buttons.flatMap((each, i) => (i === 0 ? [each] : ["›", each]));
    if (near.length < above.length - 1) parts.splice(2, 0, "…", "›");
    this.path.replaceChildren(...parts);
    if (hadFocus) last.focus();
  }

  /* ---- The pointer ---- */

  hover(event) {
    const node = event && !this.isEmpty ? this.drawing.nodeAt(event) : null;
    this.tip.hidden = node === null;
    if (node !== this.hovered) {
      this.hovered = node;
      this.drawing.redraw({ hovered: node });
      if (node !== null) this.fillTip(node);
    }
    if (node === null) return;
    const box = this.element.getBoundingClientRect();
    const most = Math.max(box.width - this.tip.offsetWidth, 0);
    this.tip.style.left = `${Math.min(event.clientX - box.left + 14, most)}px`;
    const below = event.clientY + 18 + this.tip.offsetHeight < window.innerHeight;
    const offset = below ? 18 : -12 - this.tip.offsetHeight;
    this.tip.style.top = `${event.clientY - box.top + offset}px`;
  }

  fillTip(node) {
    const info = this.info(node);
    const own = `flat ${FlameText.quantity(info.flat, info.unit)}`;
    const value = `${FlameText.quantity(info.value, info.unit)} (${FlameText.share(info.share, 1)})`;
    const lines = [
      info.inlined ? `${info.name} (inlined)` : info.name,
      this.placeText(info),
      info.kind === "group" ? value : `${value}, ${own}`,
      this.options.base ? this.changeText(info) : "",
    ];
    this.tip.replaceChildren(
      ...lines.filter(Boolean).map((text) => {
        const line = document.createElement("div");
        line.textContent = text;
        return line;
      }),
    );
  }
}
