"use strict";
// Goroutines that hang, deadlock or leak, which rates and flame graphs don't show.

class Findings {
  constructor(section) {
    this._section = section;
    this._shown = "";
  }

  /** `found` is the server's answer about the goroutines of a process; null: nothing is known. */
  show(found) {
    const shown = JSON.stringify(found && [found.problem, found.findings]);
    if (shown === this._shown) return; // what a user unfolded stays as it is
    this._shown = shown;
    const unfolded = new Set([...this._section.querySelectorAll("details[open]")].map((each) => each.dataset.place));
    const items = (found ? found.findings : []).map((each) => this._item(each));
    for (const each of items) each.open = unfolded.has(each.dataset.place);
    if (found && found.problem) {
      const problem = document.createElement("p");
      problem.textContent = `Goroutines that hang may be missing here. ${FlameText.printable(found.problem)}`;
      items.push(problem);
    }
    const focused = this._section.contains(document.activeElement) ? document.activeElement.parentElement.dataset.place : null;
    this._section.replaceChildren(...items);
    this._section.hidden = !items.length;
    for (const each of items) if (focused !== null && each.dataset.place === focused) each.firstChild.focus();
  }

  _item(finding) {
    const details = document.createElement("details");
    details.className = finding.kind;
    const [first] = finding.stack;
    details.dataset.place = `${finding.kind} ${first ? `${first.function} ${first.line}` : finding.title}`;
    const title = document.createElement("summary");
    title.textContent = FlameText.printable(finding.title);
    const lines = document.createElement("pre");
    const frames = finding.stack.map((frame) => `${frame.function}\n    ${frame.file.split("/").pop()}:${frame.line}`);
    lines.textContent = [...finding.lines, ...frames.flatMap((text) => text.split("\n"))].map((text) => FlameText.printable(text)).join("\n");
    details.append(title, lines);
    return details;
  }
}
