"use strict";
/* What a trace holds: goroutines with their spans, groups of goroutines that begin alike. */

/* The arrays of numbers of a row, which has them as texts in base64. */
function unpacked(row, arrays) {
  return Object.fromEntries(Object.entries(arrays).map(([name, kind]) => {
    const bytes = Uint8Array.from(atob(row[name]), (character) => character.charCodeAt(0));
    return [name, new kind(bytes.buffer)];
  }));
}

/* The spans of one goroutine, which follow each other. Times are ns since the trace began. */
class TraceGoroutine {
  static ARRAYS = { begins: Float64Array, ends: Float64Array, states: Uint8Array, words: Uint16Array,
    stacks: Uint32Array, things: Uint32Array, by: Float64Array, ps: Int32Array, tids: Uint32Array };
  /* What it reported by runtime/trace; the outer of two regions that begin together comes first. */
  static REGIONS = { begins: Float64Array, ends: Float64Array, notes: Uint32Array };
  static MESSAGES = { times: Float64Array, notes: Uint32Array };
  static NO_REGIONS = { begins: "", ends: "", notes: "" };
  static NO_MESSAGES = { times: "", notes: "" };

  constructor(row, arrays = TraceGoroutine.ARRAYS) {
    Object.assign(this, { goid: row.goid, name: row.name, created: row.created, parent: row.parent,
      isSystem: row.system, labels: row.labels }, unpacked(row, arrays));
    this.regions = unpacked(row.regions ?? TraceGoroutine.NO_REGIONS, TraceGoroutine.REGIONS);
    this.messages = unpacked(row.messages ?? TraceGoroutine.NO_MESSAGES, TraceGoroutine.MESSAGES);
  }

  get length() {
    return this.begins.length;
  }

  get title() {
    return `G${this.goid} ${this.name}`;
  }

  /* The number of the first span that ends after a time. */
  firstAfter(time) {
    let low = 0, high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ends[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /* The number of the span at a time, -1 if there is none. */
  at(time) {
    const index = this.firstAfter(time);
    return index < this.length && this.begins[index] <= time ? index : -1;
  }

  /* The numbers of its notes between two times: of regions, the outer one first, and of messages. */
  regionsBetween(from, to) {
    const { begins, ends, notes } = this.regions;
    return [...notes].filter((_, i) => begins[i] < to && ends[i] > from);
  }

  messagesBetween(from, to) {
    const { times, notes } = this.messages;
    return [...notes].filter((_, i) => times[i] >= from && times[i] < to);
  }

  /* Calls visit(index, from, to) for the part of each span between two times. */
  between(from, to, visit) {
    for (let i = this.firstAfter(from); i < this.length && this.begins[i] < to; i++) {
      visit(i, Math.max(from, this.begins[i]), Math.min(to, this.ends[i]));
    }
  }
}

/* The times in which one thread had a processor, as spans that are all "running". */
class TraceThread extends TraceGoroutine {
  static ARRAYS = { begins: Float64Array, ends: Float64Array, cpus: Uint32Array, wakers: Uint32Array };

  constructor(row) {
    super(row, TraceThread.ARRAYS);
    this.states = new Uint8Array(this.begins.length);
  }

  get title() {
    return this.name;
  }
}

class TraceData {
  constructor(trace) {
    const { frames, ...rest } = trace;
    Object.assign(this, rest, { frames_: frames });
    this.threads = trace.threads.map((row) => new TraceThread(row));
    this.heap = unpacked(trace.heap, { times: Float64Array, live: Float64Array, goal: Float64Array });
    this.goroutines = trace.goroutines.map((row) => new TraceGoroutine(row));
    this.byGoid = new Map(this.goroutines.map((each) => [each.goid, each]));
    const groups = new Map();
    for (const each of this.goroutines) {
      const key = `${each.name}\0${each.created}`;
      if (!groups.has(key)) groups.set(key, { name: each.name, created: each.created, members: [] });
      groups.get(key).members.push(each);
    }
    this.groups = [...groups.values()];
    for (const group of this.groups) {
      group.isSystem = group.members.every((each) => each.isSystem);
      group.busy = this.spent(group, 0, this.length_ns).slice(0, 2).reduce((sum, ns) => sum + ns);
    }
    this.groups.sort((a, b) => a.isSystem - b.isSystem || b.busy - a.busy);
  }

  /* The ns that goroutines of a group were in each state between two times. */
  spent(group, from, to) {
    const sums = new Array(this.states.length).fill(0);
    for (const each of group.members) {
      each.between(from, to, (i, begin, end) => { sums[each.states[i]] += end - begin; });
    }
    return sums;
  }

  /* The same for each of `pixels` equal parts of the time: sums[state][pixel]. */
  density(members, from, to, pixels) {
    const sums = this.states.map(() => new Float64Array(pixels));
    const scale = pixels / (to - from);
    for (const each of members) {
      each.between(from, to, (i, begin, end) => {
        const into = sums[each.states[i]];
        const left = (begin - from) * scale, right = (end - from) * scale;
        const first = Math.floor(left), last = Math.min(Math.ceil(right), pixels) - 1;
        if (first >= last) {
          if (first < pixels) into[first] += right - left;
          return;
        }
        into[first] += first + 1 - left;
        for (let pixel = first + 1; pixel < last; pixel++) into[pixel] += 1;
        into[last] += right - last;
      });
    }
    return sums;
  }

  /* What a span is called: its state, of a wait its reason, of a thread its processor. */
  what(goroutine, index) {
    if (goroutine.cpus) return `on CPU ${goroutine.cpus[index]}`;
    const state = this.states[goroutine.states[index]], word = this.words[goroutine.words[index]];
    return state === "waiting" && word ? word : state;
  }

  /* What a span waits for: "for main.cache.mu ..." or "to read from 10.0.0.1:80 ..."; "" if that is unknown. */
  thing(goroutine, index) {
    return this.things[goroutine.things[index]];
  }

  /* Who woke a thread before a span; "" if nothing did. */
  waker(thread, index) {
    return this.things[thread.wakers[index]];
  }

  /* The pauses of the recording between two times, [begin, end] each. */
  pausesBetween(from, to) {
    return this.pauses.filter(([begin, end]) => end > from && begin < to);
  }

  /* The ns between two times that were not recorded. */
  unrecorded(from, to) {
    return this.pausesBetween(from, to).reduce((sum, [begin, end]) => sum + Math.min(to, end) - Math.max(from, begin), 0);
  }

  /* The number of the size of the heap at a time; -1 before the first one. */
  heapAt(time) {
    return this.heap.times.findLastIndex((each) => each <= time);
  }

  frames(stack) {
    return this.stacks[stack].map((frame) => this.frameTexts(frame));
  }

  frameTexts(frame) {
    const [name, place] = this.frames_[frame];
    return { name, place };
  }

  /* The groups and members that a search means: by name, G17, a function on one of their stacks, what they wait for, or
     what they reported. */
  matching(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return this.groups;
    const isGoid = /^g?\d+$/.test(wanted) ? Number(wanted.replace("g", "")) : -1;
    const frames = this.frames_.map(([name]) => name.toLowerCase().includes(wanted));
    const stacks = this.stacks.map((stack) => stack.some((frame) => frames[frame]));
    const things = this.things.map((thing) => thing.toLowerCase().includes(wanted));
    const notes = this.notes.map((note) => note.toLowerCase().includes(wanted));
    const fits = (each) => each.goid === isGoid || each.name.toLowerCase().includes(wanted)
      || each.created.toLowerCase().includes(wanted) || each.stacks.some((stack) => stacks[stack])
      || each.things.some((thing) => things[thing]) || each.regions.notes.some((note) => notes[note])
      || each.messages.notes.some((note) => notes[note]);
    return this.groups
      .map((group) => ({ ...group, members: group.members.filter(fits) }))
      .filter((group) => group.members.length > 0);
  }
}
