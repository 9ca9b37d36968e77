"use strict";
/* Who waits for whom, in all of a trace: groups of goroutines and what is outside as boxes, waits as
   arrows. dagre decides where they are. */

class WaitGraph {
  static LETTER = 7.3; // width of a letter of a name, in the units of the drawing
  static LONGEST = 40; // letters of a name
  static LEAST = 0.005; // waits with less than that share of the whole are only in the table

  /* `waits` is what ebpfprof/export/timelines/waits.py writes; `onchoose(name)` is called with the
     function of a box that was clicked. */
  constructor(waits, onchoose) {
    Object.assign(this, { waits, onchoose });
    this.section = newElement("section", { id: "waits" }, newElement("h2", { textContent: "Who waits for whom" }));
    const { findings, hidden, left, edges } = waits;
    for (const textContent of findings) this.section.append(newElement("p", { className: "finding", textContent }));
    if (edges.length) this.section.append(this.drawing(), newElement("div", { className: "scroll ranked" }, this.table()));
    else this.section.append(newElement("p", { className: "quiet", textContent: "No goroutine waited." }));
    const more = left ? `${left === 1 ? "1 shorter one is" : `${left} shorter ones are`} left out. ` : "";
    this.section.append(newElement("p", { className: "quiet", textContent: `${more}${hidden}` }));
  }

  /* Scrolls the drawing, which is on the page by now, to the goroutines that wait longest. */
  reveal() {
    const place = this.section.querySelector(".wait-graph");
    if (place) place.scrollLeft = this.middle - place.clientWidth / 2;
  }

  static time(ns) {
    return FlameText.quantity(ns, "nanoseconds");
  }

  drawing() {
    const graph = new dagre.graphlib.Graph(), { nodes, edges, whole_ns: whole } = this.waits;
    graph.setGraph({ ranksep: 46, nodesep: 18, marginx: 8, marginy: 8 });
    graph.setDefaultEdgeLabel(() => ({}));
    const drawn = edges.filter(({ ns }) => ns >= WaitGraph.LEAST * whole);
    const shown = new Set(drawn.flatMap(({ from, to }) => [from, to]));
    for (const i of shown) {
      const letters = Math.max(FlameText.fitted(nodes[i].name, WaitGraph.LONGEST).length, 24);
      graph.setNode(String(i), { width: letters * WaitGraph.LETTER + 16, height: 44 });
    }
    for (const { from, to, ns } of drawn) {
      if (from !== to) graph.setEdge(String(from), String(to), { weight: 1 + Math.round(20 * ns / whole) });
    }
    dagre.layout(graph);
    const { width, height } = graph.graph();
    this.middle = drawn.length ? graph.node(String(drawn[0].from)).x : 0;
    const svg = WaitGraph.svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
    const arrow = WaitGraph.svg("marker", {
      id: "wait-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 13, markerHeight: 13,
      orient: "auto", markerUnits: "userSpaceOnUse",
    });
    arrow.append(WaitGraph.svg("path", { d: "M0 0 L8 4 L0 8 z", class: "wait-arrow" }));
    svg.append(arrow);
    for (const edge of drawn) if (edge.from !== edge.to) svg.append(this.arrow(edge, graph));
    for (const i of shown) svg.append(this.box(i, graph.node(String(i))));
    return newElement("div", { className: "wait-graph", tabIndex: 0, role: "region", ariaLabel: "Who waits for whom" }, svg);
  }

  described({ from, to, ns, count, longest_ns: longest, is_longest_cut: isCut, causes }) {
    const { nodes } = this.waits, time = WaitGraph.time;
    const ends = causes.map(([text, part]) => `${FlameText.share(part, ns)} ${text}`).join("\n");
    return `${nodes[from].name} waits for ${nodes[to].name}: ${time(ns)} in ${count} waits, the longest ${isCut ? "at least " : ""}${time(longest)}. In the end for\n${ends}`;
  }

  arrow(edge, graph) {
    const { points } = graph.edge(String(edge.from), String(edge.to));
    const path = WaitGraph.svg("path", {
      d: points.map(({ x, y }, i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join(" "),
      class: "wait", "stroke-width": (1 + 6 * edge.ns / this.waits.whole_ns).toFixed(2), "marker-end": "url(#wait-arrow)",
    });
    const title = WaitGraph.svg("title", {});
    title.textContent = this.described(edge);
    path.append(title);
    return path;
  }

  box(i, { x, y, width, height }) {
    const { name, created, goroutines, is_outside: isOutside } = this.waits.nodes[i], { edges } = this.waits;
    const sum = (of) => of.reduce((all, { ns }) => all + ns, 0);
    const waits = sum(edges.filter(({ from }) => from === i)), own = sum(edges.filter(({ from, to }) => from === i && to === i));
    const others = sum(edges.filter(({ from, to }) => to === i && from !== i)), time = WaitGraph.time;
    const texts = [waits ? `waits ${time(waits)}` : "", own ? `${time(own)} for each other` : "",
      !waits && others ? `${time(others)} for it` : ""].filter(Boolean);
    const box = WaitGraph.svg("g", { class: `wait-box${isOutside ? " wait-outside" : ""}`,
      transform: `translate(${x - width / 2} ${y - height / 2})`, ...(isOutside ? {} : { tabindex: 0, role: "button" }) });
    const line = (text, top, kind) => {
      const made = WaitGraph.svg("text", { x: width / 2, y: top, class: kind, "text-anchor": "middle" });
      made.textContent = text;
      return made;
    };
    const title = WaitGraph.svg("title", {});
    title.textContent = [name, goroutines ? `${goroutines} goroutines` : "", created && `created by ${created}`].filter(Boolean).join("\n");
    const frame = WaitGraph.svg("rect", { width, height, rx: 4 });
    frame.append(title);
    box.append(frame, line(FlameText.fitted(name, WaitGraph.LONGEST), 18, "wait-name"), " ", line(texts.join(", "), 35, ""));
    if (isOutside) return box;
    box.addEventListener("click", () => this.onchoose(name));
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.onchoose(name);
    });
    return box;
  }

  table() {
    const { nodes, edges, whole_ns: whole } = this.waits, time = WaitGraph.time;
    const cell = (text, isNumber) => newElement("td", { textContent: text, className: isNumber ? "number" : "" });
    const heads = ["waited", "share", "waits", "longest", "who waits, for whom", "in the end for"];
    const rows = edges.map((edge) => {
      const ends = newElement("td", {}, ...edge.causes.map(([text, ns]) => newElement("div", { textContent: `${FlameText.share(ns, edge.ns)} ${text}` })));
      return newElement("tr", {}, cell(time(edge.ns), true), cell(FlameText.share(edge.ns, whole), true), cell(String(edge.count), true),
        cell(`${edge.is_longest_cut ? ">" : ""}${time(edge.longest_ns)}`, true), cell(`${nodes[edge.from].name} (${edge.reason}) for ${nodes[edge.to].name}`, false), ends);
    });
    return newElement("table", {},
      newElement("thead", {}, newElement("tr", {}, ...heads.map((textContent, i) => newElement("th", { textContent, scope: "col", className: i < 4 ? "number" : "text" })))),
      newElement("tbody", {}, ...rows));
  }

  static svg(tag, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }
}
