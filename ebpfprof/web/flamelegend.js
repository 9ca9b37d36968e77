"use strict";
/* What the colours of a flame graph mean. */

class FlameLegend {
  static KINDS = [
    ["go", "Go"], ["std", "Go's runtime and library"], ["native", "C and other languages"],
    ["kernel", "kernel"],
  ];
  static CHANGES = [
    [-1, "only in the base"], [-0.4, "shrank"], [0, "the same"], [0.4, "grew"],
    [1, "not in the base"],
  ];

  /* `drawing` is the FlameCanvas whose colours these are. */
  constructor(drawing) {
    this.drawing = drawing;
    this.element = document.createElement("div");
    this.element.className = "flame-legend";
  }

  /* Fills it for these stacks, or leaves it empty without. The base was multiplied by `baseScale`. */
  show(stacks, baseScale) {
    const [profile, base] = stacks ? stacks.profiles : [];
    this.element.hidden = !profile;
    if (!profile) return;
    const { drawing } = this;
    const kinds = new Set(stacks.names.kinds);
    const entries = base
      ? FlameLegend.CHANGES.map(([change, words]) => [drawing.changeColour(change), words])
      : FlameLegend.KINDS.filter(([kind]) => kinds.has(kind)).map(
          ([kind, words]) => [drawing.kindColour(kind, ""), words],
        );
    if (drawing.marks.matches) entries.push([drawing.style("match"), "found"]);
    const parts = entries.map(([colour, words]) => FlameLegend.entry(colour, words));
    const note = document.createElement("span");
    note.textContent = base ? FlameLegend.note(profile, base, baseScale) : "";
    this.element.replaceChildren(...parts, ...(base ? [note] : []));
  }

  static entry(colour, words) {
    const entry = document.createElement("span");
    const swatch = document.createElement("i");
    swatch.style.background = colour;
    entry.append(swatch, words);
    return entry;
  }

  static note(profile, base, baseScale) {
    const words = "A frame is as wide as both profiles together.";
    if (baseScale === 1) return words;
    const length = (each) => FlameText.quantity(each.duration_s, "seconds");
    return `${words} The base is scaled by ${FlameText.threeDigits(baseScale)}: it covers ` +
      `${length(base)}, this profile ${length(profile)}.`;
  }
}
