"use strict";
/* What a flame graph shows: the stacks of one or two profiles, merged into a tree.

   Names come from the profiled program: they reach a page by textContent only. */

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
    if (!mapping && name.startsWith("[")) return "std"; // in place of a frame: [woken by]
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

  /* Which functions a search means, 1 for each; null for an empty search. It looks at names, in
     upper or lower case, and after "path:" at the paths of files instead. */
  matching(text) {
    const query = text.trim().toLowerCase();
    const isPath = query.startsWith("path:");
    const wanted = isPath ? query.slice("path:".length).trim() : query;
    if (!wanted) return null;
    const places = isPath ? this.files : this.names;
    return Uint8Array.from(places, (place) => place.toLowerCase().includes(wanted));
  }
}

/* The stacks of a profile, and after them those of the base to compare with. The frames of stack i,
   the root first, are starts[i] .. ends[i] of the arrays; functions are numbers of `names`. */
class FlameStacks {
  constructor(profile, base = null) {
    this.root = -1; // the function that all stacks are cut at, in a part of them
    this.isKept = null;
    this.profiles = base ? [profile, base] : [profile];
    this.names = new FlameNames();
    this.ofProfile = profile.stacks.length; // their number; the others are those of the base
    const stacks = this.profiles.flatMap((each) => each.stacks);
    this.length = stacks.length;
    this.starts = new Int32Array(this.length);
    this.ends = new Int32Array(this.length);
    let room = 0;
    stacks.forEach((stack, i) => {
      this.starts[i] = room;
      room += stack.length;
      this.ends[i] = room;
    });
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

  /* The stacks through a function, cut at its first frame: {callers, callees}. A stack with several
     frames of it, by recursion, counts once. */
  around(number) {
    const isKept = new Uint8Array(this.length);
    const [before, after] = [this.ends.slice(), this.starts.slice()];
    for (let stack = 0; stack < this.length; stack++) {
      let at = this.starts[stack];
      while (at < this.ends[stack] && this.functions[at] !== number) at++;
      if (at === this.ends[stack]) continue;
      isKept[stack] = 1;
      before[stack] = at;
      after[stack] = at + 1;
    }
    const part = (cut) => Object.assign(Object.create(this), { root: number, isKept, ...cut });
    return { callers: part({ ends: before }), callees: part({ starts: after }) };
  }

  /* Which stacks begin with these functions (with `inverted`, end with them), 1 for each. */
  through(numbers, inverted) {
    const { starts, ends, functions } = this;
    return Uint8Array.from(starts, (start, stack) => {
      if (ends[stack] - start < numbers.length) return 0;
      const isSame = (number, depth) => functions[inverted ? ends[stack] - 1 - depth : start + depth] === number;
      return numbers.every(isSame) ? 1 : 0;
    });
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
    this.isOfCallers = stacks.root >= 0 && this.inverted; // nothing is known of their own values
    this.make(-1, stacks.root, -1, this.groups ? -1 : 0);
    this.members[0] = this.shown;
    for (const stack of this.shown) {
      const isOwn = stacks.root >= 0 && stacks.starts[stack] === stacks.ends[stack];
      this.add(0, stack, isOwn);
    }
  }

  /* Adds the value of a stack to the sums of a node. */
  add(node, stack, isOwn) {
    const isBase = stack >= this.stacks.ofProfile;
    (isBase ? this.base : this.later)[node] += this.values[stack];
    if (isOwn) (isBase ? this.baseFlat : this.laterFlat)[node] += this.values[stack];
  }

  /* The stacks that are shown. */
  choose({ valueIndex, hideIdle, baseScale }) {
    const { isKept, profiles } = this.stacks;
    const [profile] = profiles;
    const type = profile.sample_types[valueIndex];
    const isSame = (other) => other.type === type.type && other.unit === type.unit;
    const shown = [];
    profiles.forEach(({ sample_types: types, stacks, values, idle }, side) => {
      const index = side === 0 ? valueIndex : types.findIndex(isSame);
      const [first, scale] = side === 0 ? [0, 1] : [this.stacks.ofProfile, baseScale];
      for (let i = 0; i < stacks.length; i++) {
        const value = index < 0 ? 0 : values[i][index] * scale;
        if (!(value > 0) || (isKept && !isKept[first + i])) continue;
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
    const { starts, ends, functions, lines } = this.stacks;
    const depth = this.depth[node];
    const made = new Map();
    let [child, lastName] = [-1, null]; // most stacks have the same frame here as the one before
    for (const stack of this.members[node]) {
      const last = ends[stack] - 1;
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
      this.add(child, stack, depth >= 0 && (this.inverted ? depth === 0 : at === last));
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
    return this.name[node] < 0 ? "all" : this.names.names[this.name[node]];
  }

  /* A node as an object; `value`, `share` and `flat` are those of the profile. `flat` is null where
     it is not known. */
  info(node) {
    const { names } = this;
    const name = this.name[node];
    const kind = name < 0 ? "group" : names.kinds[name];
    return {
      node,
      name: this.nameOf(node),
      file: name < 0 ? "" : names.files[name],
      line: this.line[node],
      inlined: this.inlined[node] === 1,
      kind,
      package: name < 0 ? "" : names.packages[name],
      value: this.later[node],
      share: this.later[0] > 0 ? this.later[node] / this.later[0] : 0,
      flat: kind === "group" || this.isOfCallers ? null : this.laterFlat[node],
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

  /* The numbers of the functions on the way from the root to a node, without the root. */
  numbersTo(node) {
    return [...this.ancestors(node), node].slice(1).map((each) => this.name[each]);
  }

  /* The functions from the last call to the first, on the way between a node and the root. */
  stackOf(node) {
    const nodes = [...this.ancestors(node), node].map((each) => this.info(each));
    const frames = nodes.filter(({ kind }) => kind !== "group");
    return this.inverted ? frames : frames.reverse();
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
    const { starts, ends, functions, ofProfile } = this.stacks;
    const found = new Set();
    let value = 0;
    for (const stack of this.shown) {
      let isFound = this.groups !== null && matches[this.groups[stack]] === 1;
      for (let at = starts[stack]; at < ends[stack]; at++) {
        if (matches[functions[at]] === 1) {
          isFound = true;
          found.add(functions[at]);
        }
      }
      if (isFound && stack < ofProfile) value += this.values[stack];
    }
    return { value, functions: found.size };
  }

  /* Each function that is shown, once: {number, name, kind, flat, cum, count, base, baseFlat}.
     `count` is the sum of the numbers of events; `base` is the cum in the base. */
  functions() {
    const { starts, ends, functions, ofProfile } = this.stacks;
    const [{ values, count: countIndex = 0 }] = this.stacks.profiles;
    const { names, kinds } = this.names;
    const column = () => new Float64Array(names.length);
    const [later, laterFlat, base, baseFlat, count] = [1, 2, 3, 4, 5].map(column);
    // A recursive function is counted once in each stack.
    const seen = new Int32Array(names.length).fill(-1);
    for (const stack of this.shown) {
      const [sums, flats] = stack < ofProfile ? [later, laterFlat] : [base, baseFlat];
      const value = this.values[stack];
      const times = stack < ofProfile ? values[stack][countIndex] : 0;
      for (let at = starts[stack]; at < ends[stack]; at++) {
        const name = functions[at];
        if (seen[name] === stack) continue;
        seen[name] = stack;
        sums[name] += value;
        count[name] += times;
      }
      if (starts[stack] < ends[stack]) flats[functions[ends[stack] - 1]] += value;
    }
    const rows = names.map((name, i) => ({
      number: i, name, kind: kinds[i],
      flat: laterFlat[i], cum: later[i], count: count[i], base: base[i], baseFlat: baseFlat[i],
    }));
    return rows.filter((_, i) => seen[i] >= 0);
  }
}
