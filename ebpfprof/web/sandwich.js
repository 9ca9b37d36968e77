"use strict";
/* One function with all that calls it above, and all that it calls below: two flame graphs. */

class Sandwich {
  /* `actions` are those of FlameGraph. */
  constructor(container, { actions }) {
    this.title = newElement("h2");
    this.note = newElement("p", { className: "quiet" });
    const part = (words) => {
      const place = newElement("section", { ariaLabel: words, className: "sandwich" });
      container.append(newElement("h3", { textContent: words }), place);
      return new FlameGraph(place, { actions });
    };
    container.append(this.title, this.note);
    this.callers = part("Callers");
    this.callees = part("Callees");
    this.parts = null;
  }

  /* `row` is the function, one of FlameGraph.functions(); `whole` is the value of the profile. */
  show(stacks, row, whole, options) {
    if (!this.parts || this.parts.stacks !== stacks || this.parts.number !== row.number) {
      this.parts = { stacks, number: row.number, ...stacks.around(row.number) };
    }
    const type = stacks.profiles[0].sample_types[options.valueIndex];
    const amount = (value) =>
      `${FlameText.quantity(value, type.unit)} (${FlameText.share(value, whole)})`;
    this.title.textContent = row.name;
    this.note.textContent = `flat ${amount(row.flat)}, cum ${amount(row.cum)}. ` +
      "Shares in both graphs are of its cum.";
    const shown = { ...options, groupBy: "", layout: "icicle" };
    this.callers.show(this.parts.callers, { ...shown, inverted: true });
    this.callees.show(this.parts.callees, { ...shown, inverted: false });
  }

  search(text) {
    for (const graph of [this.callers, this.callees]) graph.search(text);
  }
}
