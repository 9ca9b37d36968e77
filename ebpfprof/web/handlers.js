"use strict";
/* Handlers of requests: which stacks are of which, a table of them, and the profile of one of them. */

const Handlers = {
  KEY: "handler",
  OUTSIDE: "(outside of handlers)",

  /* The name of the handler of each stack, "" for none: its label, as profile/handlers.py adds it. */
  of({ labels, strings }) {
    const key = strings.indexOf(Handlers.KEY);
    return labels.map((each) => {
      const value = each.find(([name]) => name === key)?.[1];
      return typeof value === "number" ? strings[value] : "";
    });
  },

  /* The names of all handlers of profiles, in alphabetical order. */
  names(profiles) {
    return [...new Set(profiles.flatMap(Handlers.of))].filter(Boolean).sort();
  },

  /* The profile of the handlers whose names contain a text. */
  profileOf(profile, text) {
    const names = Handlers.of(profile);
    const kept = names.flatMap((name, stack) => (name.includes(text) ? [stack] : []));
    const { slices } = profile;
    const parts = slices ? { slices: { ...slices, cells: kept.map((stack) => slices.cells[stack]) } } : {};
    return { ...HeatCells.stacksOf(profile, kept), ...parts };
  },
};

class HandlerTable extends RankedTable {
  static PARTS = 4;
  static PEERS = 3;
  static LEAST_PART = 0.01;
  static QUANTILES = ["p50", "p99", "max"];

  /* `onchoose(name)` is called with the handler of a row, "" to show all. */
  constructor(section, { onchoose }) {
    super(section, "Handlers");
    this.onchoose = onchoose;
  }

  /* `chosen` is the text of the filter. Returns whether there are any handlers. */
  show(profile, valueIndex, hideIdle, chosen) {
    const rows = profile.few_releases ? [] : HandlerTable.rows(profile, valueIndex, hideIdle);
    if (!rows.some(({ name }) => name !== Handlers.OUTSIDE)) return false;
    const { unit } = profile.sample_types[valueIndex];
    const numbers = { ...profile, words: profile.words ?? { value: profile.sample_types[valueIndex].type } };
    const lengths = rows.some(({ quantiles }) => quantiles)
      ? HandlerTable.QUANTILES.map((name) => [name === "max" ? "Max" : name, (row) => HandlerTable.length(row, name), true]) : [];
    this.draw(rows, [
      ...RankedTable.numbers(rows, numbers, unit).filter(([heading]) => heading !== "Mean"), ...lengths,
      ["Handler", (row) => this.named(row, chosen), false],
    ]);
    return true;
  }

  static rows(profile, valueIndex, hideIdle) {
    const { values, errors, idle, groups, strings, sample_types: types, max_error: maxError } = profile;
    const isEstimated = errors && valueIndex === types.length - 1;
    // Those of the profile's own table are of all its waits, idle ones with them.
    const known = new Map((profile.handlers ?? []).map((row) => [row.name, row]));
    const rows = new Map();
    Handlers.of(profile).forEach((handler, stack) => {
      const name = handler || Handlers.OUTSIDE;
      const { quantiles, peers = {} } = known.get(name) ?? {};
      const row = rows.get(name) ?? { name, value: 0, count: 0, variance: 0, parts: new Map(), quantiles, peers };
      rows.set(name, row);
      if (idle[stack] >= 0) row.quantiles = undefined;
      if (hideIdle && idle[stack] >= 0) return;
      const value = values[stack][valueIndex];
      row.value += value;
      row.count += values[stack][profile.count ?? 0];
      row.variance += isEstimated ? errors[stack] ** 2 : 0;
      const group = groups ? strings[groups[stack]] : "";
      row.parts.set(group, (row.parts.get(group) ?? 0) + value);
    });
    const all = [...rows.values()].filter(({ value, count }) => value || count)
      .map((row) => ({ ...row, error: row.value ? Math.sqrt(row.variance) / row.value : 0 }));
    return OperationRows.ranked(all, maxError).sort((one, other) => (one.name === Handlers.OUTSIDE) - (other.name === Handlers.OUTSIDE));
  }

  /* A quantile; "-" where it is not known well enough (profile/wait_histogram.py). */
  static length({ quantiles }, name) {
    const [ns, least, most] = quantiles?.[name] ?? [];
    const isKnown = ns !== undefined && most !== null && Math.max(ns - least, most - ns) <= ns / 2;
    return isKnown ? formatDuration(ns) : "-";
  }

  /* The peers of the network with the most samples, as in a terminal. */
  static peerWords(peers) {
    const all = Object.entries(peers);
    if (!all.length) return "";
    const sum = all.reduce((total, [, samples]) => total + samples, 0);
    const words = all.slice(0, HandlerTable.PEERS).map(([peer, samples]) => `${peer} in ${samples}`);
    words[0] += ` of ${sum} ${sum === 1 ? "sample" : "samples"}`;
    return ` (${words.join(", ")})`;
  }

  /* The name, which selects the handler, and what its time consists of. */
  named({ name, value, parts, peers }, chosen) {
    const isChosen = Boolean(chosen) && name.includes(chosen);
    const button = newElement("button", {
      type: "button", textContent: FlameText.printable(name), ariaPressed: String(isChosen),
      title: isChosen ? "Show all handlers" : "Show only this handler", disabled: name === Handlers.OUTSIDE,
    });
    button.addEventListener("click", () => this.onchoose(isChosen ? "" : name));
    const largest = [...parts].filter(([group, part]) => group && part >= HandlerTable.LEAST_PART * value)
      .sort((one, other) => other[1] - one[1]).slice(0, HandlerTable.PARTS);
    const words = largest.map(([group, part]) =>
      `${group} ${FlameText.share(part, value)}${group === "network" ? HandlerTable.peerWords(peers) : ""}`).join(", ");
    return newElement("div", {}, button, newElement("small", { textContent: FlameText.printable(words) }));
  }
}
