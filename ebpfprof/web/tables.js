"use strict";
// The functions of a profile as a table, and its largest place in a sentence.

const MAX_ROWS = 100; // more come with a button

/** The same function with its last result cached: one profile is drawn many times. */
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

/** The idle waits of a profile: a row for each rule that found some, and the sum. */
function idleRows(profile, valueIndex) {
  const rows = profile.idle_rules.map((rule) => ({ ...rule, value: 0, count: 0 }));
  profile.idle.forEach((rule, index) => {
    if (rule < 0) return;
    rows[rule].value += profile.values[index][valueIndex];
    rows[rule].count += profile.values[index][profile.count ?? 0];
  });
  rows.sort((one, other) => other.value - one.value);
  return { rows: rows.filter((row) => row.count), sum: rows.reduce((sum, row) => sum + row.value, 0) };
}

/** The place with the largest value, in a sentence; "" if there is none, or no word for it. */
const headline = remembering((profile, valueIndex, hideIdle) => {
  if (!profile.words) return "";
  if (profile.few_releases) return "";
  const { words } = profile;
  const { unit } = profile.sample_types[valueIndex];
  const rows = words.rows === "functions" ? functionRows(profile, valueIndex, hideIdle) : OperationRows.of(profile, valueIndex, { hideIdle });
  const [worst] = rows;
  if (!worst || !worst.value || worst.share === null) return "";
  const share = `${Math.round(100 * worst.share)} %`;
  const amount = formatValue(worst.value, unit);
  const name = FlameText.printable(worst.function);
  if (words.rows === "functions") return `${share} ${words.headline} ${name} (${amount})`;
  const file = FlameText.printable(worst.file.split("/").pop());
  const where = `${name}${file ? `, ${file}:${worst.line}` : ""}`;
  const events = worst.count ? `${amount} in ${formatValue(worst.count, "count")} ${words.events}` : `${amount}, ${words.events} in progress`;
  const what = unit === "count" || (!profile.counted && unit === "nanoseconds") ? amount : events;
  return `${share} ${words.headline} ${worst.operation ? `${FlameText.printable(worst.operation)} in ` : ""}${where} (${what})`;
});

/** The functions that stacks end in, the largest first, as rows of OperationRows. */
function functionRows({ strings, frames, stacks, values, idle }, valueIndex, hideIdle) {
  const sums = new Map();
  stacks.forEach((stack, index) => {
    if (!stack.length || (hideIdle && idle[index] >= 0)) return;
    const name = strings[frames[stack[stack.length - 1]][0]];
    sums.set(name, (sums.get(name) ?? 0) + values[index][valueIndex]);
  });
  return OperationRows.ranked([...sums].map(([name, value]) => ({ function: name, value, error: 0 })));
}

class FunctionTable {
  /** `onchoose(row)` is called with the row of a function that was clicked. */
  constructor(container, { onchoose, onsort }) {
    this._container = container;
    this._onchoose = onchoose;
    this._onsort = onsort;
    this._most = MAX_ROWS;
  }

  /** `rows` are those of FlameGraph.functions(), of values of that unit which are `total` in all;
      `count` is the heading of their counts, "" for none. `matches` are the functions to show, null
      for all. With `isCompared` there are columns of changes. `action` says what a click does. */
  show(rows, shown) {
    const { total, sort, matches } = shown;
    this._shown = [rows, shown];
    const columns = this._columns(shown);
    const [by, , valueOf] = columns.find(([key]) => key === sort) || columns[0];
    const wanted = rows.filter((row) => matches === null || matches[row.number] === 1);
    const byName = (one, other) => (one.name < other.name ? -1 : one.name > other.name ? 1 : 0);
    wanted.sort((one, other) => by === "name" ? byName(one, other)
      : valueOf(other) - valueOf(one) || other.cum - one.cum || byName(one, other));
    const head = newElement("tr", {}, ...columns.map((column) => this._heading(column, by)));
    const lines = wanted.slice(0, this._most).map((row) => this._line(row, columns, total, shown));
    const table = newElement("table", {}, newElement("thead", {}, head), newElement("tbody", {}, ...lines));
    const focused = this._container.contains(document.activeElement) ? document.activeElement.textContent : null;
    this._container.replaceChildren(table, this._rest(wanted.length));
    if (focused !== null) {
      const again = [...this._container.querySelectorAll("button")].find((each) => each.textContent === focused);
      if (again) again.focus();
    }
  }

  /** [key, heading, value of a row, unit, whether it is a part of the whole, text of (row, unit)] */
  _columns({ unit, count, isCompared }) {
    const columns = [
      ["flat", "Flat", (row) => row.flat, unit, true],
      ["cum", "Cum", (row) => row.cum, unit, true],
    ];
    if (count) {
      columns.push(["count", count, (row) => row.count, "count", false, formatCount]);
      columns.push(["mean", "Mean", (row) => (row.count ? row.cum / row.count : 0), unit, false, formatMean]);
    }
    if (isCompared) {
      columns.push(["change", "Change of flat", (row) => row.flat - row.baseFlat, unit, false]);
      columns.push(["cum-change", "Change of cum", (row) => row.cum - row.base, unit, false]);
    }
    return [...columns, ["name", "Function", (row) => row.name, "", false]];
  }

  _heading([key, title], by) {
    const cell = newElement("th", { scope: "col" });
    cell.setAttribute("aria-sort", key !== by ? "none" : key === "name" ? "ascending" : "descending");
    const button = newElement("button", { type: "button", textContent: title });
    button.addEventListener("click", () => this._onsort(key));
    cell.append(button);
    return cell;
  }

  _line(row, columns, total, { action }) {
    const cells = columns.slice(0, -1).map(([key, , valueOf, unit, isPart, textOf]) => {
      const value = valueOf(row);
      const sign = key.endsWith("change") && value > 0 ? "+" : "";
      const text = textOf ? textOf(row, unit) : sign + formatValue(value, unit);
      const cell = newElement("td", { className: "number" }, text);
      if (isPart) cell.append(" ", newElement("small", { textContent: formatShare(value, total) }));
      return cell;
    });
    const name = newElement("button", { type: "button", className: "function", textContent: row.name, title: action });
    name.addEventListener("click", () => this._onchoose(row));
    return newElement("tr", {}, ...cells, newElement("td", {}, name));
  }

  /** What stands below the table. */
  _rest(wanted) {
    if (wanted <= this._most) return newElement("p", { textContent: wanted ? "" : "No function." });
    const more = newElement("button", { type: "button", textContent: `All ${wanted} functions` });
    more.addEventListener("click", () => {
      this._most = Infinity;
      this.show(...this._shown);
    });
    return more;
  }
}
