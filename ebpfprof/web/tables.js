"use strict";
// What a profile says of functions, as a table and in a sentence.

const MAX_ROWS = 200;
const INSIDE_GO = new Set(["runtime", "internal", "sync", "reflect"]);

/** The same function, but it remembers its last answer: the same profile is shown in many ways. */
function remembering(compute) {
  let asked = null;
  let answer;
  return (...question) => {
    if (!asked || question.some((each, index) => each !== asked[index])) {
      answer = compute(...question);
      asked = question;
    }
    return answer;
  };
}

/** Whether a function is one of Go's own that wait: the first path element has no dot. */
function isInsideGo(name) {
  const path = name.split("[", 1)[0];
  const slash = path.indexOf("/");
  if (slash >= 0 && path.slice(0, slash).includes(".")) return false;
  return INSIDE_GO.has(path.split(/[/.]/, 1)[0]);
}

/** The sums of each function over all stacks but the idle ones, if these are to be hidden. */
const functionRows = remembering((profile, valueIndex, hideIdle) => {
  const { strings, frames, stacks, values, idle } = profile;
  const names = Int32Array.from(frames, (frame) => frame[0]);
  const [flat, cumulative, count] = [1, 2, 3].map(() => new Float64Array(strings.length));
  const seen = new Int32Array(strings.length).fill(-1); // a recursive function counts once
  let total = 0;
  stacks.forEach((stack, index) => {
    if (hideIdle && idle[index] >= 0) return;
    const value = values[index][valueIndex];
    const times = values[index][0];
    total += value;
    for (const frame of stack) {
      const name = names[frame];
      if (seen[name] === index) continue;
      seen[name] = index;
      cumulative[name] += value;
      count[name] += times;
    }
    if (stack.length) flat[names[stack[stack.length - 1]]] += value;
  });
  const rows = [];
  seen.forEach((index, name) => {
    if (index < 0) return;
    rows.push({
      name: FlameText.printable(strings[name]), flat: flat[name], cumulative: cumulative[name], count: count[name],
      mean: count[name] ? cumulative[name] / count[name] : 0,
    });
  });
  return { rows, total };
});

/** What was hidden as idle: a row for each rule, and the sum. */
function idleRows(profile, valueIndex) {
  const rows = profile.idle_rules.map((rule) => ({ ...rule, value: 0, count: 0 }));
  profile.idle.forEach((rule, index) => {
    if (rule < 0) return;
    rows[rule].value += profile.values[index][valueIndex];
    rows[rule].count += profile.values[index][0];
  });
  rows.sort((one, other) => other.value - one.value);
  return { rows: rows.filter((row) => row.count), sum: rows.reduce((sum, row) => sum + row.value, 0) };
}

/** The worst place, in a sentence; "" if there is none. */
const headline = remembering((profile, valueIndex, hideIdle) => {
  const { strings, frames, stacks, values, idle, operations } = profile;
  const isInside = frames.map(([name]) => isInsideGo(strings[name]));
  const sums = new Map();
  let total = 0;
  stacks.forEach((stack, index) => {
    const value = values[index][valueIndex];
    if ((hideIdle && idle[index] >= 0) || !stack.length) return;
    total += value;
    let at = stack.length - 1;
    if (profile.kind !== "cpu") {
      while (at > 0 && isInside[stack[at]]) at -= 1;
    }
    const [name, file, line] = frames[stack[at]];
    const key = profile.kind === "cpu" ? `${name}` : `${operations[index]} ${name} ${line}`;
    const known = sums.get(key) || { value: 0, count: 0, operation: strings[operations[index]], name, file, line };
    known.value += value;
    known.count += values[index][0];
    sums.set(key, known);
  });
  let worst = null;
  for (const each of sums.values()) if (!worst || each.value > worst.value) worst = each;
  if (!worst || !total) return "";
  const share = `${Math.round(100 * worst.value / total)} %`;
  const name = FlameText.printable(strings[worst.name]);
  const file = FlameText.printable(strings[worst.file].split("/").pop());
  const where = `${name}${file ? `, ${file}:${worst.line}` : ""}`;
  const unit = profile.sample_types[valueIndex].unit;
  const amount = `${formatValue(worst.value, unit)} in ${formatValue(worst.count, "count")}`;
  if (profile.kind === "cpu") return `${share} of CPU time: ${name} (${formatValue(worst.value, unit)})`;
  const what = profile.kind === "mutex" ? "of the waiting for locks: until" : "of waiting:";
  const noun = profile.kind === "mutex" ? "releases" : "waits";
  return `${share} ${what} ${worst.operation} in ${where} (${amount} ${noun})`;
});

class FunctionTable {
  /** `onchoose(name)` is called with the name of a function that was clicked. */
  constructor(container, { onchoose, onsort }) {
    this._container = container;
    this._onchoose = onchoose;
    this._onsort = onsort;
  }

  show(profile, { valueIndex, hideIdle, sort, filter }) {
    const { rows, total } = functionRows(profile, valueIndex, hideIdle);
    const unit = profile.sample_types[valueIndex].unit;
    const columns = [["flat", "Flat"], ["cumulative", "Cumulative"], ["count", "Count"], ["mean", "Mean"], ["name", "Function"]];
    const wanted = filter ? rows.filter((row) => row.name.toLowerCase().includes(filter.toLowerCase())) : [...rows];
    const by = columns.some(([key]) => key === sort) ? sort : "flat";
    wanted.sort((one, other) => by === "name" ? one.name.localeCompare(other.name)
      : other[by] - one[by] || other.cumulative - one.cumulative || one.name.localeCompare(other.name));
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const [key, title] of columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.setAttribute("aria-sort", key === by ? (key === "name" ? "ascending" : "descending") : "none");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = title;
      button.addEventListener("click", () => this._onsort(key));
      cell.append(button);
      head.append(cell);
    }
    const body = table.createTBody();
    for (const row of wanted.slice(0, MAX_ROWS)) {
      const line = body.insertRow();
      const number = (text, share) => {
        const cell = line.insertCell();
        cell.className = "number";
        cell.append(text);
        if (share) {
          const small = document.createElement("small");
          small.textContent = share;
          cell.append(" ", small);
        }
      };
      number(formatValue(row.flat, unit), formatShare(row.flat, total));
      number(formatValue(row.cumulative, unit), formatShare(row.cumulative, total));
      number(formatValue(row.count, "count"));
      number(formatValue(row.mean, unit));
      const name = document.createElement("button");
      name.type = "button";
      name.className = "function";
      name.textContent = row.name;
      name.title = "Search it in the flame graph";
      name.addEventListener("click", () => this._onchoose(row.name));
      line.insertCell().append(name);
    }
    const more = wanted.length - MAX_ROWS;
    const rest = document.createElement("p");
    rest.textContent = more > 0 ? `${more} more functions` : wanted.length ? "" : "No function.";
    const focused = this._container.contains(document.activeElement) ? document.activeElement.textContent : null;
    this._container.replaceChildren(table, rest);
    if (focused !== null) {
      const again = [...this._container.querySelectorAll("button")].find((each) => each.textContent === focused);
      if (again) again.focus();
    }
  }
}
