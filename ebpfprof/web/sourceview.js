"use strict";
/* The files of a profile, line by line with what each costs, and with their text where it is known. */

/* What files and their lines cost, of the stacks that a FlameTree shows: `files` is by path
   {path, flat, cum, lines}, and lines by number {flat, cum, names}. */
class SourceCosts {
  constructor({ shown, values, stacks: { ofProfile, profiles } }) {
    const [{ strings, frames, stacks, own = [] }] = profiles;
    this.files = new Map();
    this.ofProgram = new Map(); // values by file and line of the innermost frames of the program
    const isOther = frames.map(([name, file, , mapping]) =>
      FlameNames.kindOf(strings[name], strings[file], strings[mapping]) === "go");
    const places = frames.map(([name, file, line]) => this.place(strings[file], line, strings[name]));
    for (const stack of shown) {
      if (stack >= ofProfile) continue;
      const value = values[stack];
      const calls = stacks[stack];
      const program = own[stack] >= 0 ? own[stack] : calls.findLast((frame) => isOther[frame]);
      if (program !== undefined) this.addProgram(strings[frames[program][1]], frames[program][2], value);
      calls.forEach((frame, i) => {
        for (const place of places[frame]) {
          if (place.seen !== stack) place.cum += value; // once for recursive calls
          place.seen = stack;
          if (i === calls.length - 1) place.flat += value;
        }
      });
    }
  }

  addProgram(path, line, value) {
    if (!path || line <= 0) return;
    if (!this.ofProgram.has(path)) this.ofProgram.set(path, { value: 0, lines: new Map() });
    const file = this.ofProgram.get(path);
    file.value += value;
    file.lines.set(line, (file.lines.get(line) ?? 0) + value);
  }

  /* The file where most is spent in the program's own code, "" if there is none. */
  get programFile() {
    const [first] = [...this.ofProgram].sort((a, b) => b[1].value - a[1].value);
    return first ? first[0] : "";
  }

  /* The line of a file where most is spent: in the program's own code, or in what it calls. */
  dearestLine({ path, lines }) {
    const own = this.ofProgram.get(path);
    if (own) return [...own.lines].reduce((a, b) => (b[1] > a[1] ? b : a))[0];
    return [...lines].reduce((a, b) => (b[1].flat > a[1].flat || (b[1].flat === a[1].flat && b[1].cum > a[1].cum) ? b : a))[0];
  }

  /* The file and the line, which both are charged. */
  place(path, line, name) {
    if (!path || line <= 0) return [];
    if (!this.files.has(path)) this.files.set(path, { path, flat: 0, cum: 0, seen: -1, lines: new Map() });
    const file = this.files.get(path);
    if (!file.lines.has(line)) file.lines.set(line, { flat: 0, cum: 0, seen: -1, names: new Set() });
    const found = file.lines.get(line);
    found.names.add(name);
    return [file, found];
  }

  /* The files that cost something, the most expensive first. */
  get dearest() {
    const files = [...this.files.values()].filter((file) => file.cum > 0);
    return files.sort((a, b) => b.flat - a.flat || b.cum - a.cum || (a.path < b.path ? -1 : 1));
  }
}

class SourceView {
  /* `onchoose(path)` is called with the file that is to be shown. */
  constructor(container, { onchoose }) {
    this.choice = newElement("select", { id: "source-file" });
    this.choice.addEventListener("change", () => onchoose(this.choice.value));
    this.note = newElement("p", { className: "quiet" });
    this.note.setAttribute("aria-live", "polite");
    this.lines = newElement("div", {
      className: "source-lines", tabIndex: 0, role: "region", ariaLabel: "Lines of the file",
    });
    container.append(newElement("div", { className: "bar" },
      newElement("label", { className: "grow" }, "File ", this.choice)), this.note, this.lines);
    this.known = new Map();
  }

  /* Shows a file of the stacks that the tree shows. `sources.get(path)` promises {path, changed,
     lines}, lines by their numbers, or throws an error with a sentence. */
  async show(tree, unit, path, sources) {
    if (tree !== this.tree) {
      this.costs = new SourceCosts(tree);
      this.known.clear(); // it may name other lines
    }
    this.tree = tree;
    const files = this.costs.dearest;
    const named = (wanted) => files.find((each) => each.path === wanted);
    const file = named(path) ?? named(this.costs.programFile) ?? files[0];
    const whole = tree.later[0];
    const options = files.map((each) => new Option(
      `${FlameText.printable(each.path)}: flat ${FlameText.share(each.flat, whole)}, ` +
      `cum ${FlameText.share(each.cum, whole)}`, each.path));
    this.choice.replaceChildren(...options);
    this.choice.disabled = !file;
    this.lines.hidden = !file;
    this.note.textContent = file ? "" : "The profile has no file names.";
    if (!file) return;
    this.choice.value = file.path;
    if (!this.known.has(file.path)) {
      const problem = (error) => ({ problem: error.message });
      this.known.set(file.path, sources.get(file.path).catch(problem));
    }
    const asked = (this.asked = {});
    const text = await this.known.get(file.path);
    if (asked === this.asked) this.fill(file, text, unit, whole);
  }

  fill(file, text, unit, whole) {
    const { changed, problem, lines } = text;
    const words = changed ? "It changed after the recording began: line numbers may be wrong."
      : "It may have changed since the program was built.";
    this.note.textContent = FlameText.printable(lines ? `From ${text.path} as it is now. ${words}` : problem);
    const numbers = new Set([...file.lines.keys(), ...Object.keys(lines ?? {}).map(Number)]);
    const shown = [...numbers].sort((a, b) => a - b);
    const amount = (value) => value > 0
      ? newElement("td", { className: "number" }, `${FlameText.quantity(value, unit)} `,
        newElement("small", { textContent: FlameText.share(value, whole) }))
      : newElement("td", { className: "number" });
    const rows = [];
    shown.forEach((line, i) => {
      const isGap = lines && i > 0 && line > shown[i - 1] + 1;
      if (isGap) rows.push(newElement("tr", {}, newElement("td", { colSpan: 4, className: "source-gap", textContent: "⋯" })));
      const cost = file.lines.get(line);
      const content = lines ? lines[line] ?? "" : [...cost.names].join(", ");
      rows.push(newElement("tr", { className: cost ? "source-hot" : "" },
        newElement("td", { className: "number", textContent: line }),
        amount(cost ? cost.flat : 0), amount(cost ? cost.cum : 0),
        newElement("td", {}, newElement("code", { textContent: SourceView.clean(content) }))));
    });
    const heads = ["Line", "Flat", "Cum", lines ? "Source" : "Functions"].map((textContent) =>
      newElement("th", { scope: "col", textContent }));
    const table = newElement("table", {}, newElement("thead", {}, newElement("tr", {}, ...heads)),
      newElement("tbody", {}, ...rows));
    const isSame = this.shownPath === file.path;
    const { scrollTop } = this.lines;
    this.lines.replaceChildren(table);
    this.shownPath = file.path;
    if (isSame) this.lines.scrollTop = scrollTop;
    else this.toDearest(table, file);
  }

  toDearest(table, file) {
    const dearest = String(this.costs.dearestLine(file));
    const row = [...table.tBodies[0].rows].find((each) => each.cells[0].textContent === dearest);
    this.lines.scrollTop = row ? row.offsetTop - this.lines.clientHeight / 2 : 0;
  }

  static clean(line) {
    return FlameText.printable(line.replaceAll("\t", "    "));
  }
}
