"use strict";
/* A flame graph of a profile, drawn on a canvas. It needs flametree.js only, and no build step.

   const graph = new FlameGraph(element, { onSelect(frame) {}, onZoom(frame) {} });
   graph.setData(profile, { valueIndex, hideIdle, base, groupBy: "operation", inverted: true });

   `profile` and `base` are the JSON of a profile (ebpfprof/export/json_profile.py). Callers are
   above what they call, always: inverted, the graph grows up from the functions that wait or run
   themselves. */

class FlameGraph {
  static ROW = 19; // height of a row, CSS pixels
  static NEAR = 3; // so many callers of what is zoomed into have a button
  static LEAST = 1; // what is narrower is not drawn, nor what it calls

  constructor(container, options = {}) {
    this.container = container;
    this.listeners = { select: [], zoom: [] };
    if (options.onSelect) this.on("select", options.onSelect);
    if (options.onZoom) this.on("zoom", options.onZoom);
    this.tree = null;
    this.rows = [];
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
    // Functions are told apart once, however often the same profiles are shown in another way.
    const known = this.stacks?.profiles ?? [];
    const isKnown = known[0] === profile && (known[1] ?? null) === base;
    const shown = JSON.stringify({ ...this.options, base: null });
    if (isKnown && shown === this.shown) return;
    this.shown = shown;
    const places = this.tree ? [...this.history, this.zoomed, this.selected] : [0, 0];
    const paths = places.map((node) => this.pathOf(node));
    if (!isKnown) this.stacks = new FlameStacks(profile, base);
    const isFirst = this.tree === null;
    this.tree = new FlameTree(this.stacks, this.options);
    this.known = null;
    const found = paths.map((path) => this.find(path));
    this.selected = found.pop();
    this.history = found.filter((node, i) => node !== found[i + 1]);
    this.zoomed = this.history.pop();
    this.colours = [];
    this.search(this.query);
    this.changed();
    const edge = this.options.inverted ? this.scroller.scrollHeight : 0;
    if (isFirst || this.turned !== this.options.inverted) this.scroller.scrollTop = edge;
    this.turned = this.options.inverted;
    this.live.textContent = this.isEmpty ? "" : this.describe(this.selected);
  }

  /* By what the base is multiplied: sums over a time are compared per second. */
  static baseScale(profile, base) {
    if (!base || profile.moment) return 1;
    if (!(profile.duration_s > 0) || !(base.duration_s > 0)) return 1;
    return profile.duration_s / base.duration_s;
  }

  /* Marks the functions whose name or file has `text` in it, whatever its case. Returns
     {value, share, functions}: what goes through any of them, of all, and how many they are. */
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
    this.redraw();
    return result;
  }

  /* Each function that is shown (FlameTree.functions). */
  functions() {
    this.known ??= this.tree.functions();
    return this.known;
  }

  /* All that is known of a node, as an object; `text` is a sentence. */
  info(node) {
    const { tree, type } = this;
    const name = tree.name[node];
    const { names } = tree;
    return {
      node,
      name: tree.nameOf(node),
      file: node ? names.files[name] : "",
      line: tree.line[node],
      inlined: tree.inlined[node] === 1,
      kind: node ? names.kinds[name] : "group",
      package: node ? names.packages[name] : "",
      value: tree.later[node],
      share: tree.later[0] > 0 ? tree.later[node] / tree.later[0] : 0,
      flat: tree.laterFlat[node],
      base: tree.base[node],
      unit: type.unit,
      depth: this.ancestors(node).length,
      matched: node > 0 && this.matches !== null && this.matches[name] === 1,
    };
  }

  /* The frames that are drawn, from the root on: info() of each with x and width in pixels. */
  frames() {
    return this.rows.flatMap(({ nodes, lefts, widths }) =>
      nodes.map((node, i) => ({ ...this.info(node), x: lefts[i], width: widths[i] })),
    );
  }

  get isEmpty() {
    return this.tree === null || this.tree.width(0) === 0;
  }

  /* What of the profile is hidden as idle waits, in the unit of the value shown. */
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

  /* What is zoomed into, as the names from the root on. */
  get zoomPath() {
    return this.pathOf(this.zoomed).map(([, name]) => name);
  }

  /* Zooms to where such a path leads, or as far as it does. */
  zoomToPath(names) {
    const node = this.find(names.map((name) => ["", name]));
    if (node === this.zoomed) return;
    this.history = [];
    this.zoomed = node;
    this.changed();
    if (!this.place(this.selected)) this.select(node);
  }

  /* To the whole, with nothing selected but the root. */
  reset() {
    this.history = [];
    this.select(0);
    this.moveTo(0);
  }

  moveTo(node) {
    this.zoomed = node;
    this.changed();
    if (!this.place(this.selected)) this.select(node);
    this.reveal(this.selected);
    this.emit("zoom", node);
  }

  select(node) {
    this.selected = node;
    this.live.textContent = this.describe(node);
    this.reveal(node);
    this.redraw();
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

  ancestors(node) {
    const nodes = [];
    for (let each = this.tree.parent[node]; each >= 0; each = this.tree.parent[each]) {
      nodes.unshift(each);
    }
    return nodes;
  }

  pathOf(node) {
    if (node === 0) return [];
    const nodes = [...this.ancestors(node), node].slice(1);
    return nodes.map((each) => [this.tree.names.kinds[this.tree.name[each]], this.tree.nameOf(each)]);
  }

  /* The node of a path, or its last ancestor that exists. */
  find(path) {
    const { tree } = this;
    let node = 0;
    for (const [kind, name] of path) {
      const isWanted = (each) =>
        tree.nameOf(each) === name && (!kind || tree.names.kinds[tree.name[each]] === kind);
      const next = tree.childrenOf(node).find(isWanted);
      if (next === undefined) break;
      node = next;
    }
    return node;
  }

  /* Where a node is drawn: {row, index, left, width}, or null. */
  place(node) {
    const row = this.ancestors(node).length;
    const index = this.rows[row] ? this.rows[row].nodes.indexOf(node) : -1;
    if (index < 0) return null;
    return { row, index, left: this.rows[row].lefts[index], width: this.rows[row].widths[index] };
  }

  step(towards) {
    const at = this.place(this.selected);
    if (!at) return this.select(this.zoomed);
    if (towards === "parent") return this.select(Math.max(this.tree.parent[this.selected], 0));
    if (towards === "child") {
      const below = this.rows[at.row + 1];
      const i = below ? below.nodes.findIndex((n) => this.tree.parent[n] === this.selected) : -1;
      return i < 0 ? undefined : this.select(below.nodes[i]);
    }
    const next = this.rows[at.row].nodes[at.index + (towards === "next" ? 1 : -1)];
    return next === undefined ? undefined : this.select(next);
  }

  /* ---- Drawing ---- */

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
    this.scroller = element("div", "flame-scroller");
    this.spacer = element("div", "flame-spacer");
    this.canvas = element("canvas", "flame-canvas");
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
    this.spacer.append(this.canvas);
    this.scroller.append(this.spacer);
    this.element.append(this.legend, this.path, this.message, this.scroller, this.live, this.tip);
    this.container.append(this.element);
    this.context = this.canvas.getContext("2d");
  }

  watch() {
    const stop = new AbortController();
    const { signal } = stop;
    const listen = (target, type, listener) => target.addEventListener(type, listener, { signal });
    listen(this.canvas, "keydown", (event) => this.key(event));
    listen(this.canvas, "pointermove", (event) => this.hover(event));
    listen(this.canvas, "pointerleave", () => this.hover(null));
    listen(this.canvas, "click", (event) => {
      const node = this.nodeAt(event);
      if (node === null) return;
      // A finger has no pointer that hovers: its first tap tells what a frame is.
      const isFirst = event.pointerType === "touch" && node !== this.selected;
      this.select(node);
      if (!isFirst) this.zoomTo(node);
    });
    listen(this.canvas, "focus", () => this.redraw());
    listen(this.canvas, "blur", () => this.redraw());
    listen(this.scroller, "scroll", () => this.redraw());
    const recolour = () => {
      this.colours = [];
      this.redraw();
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
    cancelAnimationFrame(this.frame);
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

  /* Where the frames are, after new data, a zoom or a new size. */
  changed() {
    const { tree } = this;
    this.rows = [];
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
    const width = this.scroller.clientWidth;
    for (const node of this.ancestors(this.zoomed)) {
      this.rows.push({ nodes: [node], lefts: [0], widths: [width] });
    }
    const scale = width / tree.width(this.zoomed);
    let row = { nodes: [this.zoomed], lefts: [0], widths: [width] };
    while (row.nodes.length > 0) {
      this.rows.push(row);
      const below = { nodes: [], lefts: [], widths: [] };
      for (let i = 0; i < row.nodes.length; i++) {
        let left = row.lefts[i];
        for (const node of tree.childrenOf(row.nodes[i])) {
          const wide = tree.width(node) * scale;
          if (wide < FlameGraph.LEAST) break; // the widest comes first
          below.nodes.push(node);
          below.lefts.push(left);
          below.widths.push(wide);
          left += wide;
        }
      }
      row = below;
    }
    this.spacer.style.height = `${this.rows.length * FlameGraph.ROW}px`;
    this.redraw();
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
      swatch.style.background = this.changeColour(change);
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

  /* What is zoomed into, with a button for each frame above it. */
  showPath() {
    this.path.hidden = this.isEmpty || this.zoomed === 0;
    if (this.path.hidden) return this.path.replaceChildren();
    const hadFocus = this.path.contains(document.activeElement);
    const above = this.ancestors(this.zoomed);
    const near = above.length > FlameGraph.NEAR + 1 ? above.slice(-FlameGraph.NEAR) : above.slice(1);
    const button = (node) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = FlameGraph.fitted(this.tree.nameOf(node), 48);
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

  top(row) {
    return (this.options.inverted ? this.rows.length - 1 - row : row) * FlameGraph.ROW;
  }

  reveal(node) {
    const at = this.place(node);
    if (!at) return;
    const top = this.top(at.row);
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    const below = top + FlameGraph.ROW - clientHeight;
    if (below > scrollTop) this.scroller.scrollTop = below;
  }

  redraw() {
    if (this.frame || !this.tree) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  style(name) {
    return this.styles.getPropertyValue(`--flame-${name}`).trim();
  }

  /* Draws at once what is in view. */
  draw() {
    if (this.isEmpty) return;
    const { canvas, context, scroller } = this;
    this.styles = getComputedStyle(this.element);
    const [width, height] = [scroller.clientWidth, scroller.clientHeight];
    const ratio = window.devicePixelRatio || 1;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== across || canvas.height !== down) {
      canvas.width = across;
      canvas.height = down;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = this.style("font");
    context.textBaseline = "middle";
    const text = { colour: this.style("text"), letter: context.measureText("0").width };
    for (let row = 0; row < this.rows.length; row++) {
      const top = this.top(row) - scroller.scrollTop;
      if (top + FlameGraph.ROW > 0 && top < height) this.drawRow(this.rows[row], top, text);
    }
    this.outline(this.hovered, this.style("hover"), 1);
    const hasFocus = document.activeElement === canvas;
    this.outline(this.selected, this.style("selected"), hasFocus ? 3 : 1.5);
  }

  drawRow({ nodes, lefts, widths }, top, text) {
    const { context, tree, matches } = this;
    const high = FlameGraph.ROW - 1;
    for (let i = 0; i < nodes.length; i++) {
      const node = nodes[i];
      const isMatch = matches !== null && node > 0 && matches[tree.name[node]] === 1;
      context.fillStyle = isMatch ? this.style("match") : this.colour(node);
      context.globalAlpha = matches !== null && !isMatch ? 0.45 : 1;
      context.fillRect(lefts[i], top, widths[i] - (widths[i] > 3 ? 1 : 0), high);
      const letters = Math.floor((widths[i] - 8) / text.letter);
      if (letters < 3) continue;
      context.fillStyle = isMatch ? this.style("match-text") : text.colour;
      context.globalAlpha = matches !== null && !isMatch ? 0.7 : 1;
      const words = FlameGraph.fitted(tree.nameOf(node), letters);
      context.fillText(words, lefts[i] + 4, top + high / 2 + 1, widths[i] - 6);
    }
    context.globalAlpha = 1;
  }

  /* The name without the path of its package if need be, and cut if need be. */
  static fitted(name, letters) {
    if (name.length <= letters) return name;
    const short = name.slice(name.split("[", 1)[0].split("(", 1)[0].lastIndexOf("/") + 1);
    return short.length <= letters ? short : `${short.slice(0, letters - 1)}…`;
  }

  outline(node, colour, wide) {
    const at = node === null ? null : this.place(node);
    if (!at) return;
    const { context } = this;
    const top = this.top(at.row) - this.scroller.scrollTop;
    context.strokeStyle = colour;
    context.lineWidth = wide;
    const half = wide / 2;
    const across = Math.max(at.width - 1 - wide, 1);
    context.strokeRect(at.left + half, top + half, across, FlameGraph.ROW - 1 - wide);
  }

  colour(node) {
    const { tree } = this;
    if (this.options.base) {
      const width = tree.width(node);
      return this.changeColour(width > 0 ? (tree.later[node] - tree.base[node]) / width : 0);
    }
    const name = node === 0 ? "root" : tree.name[node];
    this.colours[name] ??= this.nameColour(node);
    return this.colours[name];
  }

  nameColour(node) {
    const { names } = this.tree;
    const kind = node === 0 ? "group" : names.kinds[this.tree.name[node]];
    if (kind === "group") return this.style("group");
    const spread = FlameGraph.hash(names.packages[this.tree.name[node]]);
    const [from, to] = this.style(`${kind}-hues`).split(/\s+/).map(Number);
    const hue = from + (to - from) * spread;
    return `hsl(${hue.toFixed(0)} ${this.style(`${kind}-saturation`)} ${this.style("lightness")})`;
  }

  /* From -1, gone, over 0, the same, to 1, new. */
  changeColour(change) {
    this.styles ??= getComputedStyle(this.element);
    const much = Math.abs(change) ** 0.7;
    const [same, most] = ["same", "most"].map((name) => parseFloat(this.style(`${name}-lightness`)));
    const hue = this.style(change > 0 ? "grew-hue" : "shrank-hue");
    return `hsl(${hue} ${(78 * much).toFixed(0)}% ${(same + (most - same) * much).toFixed(1)}%)`;
  }

  /* A number in [0, 1) that is always the same for a text. */
  static hash(text) {
    let hash = 0x811c9dc5;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32;
  }

  /* ---- The pointer ---- */

  /* The frame under the pointer, or null. */
  nodeAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const line = Math.floor((event.clientY - box.top + this.scroller.scrollTop) / FlameGraph.ROW);
    const row = this.rows[this.options.inverted ? this.rows.length - 1 - line : line];
    if (!row) return null;
    const index = row.lefts.findIndex((left, i) => x >= left && x < left + row.widths[i]);
    return index < 0 ? null : row.nodes[index];
  }

  hover(event) {
    const node = event && !this.isEmpty ? this.nodeAt(event) : null;
    this.tip.hidden = node === null;
    if (node !== this.hovered) {
      this.hovered = node;
      this.redraw();
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
