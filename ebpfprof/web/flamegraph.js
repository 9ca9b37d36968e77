"use strict";
/* A flame graph of a profile: what it shows, and moving in it. It needs flametext.js, flametree.js,
   flamecanvas.js and flamelegend.js, and no build step.

   const graph = new FlameGraph(element, { onSelect(frame) {}, onZoom(frame) {}, actions: [] });
   graph.show(new FlameStacks(profile, base), { valueIndex, hideIdle, groupBy: "operation" });

   `profile` and `base` are the JSON of a profile (ebpfprof/export/json_profile.py). As an icicle,
   callers are above what they call, as a flame below. Inverted, it begins with the leaf functions.
   An action is something to do with the selected frame: {key, label, run(frame, graph)}; it has a
   button, and a key while the graph has the focus. */

class FlameGraph {
  static NEAR = 3; // how many callers of the zoomed frame have a button

  constructor(container, options = {}) {
    this.container = container;
    this.actions = options.actions ?? [];
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

  /* `groupBy` is "", "operation" or "label:KEY", `layout` "icicle" or "flame". Selection, zoom and
     search stay where the new stacks have the same frames. */
  show(stacks, options = {}) {
    const [profile, base = null] = stacks.profiles;
    this.profile = profile;
    this.options = {
      valueIndex: profile.default, hideIdle: true, groupBy: "", inverted: false, layout: "icicle",
      ...options, base, baseScale: FlameGraph.baseScale(profile, base),
    };
    this.type = profile.sample_types[this.options.valueIndex];
    const shown = JSON.stringify({ ...this.options, base: null });
    if (stacks === this.stacks && shown === this.shown) return;
    this.shown = shown;
    this.stacks = stacks;
    const places = this.tree ? [...this.history, this.zoomed, this.selected] : [0, 0];
    const paths = places.map((node) => this.tree?.pathOf(node) ?? []);
    const isFirst = this.tree === null;
    this.tree = new FlameTree(stacks, this.options);
    this.known = null;
    const found = paths.map((path) => this.tree.find(path));
    this.selected = found.pop();
    this.history = found.filter((node, i) => node !== found[i + 1]);
    this.zoomed = this.history.pop();
    this.search(this.query);
    this.changed();
    if (isFirst || this.wasUp !== this.isUp) {
      this.scroller.scrollTop = this.isUp ? this.scroller.scrollHeight : 0;
    }
    this.wasUp = this.isUp;
    this.live.textContent = this.isEmpty ? "" : this.describe(this.selected);
  }

  /* Whether rows go up from the root. */
  get isUp() {
    return this.options.inverted !== (this.options.layout === "flame");
  }

  /* The factor of the base: sums are compared per second, values of a moment as they are. */
  static baseScale(profile, base) {
    if (!base || profile.moment) return 1;
    if (!(profile.duration_s > 0) || !(base.duration_s > 0)) return 1;
    return profile.duration_s / base.duration_s;
  }

  /* Marks the functions that a search means (FlameNames.matching). Returns {value, share,
     functions}: the value of stacks through any of them, its share of all, and the number of
     functions. */
  search(text) {
    this.query = text;
    const { tree } = this;
    const result = { value: 0, share: 0, functions: 0 };
    this.matches = tree && tree.names.matching(text);
    if (this.matches) {
      Object.assign(result, tree.found(this.matches));
      result.share = tree.later[0] > 0 ? result.value / tree.later[0] : 0;
    }
    this.drawing.redraw({ matches: this.matches });
    this.showLegend();
    return result;
  }

  /* Each function that is shown (FlameTree.functions). */
  functions() {
    this.known ??= this.tree.functions();
    return this.known;
  }

  /* All that is known of a node (FlameTree.info), with the unit, and whether it matches the search. */
  info(node) {
    const name = this.tree.name[node];
    const matched = name >= 0 && this.matches !== null && this.matches[name] === 1;
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
    const place = FlameText.place(info);
    const words = [info.inlined ? `${info.name} (inlined)` : info.name, place].filter(Boolean);
    words.push(`${FlameText.quantity(info.value, unit)} (${FlameText.share(info.share, 1)})`);
    if (this.options.base) words.push(FlameText.change(info));
    if (info.flat !== null) words.push(`flat ${FlameText.quantity(info.flat, unit)}`);
    return words.join(", ");
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
    this.path = element("nav", "flame-path");
    this.path.setAttribute("aria-label", "Zoomed into");
    this.drawing = new FlameCanvas();
    this.canvas = this.drawing.canvas;
    this.scroller = this.drawing.scroller;
    this.legend = new FlameLegend(this.drawing);
    this.message = element("p", "flame-message");
    this.tip = element("div", "flame-tip");
    this.live = element("p", "flame-live");
    this.todo = element("div", "flame-actions");
    this.todo.append(...this.actions.map((action) => this.actionButton(action)));
    this.path.hidden = this.message.hidden = this.tip.hidden = true;
    this.scroller.tabIndex = -1;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute(
      "aria-label",
      "Flame graph. Arrows move between frames, Enter zooms in, Escape zooms out, Home resets.",
    );
    this.live.setAttribute("aria-live", "polite");
    this.tip.setAttribute("aria-hidden", "true");
    this.element.append(this.legend.element, this.path, this.message, this.scroller, this.live,
      this.todo, this.tip);
    this.container.append(this.element);
  }

  actionButton({ key, label, run }) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.title = `${label} (${key})`;
    button.addEventListener("click", () => run(this.info(this.selected), this));
    return button;
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
    const recolour = () => {
      this.drawing.recolour();
      this.showLegend();
    };
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
    const [up, down] = this.isUp ? ["child", "parent"] : ["parent", "child"];
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
    for (const { key, run } of this.actions) {
      actions[key] = () => run(this.info(this.selected), this);
    }
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }

  /* Shows the frames after new data, a zoom or a new size. */
  changed() {
    const { tree, drawing, zoomed, selected } = this;
    const { base } = this.options;
    drawing.clear(tree);
    this.hovered = null;
    this.tip.hidden = true;
    this.message.hidden = !this.isEmpty;
    this.scroller.hidden = this.todo.hidden = this.isEmpty;
    this.showLegend();
    this.showPath();
    if (this.isEmpty) {
      const hidden = FlameText.quantity(tree.hidden, this.type.unit);
      this.message.textContent =
        tree.hidden > 0 ? `Only idle waits: ${hidden} hidden.` : "Nothing was recorded.";
      return;
    }
    drawing.redraw({ selected, hovered: null });
    drawing.lay(tree, zoomed, { isUp: this.isUp, isDifference: Boolean(base) });
  }

  showLegend() {
    this.legend.show(this.isEmpty ? null : this.stacks, this.options?.baseScale);
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
      made.textContent = FlameText.fitted(this.tree.nameOf(node), 48);
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
    const own = `flat ${FlameText.quantity(info.flat ?? 0, info.unit)}`;
    const value = `${FlameText.quantity(info.value, info.unit)} (${FlameText.share(info.share, 1)})`;
    const lines = [
      info.inlined ? `${info.name} (inlined)` : info.name,
      FlameText.place(info),
      info.flat === null ? value : `${value}, ${own}`,
      this.options.base ? FlameText.change(info) : "",
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
