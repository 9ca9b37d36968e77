"use strict";
/* Waits by the time of their end and by their length: the numbers of a heatmap, and the profile of a
   part of it. `part` is {from, to, least, most}: Unix times in seconds, and lengths in ns from
   `least` to below `most`; a `least` of -1 includes waits of unknown length. */

const HeatCells = {
  UNKNOWN: -1,
  MOST_ROWS: 36,
  BY_STACK: ["stacks", "values", "errors", "lengths", "operations", "callers", "own", "labels", "groups", "idle"],

  /* The number of the bucket of a length in ns, and the least length of a bucket: those of
     ebpfprof/profile/log_linear.py with eight parts. */
  bucketOf(ns) {
    if (ns < 8) return Math.floor(ns);
    const power = Math.floor(Math.log2(ns));
    return (power - 3) * 8 + Math.floor(ns / 2 ** (power - 3));
  },
  leastOf(bucket) {
    return bucket < 8 ? bucket : (8 + (bucket % 8)) * 2 ** (Math.floor(bucket / 8) - 1);
  },

  /* Calls `each(stack, slice, least, count, value)` for all cells of the stacks that are shown. */
  forEach({ slices, idle }, hideIdle, each) {
    slices.cells.forEach((cells, stack) => {
      if (hideIdle && idle[stack] >= 0) return;
      for (let i = 0; i < cells.length; i += 4) each(stack, cells[i], cells[i + 1], cells[i + 2], cells[i + 3]);
    });
  },

  isIn(part, [start, end], least) {
    return start < part.to && end > part.from && least >= part.least && least < part.most;
  },

  /* The grid to draw: `rows` are [least, most] in ns, the shortest first, of as many buckets each as
     it takes; if some lengths are not known, the first row is theirs. A cell is {value, count, rate},
     by slice and row: slices differ in length, so `rate` is the value in a second, `most` the
     largest. */
  grid(profile, valueIndex, hideIdle) {
    const { times } = profile.slices;
    const buckets = new Map(); // by slice and bucket
    let [low, high, hasUnknown] = [Infinity, -Infinity, false];
    HeatCells.forEach(profile, hideIdle, (_, slice, least, count, value) => {
      const bucket = least < 0 ? HeatCells.UNKNOWN : HeatCells.bucketOf(least);
      if (bucket < 0) hasUnknown = true;
      else [low, high] = [Math.min(low, bucket), Math.max(high, bucket)];
      const key = `${slice} ${bucket}`;
      const cell = buckets.get(key) ?? { slice, bucket, least, value: 0, count: 0 };
      cell.value += valueIndex === 0 ? count : value;
      cell.count += count;
      buckets.set(key, cell);
    });
    let folded = 1;
    while (Math.floor(high / folded) - Math.floor(low / folded) >= HeatCells.MOST_ROWS) folded *= 2;
    const [first, last] = [Math.floor(low / folded), Math.floor(high / folded)];
    const rows = hasUnknown ? [[HeatCells.UNKNOWN, 0]] : [];
    for (let row = first; row <= last; row += 1) rows.push([HeatCells.leastOf(row * folded), HeatCells.leastOf((row + 1) * folded)]);
    const cells = times.map(() => rows.map(() => ({ value: 0, count: 0 })));
    for (const { slice, bucket, value, count } of buckets.values()) {
      const row = bucket < 0 ? 0 : Math.floor(bucket / folded) - first + Number(hasUnknown);
      cells[slice][row].value += value;
      cells[slice][row].count += count;
    }
    cells.forEach((column, slice) => column.forEach((cell) => {
      cell.rate = cell.value / Math.max(times[slice][1] - times[slice][0], 1e-3);
    }));
    const all = cells.flat();
    const [most, total] = [all.reduce((largest, { rate }) => Math.max(largest, rate), 0), all.reduce((sum, { value }) => sum + value, 0)];
    return { times, rows, cells, hasUnknown, buckets: [...buckets.values()], most, total };
  },

  /* What is in a part, whose limits need not be those of rows. */
  sum({ times, buckets }, part) {
    const sum = { value: 0, count: 0 };
    for (const { slice, least, value, count } of buckets) {
      if (!HeatCells.isIn(part, times[slice], least)) continue;
      sum.value += value;
      sum.count += count;
    }
    return sum;
  },

  /* The profile of the waits in a part. The variance of an estimate is divided as the squares of
     lengths are; quantiles and handlers are left out. */
  profileOf(profile, part) {
    const { slices, errors, sample_types: types } = profile;
    const kept = [];
    const changed = { values: new Map(), errors: new Map(), lengths: new Map() };
    slices.cells.forEach((cells, stack) => {
      let [count, value, inside, whole] = [0, 0, 0, 0];
      const lengths = new Map();
      for (let i = 0; i < cells.length; i += 4) {
        const [slice, least, events, amount] = cells.slice(i, i + 4);
        const square = events > 0 ? amount * (amount / events) : 0;
        whole += square;
        if (!HeatCells.isIn(part, slices.times[slice], least)) continue;
        count += events;
        value += amount;
        inside += square;
        if (least >= 0) lengths.set(least, (lengths.get(least) ?? 0) + events);
      }
      if (!count && !value) return;
      kept.push(stack);
      changed.values.set(stack, types.length === 1 ? [count] : [count, value]);
      changed.lengths.set(stack, [...lengths].sort((one, other) => one[0] - other[0]));
      if (errors) changed.errors.set(stack, whole ? errors[stack] * Math.sqrt(inside / whole) : errors[stack]);
    });
    return HeatCells.stacksOf(profile, kept, changed);
  },

  /* The profile of some of its stacks; `changed` has other numbers for them, by name and stack. What
     are sums of all stacks is left out, and so are slices. */
  stacksOf(profile, kept, changed = {}) {
    const of = (name) => kept.map((stack) => (changed[name]?.has(stack) ? changed[name].get(stack) : profile[name][stack]));
    const { quantiles, handlers, requests, slices, ...others } = profile;
    const arrays = HeatCells.BY_STACK.filter((name) => profile[name]).map((name) => [name, of(name)]);
    return { ...others, ...Object.fromEntries(arrays) };
  },

  /* Sums by powers of ten of lengths, the longest first: [{part, value, count, from}]; `from` is the
     begin of the slice that has most of it. */
  decades({ times, buckets }) {
    const sums = new Map();
    for (const { slice, least, value, count } of buckets) {
      const power = least < 1 ? Math.min(least, 0) : 10 ** Math.floor(Math.log10(least));
      const sum = sums.get(power) ?? { power, columns: times.map(() => 0), value: 0, count: 0 };
      sum.value += value;
      sum.count += count;
      sum.columns[slice] += value;
      sums.set(power, sum);
    }
    const [from, to] = [times[0][0], times[times.length - 1][1]];
    const mostOf = (power) => (power < 0 ? 0 : power ? 10 * power : 1);
    return [...sums.values()].sort((one, other) => other.power - one.power).map(({ power, columns, value, count }) => ({
      value, count, from: times[columns.indexOf(Math.max(...columns))][0],
      part: { from, to, least: power, most: mostOf(power) },
    }));
  },
};
