"use strict";
/* The tables of operations and of locks, as `attach` prints them, of the stacks that are shown. */

class OperationRows {
  /* Rows of a profile, as json_profile.py describes it, by the keys that `keyOf(stack)` gives, ""
     for none: {operation, function, file, line, own, value, count, error, share}. */
  static of(profile, valueIndex, { hideIdle, keyOf = null }) {
    const { strings, frames, values, operations, callers, own = [], idle, errors, max_error: maxError } = profile;
    const isEstimated = errors && valueIndex === profile.sample_types.length - 1;
    const rows = new Map();
    operations.forEach((operation, stack) => {
      if (hideIdle && idle[stack] >= 0) return;
      const frame = callers[stack];
      const [name, file, line] = frame < 0 ? [0, 0, 0] : frames[frame];
      const key = keyOf ? keyOf(stack) : `${operation} ${name} ${file} ${line}`;
      if (key === "") return;
      let row = rows.get(key);
      if (!row) {
        row = {
          key, operation: strings[operation], function: strings[name] || "?", file: strings[file], line,
          value: 0, count: 0, variance: 0, stacks: [], owns: new Map(),
        };
        rows.set(key, row);
      }
      const value = values[stack][valueIndex];
      row.value += value;
      row.count += values[stack][profile.count ?? 0];
      row.variance += isEstimated ? errors[stack] ** 2 : 0;
      row.stacks.push(stack);
      if (own[stack] >= 0 && own[stack] !== frame) row.owns.set(own[stack], (row.owns.get(own[stack]) ?? 0) + value);
    });
    return OperationRows.ranked([...rows.values()].map((row) => OperationRows.finished(row, profile)), maxError);
  }

  static finished(row, { strings, frames }) {
    const [first] = [...row.owns].sort((one, other) => other[1] - one[1]);
    const [name, file, line] = first ? frames[first[0]] : [];
    const own = first ? { function: strings[name], file: strings[file], line } : null;
    return { ...row, own, error: row.value ? Math.sqrt(row.variance) / row.value : 0 };
  }

  /* The largest first, those that are too rough last and without a share. */
  static ranked(rows, maxError = Infinity) {
    const isRough = (row) => row.error > maxError;
    const whole = rows.reduce((sum, row) => sum + (isRough(row) ? 0 : row.value), 0);
    rows.sort((one, other) => isRough(one) - isRough(other) || other.value - one.value);
    return rows.map((row) => ({ ...row, share: whole && !isRough(row) ? row.value / whole : null }));
  }
}

/* A table in a section of its own: the first rows, and a button for the others. */
class RankedTable {
  static MOST = 10;

  constructor(section, title) {
    this.section = section;
    this.note = newElement("p", { className: "quiet" });
    this.most = RankedTable.MOST;
    this.place = newElement("div", { className: "scroll ranked" });
    section.append(newElement("h2", { textContent: title }), this.place, this.note);
  }

  /* `columns` are [heading, (row) => text or element, whether it is a number]. Rows without a share
     are only counted. */
  draw(all, columns) {
    const rows = all.filter(({ share }) => share !== null);
    const rough = all.length - rows.length;
    this.note.textContent = !rough ? "" : `${rough === 1 ? "1 more row was" : `${rough} more rows were`} seen too few times to rank.`;
    const shown = () => rows.slice(0, this.most).map((row) => newElement("tr", {}, ...columns.map(([, contentOf, isNumber]) =>
      newElement("td", { className: isNumber ? "number" : "" }, contentOf(row)))));
    const heads = columns.map(([textContent, , isNumber]) =>
      newElement("th", { scope: "col", textContent, className: isNumber ? "number" : "text" }));
    const body = newElement("tbody", {}, ...shown());
    const more = newElement("button", { type: "button", textContent: `All ${rows.length} rows`, hidden: rows.length <= this.most });
    more.addEventListener("click", () => {
      this.most = Infinity;
      body.replaceChildren(...shown());
      more.hidden = true;
    });
    this.place.replaceChildren(newElement("table", {}, newElement("thead", {}, newElement("tr", {}, ...heads)), body), more);
  }

  /* The columns of numbers that both tables have. */
  static numbers(rows, profile, unit) {
    const { words, counted } = profile;
    const columns = [[words.value, (row) => formatValue(row.value, unit), true]];
    if (rows.some((row) => row.error > 0)) columns.push(["Error", (row) => formatError(row.error), true]);
    columns.push(["Share", (row) => FlameText.share(row.share, 1), true]);
    if (counted && profile.sample_types.length > 1) {
      columns.push(["Count", (row) => formatCount(row), true]);
      columns.push(["Mean", (row) => formatMean(row, unit), true]);
    }
    return columns;
  }

  /* A place in the code, and what stands below it. */
  static place(name, file, line, below = "") {
    const where = file ? `${file.split("/").pop()}:${line}` : "";
    const words = [where, below].filter(Boolean).join(" ");
    return newElement("div", {}, newElement("code", { textContent: FlameText.printable(name) }),
      newElement("small", { textContent: FlameText.printable(words), title: FlameText.printable(file ? `${file}:${line}` : "") }));
  }
}

class OperationTable extends RankedTable {
  constructor(section) {
    super(section, "Operations");
  }

  show(profile, valueIndex, hideIdle) {
    this.place.hidden = Boolean(profile.few_releases);
    if (profile.few_releases) {
      this.note.textContent = FlameText.printable(profile.few_releases);
      return;
    }
    const rows = OperationRows.of(profile, valueIndex, { hideIdle });
    const { unit } = profile.sample_types[valueIndex];
    const from = ({ own }) => (own ? `from ${own.function}${own.file ? `, ${own.file.split("/").pop()}:${own.line}` : ""}` : "");
    this.draw(rows, [
      ...RankedTable.numbers(rows, profile, unit),
      ["Operation", (row) => FlameText.printable(row.operation), false],
      [profile.words.place, (row) => RankedTable.place(row.function, row.file, row.line, from(row)), false],
    ]);
  }
}

class LockTable extends RankedTable {
  static PLACES = 3;

  constructor(section) {
    super(section, "Locks");
  }

  /* Locks that were recorded with what is known of them (`locks`, as export/flamegraph.py writes
     them), else those that labels of the stacks distinguish. Returns whether there are any. */
  show(profile, valueIndex, hideIdle, locks) {
    const rows = locks ? LockTable.recorded(locks) : LockTable.labelled(profile, valueIndex, hideIdle);
    if (!rows.length) return false;
    const { unit } = profile.sample_types[valueIndex];
    const held = rows.some((row) => row.held_ns !== undefined)
      ? [["Held", (row) => (row.held_ns ? formatDuration(row.held_ns) : "-"), true]] : [];
    this.draw(rows, [
      ...RankedTable.numbers(rows, profile, unit), ...held,
      ["Lock", (row) => LockTable.lock(row, unit), false],
    ]);
    return true;
  }

  static recorded(locks) {
    const places = (lock) => lock.places.map((each) => ({ ...each, error: 0 }));
    return OperationRows.ranked(locks.map((lock) => ({ ...lock, error: 0, places: places(lock) })));
  }

  static labelled(profile, valueIndex, hideIdle) {
    const { strings, labels, kind } = profile;
    const nameOf = (stack) => {
      const found = labels[stack].find(([key]) => strings[key] === "lock");
      return found && typeof found[1] === "number" ? strings[found[1]] : "";
    };
    const verb = kind === "mutex" ? "released by" : "waited for by";
    const all = labels.map((_, stack) => nameOf(stack));
    const rows = OperationRows.of(profile, valueIndex, { hideIdle, keyOf: (stack) => all[stack] });
    const isUnknown = Boolean(profile.few_releases);
    return rows.map((row) => ({
      ...row, name: row.key, count: isUnknown ? null : row.count,
      places: isUnknown ? [] : OperationRows.of(profile, valueIndex, {
        hideIdle,
        keyOf: (stack) => (all[stack] === row.key ? `${profile.operations[stack]} ${profile.callers[stack]}` : ""),
      }).map((place) => ({ ...place, verb })),
    }));
  }

  static lock({ name, places }, unit) {
    const lines = [...new Set(places.map(({ verb }) => verb))].flatMap((verb) => {
      const all = places.filter((each) => each.verb === verb);
      const texts = all.slice(0, LockTable.PLACES).map((each) => {
        const where = each.file ? `, ${each.file.split("/").pop()}:${each.line}` : "";
        return `${formatValue(each.value, unit)} ${verb} ${each.function}${where}: ${each.operation}`;
      });
      const rest = all.length - texts.length;
      if (rest > 0) texts.push(`${verb} ${rest} more ${rest === 1 ? "place" : "places"}`);
      return texts.map((text) => newElement("small", { textContent: FlameText.printable(text) }));
    });
    return newElement("div", {}, newElement("code", { textContent: FlameText.printable(name) }), ...lines);
  }
}
