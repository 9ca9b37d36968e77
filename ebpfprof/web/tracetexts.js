"use strict";
/* The texts beside the timeline: a span with its stack, the groups as a table. */

class TraceTexts {
  static MOST_NOTES = 20;

  /* `onjump(goid, time)` is called to show another goroutine. */
  constructor(onjump) {
    this.onjump = onjump;
    this.span = newElement("section", { id: "span" });
    this.span.setAttribute("aria-live", "polite");
    this.unrecorded = newElement("p", { id: "unrecorded", className: "quiet" });
    this.table = newElement("table", { id: "groups" });
  }

  /* Notes in one line. */
  static listed(data, notes) {
    const shown = notes.slice(0, TraceTexts.MOST_NOTES).map((note) => data.notes[note]);
    return shown.join(", ") + (notes.length > shown.length ? `, and ${notes.length - shown.length} more` : "");
  }

  /* A section with the tasks that the program reported, by type; null if it reported none. */
  static tasks({ tasks, states }) {
    if (!tasks.length) return null;
    const time = (ns) => (ns ? FlameText.quantity(ns, "nanoseconds") : "");
    const head = (text) => newElement("th", { textContent: text, scope: "col", className: text === "task" ? "text" : "number" });
    const cell = (textContent, className = "number") => newElement("td", { textContent, className });
    const rows = tasks.map(({ name, tasks: number, lengths, spent, waits }) => newElement("tr", {},
      cell(String(number)), ...[...lengths, ...spent].map((ns) => cell(time(ns))),
      cell(name || "(began before the trace)", ""), cell(waits.map(([what, ns]) => `${what} ${time(ns)}`).join(", "), "")));
    return newElement("section", { id: "tasks" }, newElement("h2", { textContent: "Tasks" }),
      newElement("p", { className: "quiet", textContent: "Times of goroutines in regions of a task, or that began and ended it." }),
      newElement("div", { className: "scroll ranked" }, newElement("table", {},
        newElement("thead", {}, newElement("tr", {}, ...["tasks", "p50", "p99", "max", ...states, "task", "waits for"].map(head))),
        newElement("tbody", {}, ...rows))));
  }

  /* What a span is, and since when; `selected` is {goroutine, index} or null. */
  showSpan(data, selected) {
    if (!selected) {
      this.span.replaceChildren(newElement("p", { className: "quiet",
        textContent: "Click a goroutine's time to see what it did, its stack, and who woke it. Click a group to see its goroutines." }));
      return;
    }
    const { goroutine, index } = selected, length = goroutine.ends[index] - goroutine.begins[index];
    const time = (ns) => FlameText.quantity(ns, "nanoseconds");
    const state = data.states[goroutine.states[index]], what = data.what(goroutine, index);
    const parts = [newElement("h2", { textContent: `${goroutine.title}: ${what} for ${time(length)}` })];
    const lines = [`from ${time(goroutine.begins[index])} to ${time(goroutine.ends[index])}`];
    if (state === "running") lines.push(`on P${goroutine.ps[index]}, thread ${goroutine.tids[index]}`);
    if (state === "runnable" && data.words[goroutine.words[index]]) lines.push(data.words[goroutine.words[index]]);
    parts.push(newElement("p", { textContent: lines.join(", ") }));
    const thing = data.thing(goroutine, index);
    if (thing) parts.push(newElement("p", { id: "thing", textContent: `waits ${thing}` }));
    if (goroutine.created) {
      const by = goroutine.parent ? ` in G${goroutine.parent}` : "";
      parts.push(newElement("p", { className: "quiet", textContent: `created by ${goroutine.created}${by}` }));
    }
    for (const [key, value] of data.labels[goroutine.labels[index]] ?? []) {
      parts.push(newElement("p", { textContent: `${key} = ${value}` }));
    }
    const regions = goroutine.regionsBetween(goroutine.begins[index], goroutine.ends[index]);
    const messages = goroutine.messagesBetween(goroutine.begins[index], goroutine.ends[index]);
    if (regions.length) parts.push(newElement("p", { id: "regions", textContent: `in ${TraceTexts.listed(data, regions)}` }));
    if (messages.length) parts.push(newElement("p", { id: "messages", textContent: `reported ${TraceTexts.listed(data, messages)}` }));
    parts.push(...this.around(data, goroutine, index));
    const frames = data.frames(goroutine.stacks[index]);
    if (frames.length) {
      const head = state === "runnable" ? "Stack of what made it runnable:" : "Stack:";
      parts.push(newElement("p", { className: "quiet", textContent: head }),
        newElement("pre", { textContent: frames.map(({ name, place }) => `${name}\n    ${place}`).join("\n") }));
    }
    this.span.replaceChildren(...parts);
  }

  /* Buttons that lead to its waker, and to what it did before and after. */
  around(data, goroutine, index) {
    const button = (text, goid, time) => {
      const found = newElement("button", { type: "button", textContent: text });
      found.addEventListener("click", () => this.onjump(goid, time));
      return found;
    };
    const found = [];
    const woken = data.states[goroutine.states[index]] === "waiting" ? index + 1 : index;
    const by = woken < goroutine.length ? data.byGoid.get(goroutine.by[woken]) : undefined;
    if (by) found.push(button(`Woken by ${by.title}`, by.goid, goroutine.begins[woken]));
    if (index > 0) found.push(button("Before", goroutine.goid, goroutine.begins[index - 1]));
    if (index + 1 < goroutine.length) found.push(button("After", goroutine.goid, goroutine.begins[index + 1]));
    return found.length ? [newElement("p", { className: "bar" }, ...found)] : [];
  }

  /* What the groups did between two times. */
  showGroups(data, groups, from, to) {
    const cell = (text, isNumber) => newElement("td", { textContent: text, className: isNumber ? "number" : "" });
    const unrecorded = data.unrecorded(from, to), time = (ns) => FlameText.quantity(ns, "nanoseconds");
    this.unrecorded.textContent = unrecorded
      ? `${time(to - from)} shown, not recorded: ${time(unrecorded)} (${FlameText.share(unrecorded, to - from)}). The totals exclude that.` : "";
    const heads = [...data.states, "goroutines", "function"].map((text) => newElement("th",
      { textContent: text, scope: "col", className: text === "function" ? "text" : "number" }));
    const rows = groups.slice(0, 50).map((group) => {
      const spent = data.spent(group, from, to).map((ns) => cell(ns ? FlameText.quantity(ns, "nanoseconds") : "", true));
      return newElement("tr", {}, ...spent, cell(String(group.members.length), true), cell(group.name, false));
    });
    this.table.replaceChildren(newElement("thead", {}, newElement("tr", {}, ...heads)), newElement("tbody", {}, ...rows));
  }
}
