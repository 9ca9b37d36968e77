"use strict";
/* The frames of a flame graph as rows on a canvas that scrolls: where they are, and in which colours.
   It needs flametree.js and flametext.js only. FlameGraph decides what it shows, and draws again what has changed. */

class FlameCanvas {
  static ROW = 19; // height of a row, CSS pixels
  static LEAST = 1; // narrower frames are not drawn, nor the frames below them

  constructor() {
    const element = (tag, name) => Object.assign(document.createElement(tag), { className: name });
    this.scroller = element("div", "flame-scroller");
    this.spacer = element("div", "flame-spacer");
    this.canvas = element("canvas", "flame-canvas");
    this.context = this.canvas.getContext("2d");
    this.spacer.append(this.canvas);
    this.scroller.append(this.spacer);
    this.tree = null;
    this.rows = [];
    this.colours = [];
    this.marks = { selected: 0, hovered: null, matches: null };
  }

  /* ---- Where the frames are ---- */

  /* Shows the frames of `tree` that `zoomed` calls, the nodes on the way to it first. With `isUp`
     the first row is the lowest; with `isDifference` colours show what has changed. */
  lay(tree, zoomed, { isUp, isDifference }) {
    this.clear(tree);
    Object.assign(this, { isUp, isDifference });
    const width = this.scroller.clientWidth;
    const alone = (node) => ({ nodes: [node], lefts: [0], widths: [width] });
    this.rows = tree.ancestors(zoomed).map(alone);
    const scale = width / tree.width(zoomed);
    for (let row = alone(zoomed); row.nodes.length > 0; row = this.below(row, scale)) {
      this.rows.push(row);
    }
    this.spacer.style.height = `${this.rows.length * FlameCanvas.ROW}px`;
    this.redraw();
  }

  /* The row of what the frames of a row call. */
  below(row, scale) {
    const found = { nodes: [], lefts: [], widths: [] };
    for (let i = 0; i < row.nodes.length; i++) {
      let left = row.lefts[i];
      for (const node of this.tree.childrenOf(row.nodes[i])) {
        const wide = this.tree.width(node) * scale;
        if (wide < FlameCanvas.LEAST) break; // the widest comes first
        found.nodes.push(node);
        found.lefts.push(left);
        found.widths.push(wide);
        left += wide;
      }
    }
    return found;
  }

  /* Shows no frame of the tree. */
  clear(tree) {
    if (tree !== this.tree) this.colours = [];
    this.tree = tree;
    this.rows = [];
  }

  /* Where a node is drawn: {row, index, left, width}, or null. */
  place(node) {
    const row = this.tree.ancestors(node).length;
    const index = this.rows[row] ? this.rows[row].nodes.indexOf(node) : -1;
    if (index < 0) return null;
    return { row, index, left: this.rows[row].lefts[index], width: this.rows[row].widths[index] };
  }

  /* The node beside another one: its "parent", its widest "child", the "next" or the "previous" one
     of its row; undefined if there is none. The root has itself as its parent. */
  beside(node, towards) {
    const { row, index } = this.place(node);
    if (towards === "parent") return Math.max(this.tree.parent[node], 0);
    if (towards === "child") return this.rows[row + 1]?.nodes.find((n) => this.tree.parent[n] === node);
    return this.rows[row].nodes[index + (towards === "next" ? 1 : -1)];
  }

  /* The node under the pointer, or null. */
  nodeAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const line = Math.floor((event.clientY - box.top + this.scroller.scrollTop) / FlameCanvas.ROW);
    const row = this.rows[this.isUp ? this.rows.length - 1 - line : line];
    if (!row) return null;
    const index = row.lefts.findIndex((left, i) => x >= left && x < left + row.widths[i]);
    return index < 0 ? null : row.nodes[index];
  }

  /* The distance of a row from the top of the first one, in CSS pixels. */
  top(row) {
    return (this.isUp ? this.rows.length - 1 - row : row) * FlameCanvas.ROW;
  }

  /* Scrolls to a node. */
  reveal(node) {
    const at = this.place(node);
    if (!at) return;
    const top = this.top(at.row);
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    const below = top + FlameCanvas.ROW - clientHeight;
    if (below > scrollTop) this.scroller.scrollTop = below;
  }

  /* ---- Drawing ---- */

  /* Draws with the next frame of the screen. `marks` are the selected and the hovered node, and
     which functions match a search. */
  redraw(marks = {}) {
    Object.assign(this.marks, marks);
    if (this.frame || !this.tree) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  /* The same in the colours of another theme. */
  recolour() {
    this.colours = [];
    this.redraw();
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.tree = null;
  }

  /* Draws at once what is in view. */
  draw() {
    if (this.rows.length === 0) return;
    const { canvas, context, scroller, marks } = this;
    this.styles = getComputedStyle(scroller);
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
      if (top + FlameCanvas.ROW > 0 && top < height) this.drawRow(this.rows[row], top, text);
    }
    this.outline(marks.hovered, this.style("hover"), 1);
    const hasFocus = document.activeElement === canvas;
    this.outline(marks.selected, this.style("selected"), hasFocus ? 3 : 1.5);
  }

  drawRow({ nodes, lefts, widths }, top, text) {
    const { context, tree } = this;
    const { matches } = this.marks;
    const high = FlameCanvas.ROW - 1;
    for (let i = 0; i < nodes.length; i++) {
      const node = nodes[i];
      const isMatch = matches !== null && tree.name[node] >= 0 && matches[tree.name[node]] === 1;
      context.fillStyle = isMatch ? this.style("match") : this.colour(node);
      context.globalAlpha = matches !== null && !isMatch ? 0.45 : 1;
      context.fillRect(lefts[i], top, widths[i] - (widths[i] > 3 ? 1 : 0), high);
      const letters = Math.floor((widths[i] - 8) / text.letter);
      if (letters < 3) continue;
      context.fillStyle = isMatch ? this.style("match-text") : text.colour;
      context.globalAlpha = matches !== null && !isMatch ? 0.7 : 1;
      const words = FlameText.fitted(tree.nameOf(node), letters);
      context.fillText(words, lefts[i] + 4, top + high / 2 + 1, widths[i] - 6);
    }
    context.globalAlpha = 1;
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
    context.strokeRect(at.left + half, top + half, across, FlameCanvas.ROW - 1 - wide);
  }

  /* ---- Colours ---- */

  style(name) {
    return this.styles.getPropertyValue(`--flame-${name}`).trim();
  }

  colour(node) {
    const { tree } = this;
    if (this.isDifference) {
      const width = tree.width(node);
      return this.changeColour(width > 0 ? (tree.later[node] - tree.base[node]) / width : 0);
    }
    const name = tree.name[node];
    const kind = name < 0 ? "group" : tree.names.kinds[name];
    this.colours[name] ??= this.kindColour(kind, name < 0 ? "" : tree.names.packages[name]);
    return this.colours[name];
  }

  /* The colour of a package; `kind` is that of its functions (FlameNames). */
  kindColour(kind, package_) {
    this.styles ??= getComputedStyle(this.scroller);
    if (kind === "group") return this.style("group");
    const spread = FlameCanvas.hash(package_);
    const [from, to] = this.style(`${kind}-hues`).split(/\s+/).map(Number);
    const hue = from + (to - from) * spread;
    return `hsl(${hue.toFixed(0)} ${this.style(`${kind}-saturation`)} ${this.style("lightness")})`;
  }

  /* From -1 (only in the base) to 1 (not in the base); 0 is no change. */
  changeColour(change) {
    this.styles ??= getComputedStyle(this.scroller);
    const much = Math.abs(change) ** 0.7;
    const [same, most] = ["same", "most"].map((name) => parseFloat(this.style(`${name}-lightness`)));
    const hue = this.style(change > 0 ? "grew-hue" : "shrank-hue");
    return `hsl(${hue} ${(78 * much).toFixed(0)}% ${(same + (most - same) * much).toFixed(1)}%)`;
  }

  /* A number in [0, 1), the same for the same text. */
  static hash(text) {
    let hash = 0x811c9dc5;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32;
  }
}
