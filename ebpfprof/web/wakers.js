"use strict";
/* Who woke whom: two flame graphs with one line between them. What woke grows up from it, what
   waited grows down. A frame that is zoomed on one side leaves only its partners on the other.

   A stack of a wakers profile is, from the root on, that of the waker, a frame of its own, and that
   of the goroutine that waited (ebpfprof/profile/wakers.py). */

class Wakers {
  static BETWEEN = "[woken by]";
  static SIDES = ["waker", "waited"];

  /* Whether all stacks of a profile (json_profile.py) are pairs. */
  static arePairs({ frames, strings, stacks }) {
    const between = frames.findIndex(([name]) => strings[name] === Wakers.BETWEEN);
    return between >= 0 && stacks.every((stack) => stack.includes(between));
  }

  /* `actions` are those of FlameGraph; `onzoom({waker, waited})` gets the zoomed frames, as paths. */
  constructor(container, { actions, onzoom }) {
    this.onzoom = onzoom;
    this.note = newElement("p", { className: "quiet", ariaLive: "polite" });
    const part = (side, words) => {
      const place = newElement("section", { ariaLabel: words, className: `sandwich ${side}` });
      const graph = new FlameGraph(place, { actions, onZoom: () => this.zoomed(side) });
      return [place, graph];
    };
    const [above, waker] = part("waker", "What woke");
    const [below, waited] = part("waited", "What waited");
    const line = newElement("p", { className: "between" },
      newElement("span", { textContent: "▲ what woke" }), newElement("span", { textContent: "▼ what waited" }));
    container.append(this.note, above, line, below);
    this.graphs = { waker, waited };
  }

  /* `whole` is the value of the profile, `zoom` has the paths of both zoomed frames. */
  show(stacks, whole, options, zoom) {
    if (this.stacks !== stacks) this.parts = Wakers.sides(stacks);
    const layouts = options.inverted ? ["icicle", "flame"] : ["flame", "icicle"];
    Object.assign(this, { stacks, whole, options: { ...options, groupBy: "" } });
    this.layouts = { waker: layouts[0], waited: layouts[1] };
    for (const side of Wakers.SIDES) this.draw(side, this.parts[side]);
    for (const side of Wakers.SIDES) this.graphs[side].zoomToPath(zoom[side]);
    this.match("waited");
  }

  search(text) {
    for (const side of Wakers.SIDES) this.graphs[side].search(text);
  }

  /* The stacks of a profile, cut into those of wakers and those of what waited. */
  static sides(stacks) {
    const between = stacks.names.names.indexOf(Wakers.BETWEEN);
    const [ends, starts] = [stacks.ends.slice(), stacks.starts.slice()];
    for (let stack = 0; stack < stacks.length; stack++) {
      const at = stacks.functions.indexOf(between, stacks.starts[stack]);
      ends[stack] = at;
      starts[stack] = at + 1;
    }
    const part = (cut) => Object.assign(Object.create(stacks), cut);
    return { waker: part({ ends }), waited: part({ starts }) };
  }

  draw(side, stacks) {
    this.graphs[side].show(stacks, { ...this.options, layout: this.layouts[side] });
  }

  /* The user zoomed on one side. */
  zoomed(side) {
    this.match(side);
    const [waker, waited] = Wakers.SIDES.map((each) => this.graphs[each].zoomPath);
    this.onzoom({ waker, waited });
  }

  /* Leaves on each side the stacks of the frame that the other one is zoomed to, first on the side
     where that may no longer be there. */
  match(side) {
    const other = Wakers.SIDES.find((each) => each !== side);
    for (const [one, from] of [[other, side], [side, other]]) {
      const { tree, zoomed } = this.graphs[from];
      const isKept = this.parts[from].through(tree.numbersTo(zoomed), tree.inverted);
      this.draw(one, Object.assign(Object.create(this.parts[one]), { isKept }));
    }
    this.showNote();
  }

  showNote() {
    const { waker, waited } = this.graphs;
    const isWhole = waker.zoomed === 0 && waited.zoomed === 0;
    const name = (graph, all) => (graph.zoomed === 0 ? all : graph.info(graph.zoomed).name);
    const { value, unit } = waited.info(waited.zoomed);
    const amount = `${FlameText.quantity(value, unit)} (${FlameText.share(value, this.whole)})`;
    this.note.textContent = isWhole
      ? "Click a frame on one side to see its partners on the other."
      : `${name(waited, "All waits")}, woken by ${name(waker, "anything")}: ${amount}`;
  }
}
