"use strict";
// The table of served processes, to search and sort.

const FINDING_WORDS = {
  deadlock: ["deadlock", "deadlocks"], lost_wake: ["lost wake", "lost wakes"], asleep: ["all asleep", "all asleep"],
  hanging: ["group that hangs", "groups that hang"], leak: ["leak", "leaks"], growth: ["memory leak", "memory leaks"],
};

/** "1 deadlock, 2 leaks" */
function findingWords(findings) {
  const counts = new Map();
  for (const { kind } of findings) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts].map(([kind, count]) => {
    const [one, many] = FINDING_WORDS[kind] ?? [kind, kind];
    return `${count} ${count === 1 ? one : many}`;
  }).join(", ");
}

/** What is known of a process beside its numbers: findings, how it ended, or why it is not served. */
function processNotes(each) {
  const says = each.ended || !each.supported || !each.kinds.length ? each.says || each.why_not : "";
  return [says, findingWords(each.findings)].filter(Boolean).join(" ");
}

// [key, heading, value to sort by, text of (value, process)]; "+": of more, not all were read
const PROCESS_COLUMNS = [
  ["name", "Name", (each) => each.name],
  ["pid", "PID", (each) => each.pid],
  ["cpu", "CPU", (each) => each.cpu ?? -1, (cpu) => (cpu < 0 ? "-" : `${FlameText.threeDigits(100 * cpu)} %`)],
  ["memory", "Memory", (each) => each.memory_bytes ?? -1, (bytes) => (bytes < 0 ? "-" : formatValue(bytes, "bytes"))],
  ["goroutines", "Goroutines", (each) => each.goroutines ?? -1, (count, each) => (count < 0 ? "-" : `${formatValue(count, "count")}${each.not_read ? "+" : ""}`)],
  ["notes", "Findings", processNotes],
  ["go", "Go", (each) => each.go || ""],
  ["user", "User", (each) => each.user],
  ["container", "Container", (each) => (each.container || "").slice(0, 12)],
  ["command", "Command", (each) => each.command],
];
const PROCESS_NUMBERS = ["pid", "cpu", "memory", "goroutines"];

class ProcessTable {
  /** `hrefOf(process)` is the link that shows a process. */
  constructor(section, { hrefOf }) {
    this._hrefOf = hrefOf;
    this._processes = [];
    this._sort = "name";
    this._isDown = false;
    this._search = section.querySelector("input");
    this._search.addEventListener("input", () => this._draw());
    this._count = section.querySelector("[data-count]");
    this._table = section.querySelector("table");
    this._heads = PROCESS_COLUMNS.map(([key, title]) => this._head(key, title));
    this._table.createTHead().insertRow().append(...this._heads);
    this._body = this._table.createTBody();
  }

  /** Show these processes, as the server describes them. */
  show(processes) {
    const found = JSON.stringify(processes);
    if (found === this._found) return; // a row that has the focus keeps it
    this._found = found;
    this._processes = processes;
    this._draw();
  }

  _head(key, title) {
    const head = document.createElement("th");
    head.scope = "col";
    head.className = key;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = title;
    button.addEventListener("click", () => {
      this._isDown = this._sort === key ? !this._isDown : ["cpu", "memory", "goroutines", "notes"].includes(key);
      this._sort = key;
      this._draw();
    });
    head.append(button);
    return head;
  }

  _draw() {
    const text = this._search.value.trim().toLowerCase();
    const matches = (each) => PROCESS_COLUMNS.some(([key, , valueOf]) => (key === "pid" || !PROCESS_NUMBERS.includes(key)) && String(valueOf(each)).toLowerCase().includes(text));
    const shown = this._processes.filter(matches).sort((one, other) => this._compare(one, other));
    PROCESS_COLUMNS.forEach(([key], index) => {
      const order = key !== this._sort ? "none" : this._isDown ? "descending" : "ascending";
      this._heads[index].setAttribute("aria-sort", order);
    });
    const focused = this._body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this._body.replaceChildren(...shown.map((each) => this._row(each)));
    if (focused) for (const link of this._body.querySelectorAll("a")) if (link.getAttribute("href") === focused) link.focus();
    const all = this._processes.length;
    this._count.textContent = !all ? "No process is served yet." : text ? `${shown.length} of ${all}` : String(all);
  }

  _compare(one, other) {
    const [, , valueOf] = PROCESS_COLUMNS.find(([key]) => key === this._sort);
    const [first, second] = [valueOf(one), valueOf(other)];
    const order = typeof first === "number" ? first - second : first.localeCompare(second, "en", { numeric: true });
    return (this._isDown ? -order : order) || one.pid - other.pid;
  }

  _row(process) {
    const row = document.createElement("tr");
    row.dataset.pid = process.pid;
    for (const [key, , valueOf, textOf = (value) => String(value)] of PROCESS_COLUMNS) {
      const cell = row.insertCell();
      cell.className = PROCESS_NUMBERS.includes(key) ? `${key} number` : key;
      const text = FlameText.printable(textOf(valueOf(process), process));
      if (key === "name" && process.kinds.length) {
        const link = document.createElement("a");
        link.href = this._hrefOf(process);
        link.textContent = text;
        cell.append(link);
      } else {
        cell.textContent = text;
      }
      if (key === "notes" && process.findings.length) {
        cell.dataset.worst = ["deadlock", "lost_wake", "asleep"].some((kind) => process.findings.some((each) => each.kind === kind)) ? "bad" : "mark";
        cell.title = FlameText.printable(process.findings.map(({ title }) => title).join("\n"));
      }
      if (key === "command") cell.title = text;
    }
    return row;
  }
}
