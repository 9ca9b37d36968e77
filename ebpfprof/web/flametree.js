"use strict";
/* What a flame graph shows: the stacks of one or two profiles, merged into a tree.

   Names come from the profiled program: they reach a page by textContent only. */

/* Text for people; the units are those of ebpfprof/console/text.py. */
const FlameText = {
  UNITS: [[3600e9, "h"], [60e9, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "us"]],
  BYTES: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]],
  NANOSECONDS: { nanoseconds: 1, microseconds: 1e3, milliseconds: 1e6, seconds: 1e9 },

  quantity(value, unit) {
    const factor = this.NANOSECONDS[unit];
    const units = factor ? this.UNITS : unit === "bytes" ? this.BYTES : [];
    const amount = value * (factor || 1);
    for (const [size, name] of units) {
      if (Math.abs(amount) >= size * 0.9995) return `${this.threeDigits(amount / size)} ${name}`;
    }
    const name = factor ? "ns" : unit === "bytes" ? "B" : unit === "count" ? "" : unit;
    return `${amount.toFixed(0)} ${this.printable(name)}`.trimEnd();
  },
  threeDigits(value) {
    const size = Math.abs(value);
    return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
  },
  share(part, whole) {
    return whole > 0 ? `${this.threeDigits((100 * part) / whole)} %` : "0 %";
  },
  /* Characters that are invisible, or turn the text around them, as escapes: \x1b, \u202e. */
  printable(text) {
    return text.replace(/(?! )[\p{C}\p{Z}]/gu, (character) => {
      const short = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[character];
      if (short) return short;
      const digits = character.codePointAt(0).toString(16);
      if (digits.length <= 2) return `\\x${digits.padStart(2, "0")}`;
      return digits.length <= 4 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
    });
  },
};

/* The functions of one or two profiles, each with a number; those of both are matched by name. */
class FlameNames {
  constructor() {
    this.names = [];
    this.files = [];
    this.kinds = []; // "go", "std", "native", "kernel"; "group" for a group of stacks
    this.packages = [];
    this.numbers = new Map();
  }

  static kindOf(name, file, mapping) {
    if (mapping.startsWith("[kernel") || mapping.startsWith("[vmlinux")) return "kernel";
    const isGo = /\.(go|s)$/.test(file) || (!/\.so\b/.test(mapping) && /^[^:<( ]+\./.test(name));
    if (!isGo) return "native";
    // All package paths but those of the standard library begin with the name of a host.
    const first = FlameNames.packageOf(name).split("/")[0];
    return first === "main" || first.includes(".") || first.includes("%") ? "go" : "std";
  }

  static packageOf(name) {
    const bare = name.split("[", 1)[0].split("(", 1)[0];
    const slash = bare.lastIndexOf("/") + 1;
    const dot = bare.indexOf(".", slash);
    return dot < 0 ? bare : bare.slice(0, dot);
  }

  number(kind, name, file) {
    const key = `${kind}\0${name}`;
    let number = this.numbers.get(key);
    if (number === undefined) {
      number = this.names.length;
      this.numbers.set(key, number);
      this.names.push(FlameText.printable(name));
      this.files.push(FlameText.printable(file));
      this.kinds.push(kind);
      const isGo = kind === "go" || kind === "std";
      this.packages.push(isGo ? FlameNames.packageOf(name) : name);
    }
    return number;
  }
}

/* The stacks of a profile, and after them those of the base to compare with. The frames of stack i,
   the root first, are starts[i] .. starts[i + 1] of the arrays; functions are numbers of `names`. */
class FlameStacks {
  constructor(profile, base) {
    this.profiles = base ? [profile, base] : [profile];
    this.names = new FlameNames();
    this.ofProfile = profile.stacks.length; // their number; the others are those of the base
    const stacks = this.profiles.flatMap((each) => each.stacks);
    this.length = stacks.length;
    this.starts = new Int32Array(this.length + 1);
    stacks.forEach((stack, i) => (this.starts[i + 1] = this.starts[i] + stack.length));
    const room = this.starts[this.length];
    this.functions = new Int32Array(room);
    this.lines = new Int32Array(room);
    this.inlined = new Uint8Array(room);
    let at = 0;
    for (const { frames, strings, stacks } of this.profiles) {
      const numbers = frames.map(([name, file, , mapping]) => {
        const kind = FlameNames.kindOf(strings[name], strings[file], strings[mapping]);
        return this.names.number(kind, strings[name], strings[file]);
      });
      for (const stack of stacks) {
        for (const frame of stack) {
          this.functions[at] = numbers[frame];
          this.lines[at] = frames[frame][2];
          this.inlined[at] = frames[frame][4];
          at++;
        }
      }
    }
  }

  /* The number of the group of each stack, or null without groups. */
  groups(groupBy) {
    if (!groupBy) return null;
    const number = (words) => this.names.number("group", words, "");
    return this.profiles.flatMap(({ strings, operations, labels }) => {
      const text = (index) => strings[index];
      if (groupBy === "operation") {
        return operations.map((index) => number(text(index) || "(no operation)"));
      }
      const wanted = groupBy.slice("label:".length);
      return labels.map((each) => {
        const label = each.find(([key]) => text(key) === wanted);
        if (!label) return number(`(no ${wanted})`);
        const [, value] = label;
        return number(typeof value === "number" ? text(value) : FlameText.quantity(value.n, value.u));
      });
    });
  }
}

/* The tree of the stacks that are shown. Nodes are numbers, 0 is the root; the nodes that a node
   calls are made when they are needed. `later` and `base` are the sums of the profile and of the
   base, `laterFlat` and `baseFlat` those of the node itself. */
class FlameTree {
  constructor(stacks, options) {
    this.stacks = stacks;
    this.names = stacks.names;
    this.inverted = options.inverted;
    this.groups = stacks.groups(options.groupBy);
    this.hidden = 0;
    this.values = new Float64Array(stacks.length);
    this.shown = this.choose(options);
    this.parent = [];
    this.name = [];
    this.line = []; // -1: the call is at several lines
    this.inlined = [];
    this.depth = []; // in the stacks, of the frames that the node calls; -1: those are groups
    this.later = [];
    this.base = [];
    this.laterFlat = [];
    this.baseFlat = [];
    this.members = []; // its stacks, until the nodes that it calls are made
    this.children = [];
    this.make(-1, -1, -1, this.groups ? -1 : 0);
    this.members[0] = this.shown;
    for (const stack of this.shown) {
      (stack < stacks.ofProfile ? this.later : this.base)[0] += this.values[stack];
    }
  }

  /* The stacks that are shown. */
  choose({ valueIndex, hideIdle, baseScale }) {
    const [profile] = this.stacks.profiles;
    const type = profile.sample_types[valueIndex];
    const isSame = (other) => other.type === type.type && other.unit === type.unit;
    const shown = [];
    this.stacks.profiles.forEach(({ sample_types: types, stacks, values, idle }, side) => {
      const index = side === 0 ? valueIndex : types.findIndex(isSame);
      const [first, scale] = side === 0 ? [0, 1] : [this.stacks.ofProfile, baseScale];
      for (let i = 0; i < stacks.length; i++) {
        const value = index < 0 ? 0 : values[i][index] * scale;
        if (!(value > 0)) continue;
        if (hideIdle && idle[i] >= 0) {
          if (side === 0) this.hidden += value;
          continue;
        }
        this.values[first + i] = value;
        shown.push(first + i);
      }
    });
    return shown;
  }

  make(parent, name, at, depth) {
    const node = this.parent.length;
    this.parent.push(parent);
    this.name.push(name);
    this.line.push(at < 0 ? 0 : this.stacks.lines[at]);
    this.inlined.push(at < 0 ? 0 : this.stacks.inlined[at]);
    this.depth.push(depth);
    for (const sum of [this.later, this.base, this.laterFlat, this.baseFlat]) sum.push(0);
    this.members.push([]);
    this.children.push(null);
    return node;
  }

  /* The nodes that a node calls, the widest first. */
  childrenOf(node) {
    this.children[node] ??= this.split(node);
    return this.children[node];
  }

  split(node) {
    const { starts, functions, lines, ofProfile } = this.stacks;
    const depth = this.depth[node];
    const made = new Map();
    let [child, lastName] = [-1, null]; // most stacks have the same frame here as the one before
    for (const stack of this.members[node]) {
      const last = starts[stack + 1] - 1;
      if (depth > last - starts[stack]) continue; // the stack ends here
      const at = depth < 0 ? -1 : this.inverted ? last - depth : starts[stack] + depth;
      const name = depth < 0 ? this.groups[stack] : functions[at];
      if (name !== lastName) {
        lastName = name;
        child = made.get(name) ?? this.make(node, name, at, depth + 1);
        made.set(name, child);
      }
      if (at >= 0 && this.line[child] !== lines[at]) this.line[child] = -1;
      this.members[child].push(stack);
      const value = this.values[stack];
      const isOwn = depth >= 0 && (this.inverted ? depth === 0 : at === last);
      if (stack < ofProfile) {
        this.later[child] += value;
        if (isOwn) this.laterFlat[child] += value;
      } else {
        this.base[child] += value;
        if (isOwn) this.baseFlat[child] += value;
      }
    }
    this.members[node] = null;
    const order = (a, b) =>
      this.width(b) - this.width(a) || (this.nameOf(a) < this.nameOf(b) ? -1 : 1);
    return [...made.values()].sort(order);
  }

  /* The sum of both profiles, so that nodes of only one of them are visible, too. */
  width(node) {
    return this.later[node] + this.base[node];
  }

  nameOf(node) {
    return node === 0 ? "all" : this.names.names[this.name[node]];
  }

  /* A node as an object; `value`, `share` and `flat` are those of the profile. */
  info(node) {
    const { names } = this;
    const name = this.name[node];
    return {
      node,
      name: this.nameOf(node),
      file: node ? names.files[name] : "",
      line: this.line[node],
      inlined: this.inlined[node] === 1,
      kind: node ? names.kinds[name] : "group",
      package: node ? names.packages[name] : "",
      value: this.later[node],
      share: this.later[0] > 0 ? this.later[node] / this.later[0] : 0,
      flat: this.laterFlat[node],
      base: this.base[node],
      depth: this.ancestors(node).length,
    };
  }

  /* The callers of a node, the root first. */
  ancestors(node) {
    const nodes = [];
    for (let each = this.parent[node]; each >= 0; each = this.parent[each]) nodes.unshift(each);
    return nodes;
  }

  /* A node as [kind, name] of each node on the way to it, without the root. */
  pathOf(node) {
    if (node === 0) return [];
    const nodes = [...this.ancestors(node), node].slice(1);
    return nodes.map((each) => [this.names.kinds[this.name[each]], this.nameOf(each)]);
  }

  /* The node of such a path, or the last one on the way that exists; "" is any kind. */
  find(path) {
    let node = 0;
    for (const [kind, name] of path) {
      const isWanted = (each) =>
        this.nameOf(each) === name && (!kind || this.names.kinds[this.name[each]] === kind);
      const next = this.childrenOf(node).find(isWanted);
      if (next === undefined) break;
      node = next;
    }
    return node;
  }

  /* `matches` is 1 for each function or group that matches. The value of the profile's stacks that
     have one of them, and how many functions these are. */
  found(matches) {
    const { starts, functions, ofProfile } = this.stacks;
    const found = new Set();
    let value = 0;
    for (const stack of this.shown) {
      let isFound = this.groups !== null && matches[this.groups[stack]] === 1;
      for (let at = starts[stack]; at < starts[stack + 1]; at++) {
        if (matches[functions[at]] === 1) {
          isFound = true;
          found.add(functions[at]);
        }
      }
      if (isFound && stack < ofProfile) value += this.values[stack];
    }
    return { value, functions: found.size };
  }

  /* Each function that is shown, once: {name, kind, package, flat, total, count, base, baseFlat}.
     `count` is the sum of the profile's first value; `base` is the total in the base. */
  functions() {
    const { starts, functions, ofProfile } = this.stacks;
    const [{ values }] = this.stacks.profiles;
    const { names, kinds, packages } = this.names;
    const column = () => new Float64Array(names.length);
    const [later, laterFlat, base, baseFlat, count] = [1, 2, 3, 4, 5].map(column);
    // A recursive function is counted once in each stack.
    const seen = new Int32Array(names.length).fill(-1);
    for (const stack of this.shown) {
      const [sums, flats] = stack < ofProfile ? [later, laterFlat] : [base, baseFlat];
      const value = this.values[stack];
      const times = stack < ofProfile ? values[stack][0] : 0;
      for (let at = starts[stack]; at < starts[stack + 1]; at++) {
        const name = functions[at];
        if (seen[name] === stack) continue;
        seen[name] = stack;
        sums[name] += value;
        count[name] += times;
      }
      if (starts[stack] < starts[stack + 1]) flats[functions[starts[stack + 1] - 1]] += value;
    }
    const rows = names.map((name, i) => ({
      name, kind: kinds[i], package: packages[i],
      flat: laterFlat[i], total: later[i], count: count[i], base: base[i], baseFlat: baseFlat[i],
    }));
    return rows.filter((_, i) => seen[i] >= 0);
  }
}
