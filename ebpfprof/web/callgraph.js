"use strict";
/* Which functions call which, as boxes and arrows. dagre places them. */

/* The functions and calls that are drawn, of the stacks that a FlameTree shows. */
class Calls {
  static MOST = 50; // functions
  static LEAST = 0.001; // calls with less than that share of the whole are not drawn

  /* `rows` are FlameTree.functions(). */
  constructor(tree, rows) {
    this.whole = tree.later[0];
    const order = rows.filter((row) => row.cum > 0);
    order.sort((a, b) => b.cum - a.cum || b.flat - a.flat || (a.name < b.name ? -1 : 1));
    this.functions = order.slice(0, Calls.MOST);
    this.left = order.length - this.functions.length;
    this.calls = this.between(tree);
  }

  /* [{from, to, value, isDirect}]: a call in a stack counts once. It is not direct if functions
     that are not drawn are between. */
  between({ stacks, shown, values }) {
    const { starts, ends, functions, ofProfile } = stacks;
    const place = new Int32Array(stacks.names.names.length).fill(-1);
    this.functions.forEach((row, i) => (place[row.number] = i));
    const size = this.functions.length;
    const [sums, seen] = [new Float64Array(size * size), new Int32Array(size * size).fill(-1)];
    const isDirect = new Uint8Array(size * size);
    for (const stack of shown) {
      if (stack >= ofProfile) continue;
      let [caller, callerAt] = [-1, -1];
      for (let at = starts[stack]; at < ends[stack]; at++) {
        const callee = place[functions[at]];
        if (callee < 0) continue;
        const call = caller * size + callee;
        if (caller >= 0 && seen[call] !== stack) {
          seen[call] = stack;
          sums[call] += values[stack];
        }
        if (caller >= 0 && at === callerAt + 1) isDirect[call] = 1;
        [caller, callerAt] = [callee, at];
      }
    }
    const made = [];
    sums.forEach((value, i) => {
      if (value < Calls.LEAST * this.whole || value === 0) return;
      const [from, to] = [Math.floor(i / size), i % size];
      made.push({ from, to, value, isDirect: isDirect[i] === 1 });
    });
    return made;
  }
}

class CallGraph {
  static SCALES = [0.4, 0.55, 0.75, 1, 1.4, 2];
  static LETTER = 7.3; // width of a letter of a name, in the units of the drawing
  static LONGEST = 44; // letters of a name

  /* `onchoose(row)` is called with the function of a box that was clicked. */
  constructor(container, { onchoose }) {
    this.onchoose = onchoose;
    this.scale = 1;
    this.note = newElement("p", { className: "quiet" });
    const button = (textContent, ariaLabel, step) => {
      const made = newElement("button", { type: "button", textContent, ariaLabel });
      made.addEventListener("click", () => this.zoom(step));
      return made;
    };
    this.scroller = newElement("div", {
      className: "callgraph", tabIndex: 0, role: "region", ariaLabel: "Functions and calls",
    });
    const bar = newElement("div", { className: "bar" }, button("−", "Smaller", -1),
      button("+", "Larger", 1), this.note);
    container.append(bar, this.scroller);
  }

  /* Shows what the tree shows; `matches` are the functions that a search means. */
  show(tree, rows, unit, matches) {
    this.matches = matches;
    if (tree !== this.tree) {
      this.tree = tree;
      this.unit = unit;
      this.calls = new Calls(tree, rows);
      this.lay();
    }
    const { functions, left } = this.calls;
    const least = FlameText.share(Calls.LEAST, 1);
    const words = left ? `The ${functions.length} functions with the largest cum, of ` +
      `${functions.length + left}; a dashed arrow skips others.` : "All functions.";
    this.note.textContent = `${words} Calls below ${least} are left out.`;
    this.draw();
  }

  zoom(step) {
    const at = CallGraph.SCALES.findIndex((scale) => scale >= this.scale);
    const { length } = CallGraph.SCALES;
    this.scale = CallGraph.SCALES[Math.min(Math.max((at < 0 ? length - 1 : at) + step, 0), length - 1)];
    this.size();
  }

  lay() {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ ranksep: 46, nodesep: 18, marginx: 8, marginy: 8 });
    graph.setDefaultEdgeLabel(() => ({}));
    this.calls.functions.forEach((row, i) => {
      const letters = Math.max(FlameText.fitted(row.name, CallGraph.LONGEST).length, 24);
      graph.setNode(String(i), { width: letters * CallGraph.LETTER + 16, height: 44 });
    });
    for (const { from, to, value } of this.calls.calls) {
      if (from !== to) graph.setEdge(String(from), String(to), { weight: 1 + Math.round(20 * value / this.calls.whole) });
    }
    dagre.layout(graph);
    this.graph = graph;
  }

  draw() {
    const { graph, calls } = this;
    const svg = CallGraph.svg("svg", {});
    const arrow = CallGraph.svg("marker", {
      id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 13, markerHeight: 13,
      orient: "auto", markerUnits: "userSpaceOnUse",
    });
    arrow.append(CallGraph.svg("path", { d: "M0 0 L8 4 L0 8 z", class: "call-arrow" }));
    svg.append(arrow);
    for (const call of calls.calls) if (call.from !== call.to) svg.append(this.call(call));
    calls.functions.forEach((row, i) => svg.append(this.box(row, graph.node(String(i)))));
    const focused = this.scroller.contains(document.activeElement)
      ? document.activeElement.dataset.name : undefined;
    this.scroller.replaceChildren(svg);
    this.fit();
    if (focused === undefined) return;
    for (const box of svg.querySelectorAll(".call-box")) if (box.dataset.name === focused) box.focus();
  }

  call({ from, to, value, isDirect }) {
    const { points } = this.graph.edge(String(from), String(to));
    const share = value / this.calls.whole;
    const path = CallGraph.svg("path", {
      d: points.map(({ x, y }, i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join(" "),
      class: isDirect ? "call" : "call call-indirect", "stroke-width": (1 + 5 * share).toFixed(2),
      "marker-end": "url(#arrow)",
    });
    const [caller, callee] = [from, to].map((i) => this.calls.functions[i].name);
    const title = CallGraph.svg("title", {});
    title.textContent = `${caller} calls ${callee}${isDirect ? "" : " through others"}: ` +
      `${FlameText.quantity(value, this.unit)} (${FlameText.share(share, 1)})`;
    path.append(title);
    return path;
  }

  box(row, { x, y, width, height }) {
    const amount = (value) => FlameText.quantity(value, this.unit);
    const share = (value) => FlameText.share(value, this.calls.whole);
    const shown = FlameText.fitted(row.name, CallGraph.LONGEST);
    const shares = `flat ${share(row.flat)}, cum ${share(row.cum)}`;
    const words = `${row.name}, flat ${amount(row.flat)}, cum ${amount(row.cum)}`;
    const isFound = this.matches !== null && this.matches[row.number] === 1;
    const box = CallGraph.svg("g", {
      class: `call-box call-${row.kind}${isFound ? " call-found" : ""}`, tabindex: 0, role: "button",
      "aria-label": `${shown} ${shares}: ${words}`, transform: `translate(${x - width / 2} ${y - height / 2})`,
    });
    box.dataset.name = row.name;
    const line = (text, top, name) => {
      const made = CallGraph.svg("text", { x: width / 2, y: top, class: name, "text-anchor": "middle" });
      made.textContent = text;
      return made;
    };
    const title = CallGraph.svg("title", {});
    title.textContent = words;
    const frame = CallGraph.svg("rect", { width, height, rx: 4 });
    frame.append(title); // a title of the box would be a part of its visible text
    box.append(frame, line(shown, 18, "call-name"), " ", line(shares, 35, "call-value"));
    box.addEventListener("click", () => this.onchoose(row));
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.onchoose(row);
    });
    return box;
  }

  /* As large as there is room, if that can be read, when another graph is drawn. */
  fit() {
    if (this.fitted !== this.graph && this.scroller.clientWidth > 0) {
      this.fitted = this.graph;
      const scale = this.scroller.clientWidth / this.graph.graph().width;
      this.scale = Math.min(Math.max(scale, CallGraph.SCALES[0]), 1);
    }
    this.size();
  }

  size() {
    const { width, height } = this.graph.graph();
    const svg = this.scroller.firstChild;
    if (!(width > 0)) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width * this.scale);
    svg.setAttribute("height", height * this.scale);
  }

  static svg(tag, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }
}
