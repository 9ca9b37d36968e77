"use strict";
// The functions of a profile as a table, and its largest place in a sentence.

const MAX_ROWS = 100; // more come with a button
const INSIDE_GO = new Set(["runtime", "internal", "sync", "reflect"]);

/** The same function, which keeps its last result: one profile is drawn many times. */
function remembering(compute) {
  let last = null;
  let result;
  return (...given) => {
    if (!last || given.some((each, index) => each !== last[index])) {
      result = compute(...given);
      last = given;
    }
    return result;
  };
}

/** Whether a function is of Go's runtime, sync, internal or reflect packages: its callers matter. */
function isInsideGo(name) {
  const path = name.split("[", 1)[0];
  const slash = path.indexOf("/");
  if (slash >= 0 && path.slice(0, slash).includes(".")) return false;
  return INSIDE_GO.has(path.split(/[/.]/, 1)[0]);
}

/** The idle waits of a profile: a row for each rule that found some, and the sum. */
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

/** The place with the largest value, in a sentence; "" if there is none. `kind` is the server's
    description of the kind of profile. */
const headline = remembering((profile, kind, valueIndex, hideIdle) => {
  const isOfFunctions = kind.table.rows === "functions";
  const { strings, frames, stacks, values, idle, operations } = profile;
  const isInside = frames.map(([name]) => isInsideGo(strings[name]));
  // Frames with the same text are one place, which has the number of the first of them.
  const places = new Map();
  const placeOf = frames.map(([name, , line], index) => {
    const place = isOfFunctions ? `${name}` : `${name} ${line}`;
    if (!places.has(place)) places.set(place, index);
    return places.get(place);
  });
  const sums = new Map();
  let total = 0;
  stacks.forEach((stack, index) => {
    const value = values[index][valueIndex];
    if ((hideIdle && idle[index] >= 0) || !stack.length) return;
    total += value;
    let at = stack.length - 1;
    if (!isOfFunctions) {
      while (at > 0 && isInside[stack[at]]) at -= 1;
    }
    const key = operations[index] * frames.length + placeOf[stack[at]];
    let known = sums.get(key);
    if (!known) {
      const [name, file, line] = frames[stack[at]];
      known = { value: 0, count: 0, operation: strings[operations[index]], name, file, line };
      sums.set(key, known);
    }
    known.value += value;
    known.count += values[index][0];
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
  if (isOfFunctions) return `${share} ${kind.headline} ${name} (${formatValue(worst.value, unit)})`;
  const operation = FlameText.printable(worst.operation);
  return `${share} ${kind.headline} ${operation ? `${operation} in ` : ""}${where} (${amount} ${kind.events})`;
});

class FunctionTable {
  /** `onchoose(name)` is called with the name of a function that was clicked. */
  constructor(container, { onchoose, onsort }) {
    this._container = container;
    this._onchoose = onchoose;
    this._onsort = onsort;
    this._most = MAX_ROWS;
  }

  /** `rows` are those of FlameGraph.functions(), of values of that unit which are `total` in all;
      `count` is the heading of their counts. With `isCompared` there is a column of changes. */
  show(rows, shown) {
    const { unit, total, count, sort, filter, isCompared } = shown;
    this._shown = [rows, shown];
    const columns = [
      ["flat", "Flat", (row) => row.flat],
      ["cumulative", "Cumulative", (row) => row.total],
      ["count", count, (row) => row.count],
      ["mean", "Mean", (row) => (row.count ? row.total / row.count : 0)],
      ["change", "Change of flat", (row) => row.flat - row.baseFlat],
      ["name", "Function", (row) => row.name],
    ].filter(([key]) => key !== "change" || isCompared);
    const [by, , valueOf] = columns.find(([key]) => key === sort) || columns[0];
    const text = filter.trim().toLowerCase();
    const wanted = rows.filter((row) => row.name.toLowerCase().includes(text));
    const byName = (one, other) => (one.name < other.name ? -1 : one.name > other.name ? 1 : 0);
    wanted.sort((one, other) => by === "name" ? byName(one, other)
      : valueOf(other) - valueOf(one) || other.total - one.total || byName(one, other));
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
    for (const row of wanted.slice(0, this._most)) {
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
      for (const [key, , valueOf] of columns.slice(0, -1)) {
        const value = valueOf(row);
        const sign = key === "change" && value > 0 ? "+" : "";
        const isPart = key === "flat" || key === "cumulative";
        number(sign + formatValue(value, key === "count" ? "count" : unit), isPart ? formatShare(value, total) : "");
      }
      const name = document.createElement("button");
      name.type = "button";
      name.className = "function";
      name.textContent = row.name;
      name.title = "Search for it in the flame graph";
      name.addEventListener("click", () => this._onchoose(row.name));
      line.insertCell().append(name);
    }
    const rest = document.createElement(wanted.length > this._most ? "button" : "p");
    if (wanted.length > this._most) {
      rest.type = "button";
      rest.textContent = `All ${wanted.length} functions`;
      rest.addEventListener("click", () => {
        this._most = Infinity;
        this.show(...this._shown);
      });
    } else if (!wanted.length) {
      rest.textContent = "No function.";
    }
    const focused = this._container.contains(document.activeElement) ? document.activeElement.textContent : null;
    this._container.replaceChildren(table, rest);
    if (focused !== null) {
      const again = [...this._container.querySelectorAll("button")].find((each) => each.textContent === focused);
      if (again) again.focus();
    }
  }
}
