"use strict";
/* A profile in all its views, with the bar of what they show, and the table of functions: on the page
   of `serve` and in a file of its own. What is shown is a ViewState, which its owner keeps. */

class ProfileView {
  static SEARCH_AFTER_MS = 120;
  static KEYS = [
    ["/", "search: functions by name, or files after path:"], ["?", "this help"],
    ["Tab", "to the next control; into the graph"], ["arrows", "in a flame graph: to the next frame"],
    ["Enter", "zoom in to the frame; in the call graph: callers and callees"],
    ["Escape", "zoom out"], ["Home", "show the whole"],
    ["Shift and arrows", "in a heatmap: select; Escape shows all"],
    ["c", "copy the stack of the frame"], ["s", "callers and callees of the frame's function"],
    ["l", "lines of the frame's file"],
  ];

  /* `onchange(changes)` is called with the parts of the state that the user changed, `onzoom(changes)`
     with those that say which frames are zoomed; `keys` are more keys for the help. */
  constructor(container, { onchange, onzoom, keys = [] }) {
    Object.assign(this, { onchange, onzoom, handled: new WeakMap() });
    this.build(container, keys);
    document.addEventListener("keydown", (event) => this.key(event));
  }

  /* ---- What it shows ---- */

  /* `state` is a ViewState; `sources` see SourceView; `nothing` is said without a profile; `kind` is
     the server's description of the kind of profile, if it has one; `locks` see LockTable. */
  show(profile, base, state, { kind = null, sources, nothing = "", locks = null }) {
    const hasPairs = Boolean(profile) && [profile, base ?? profile].every((each) => Wakers.arePairs(each));
    state = { ...state, view: ViewState.viewOf(state, hasPairs) };
    this.state = state;
    const whole = profile; // of all handlers
    profile = this.ofHandler(profile);
    const bases = base;
    base = this.ofHandler(base);
    Object.assign(this, { profile, state, kind, sources });
    this.fillHandlers([whole, bases].filter(Boolean));
    profile = this.showHeat(profile, base);
    Object.assign(this, { profile });
    const isEmpty = !profile || !profile.stacks.length;
    this.nothing.hidden = !isEmpty;
    this.nothing.textContent = !isEmpty ? "" : this.hasPart ? "Nothing ended in this box."
      : whole?.stacks.length ? `Nothing is of a handler with ${FlameText.printable(state.handler)} in its name.`
        : profile ? ProfileView.emptiness(profile, kind) : nothing;
    for (const element of this.controlled) element.hidden = isEmpty && !(state.handler && whole);
    this.operations.section.hidden = this.lockTable.section.hidden = this.handlerTable.section.hidden = true;
    for (const [view, element] of Object.entries(this.places)) {
      element.hidden = isEmpty || view !== state.view;
    }
    this.functions.hidden = isEmpty || state.view === "source";
    this.matched.textContent = "";
    this.idle.hidden = true;
    if (isEmpty) return;
    this.showControls(hasPairs);
    const known = this.stacks?.profiles ?? [];
    if (known[0] !== profile || (known[1] ?? null) !== base) this.stacks = new FlameStacks(profile, base);
    const valueIndex = this.valueIndex;
    this.options = {
      valueIndex, hideIdle: state.hideIdle, groupBy: this.fillChoices(), inverted: state.inverted,
      layout: state.layout,
    };
    this.showIdle(valueIndex);
    this.graph.show(this.stacks, this.options);
    this.graph.zoomToPath(state.zoom);
    this.showMatches(this.graph.search(state.search));
    this.showView();
    this.showTable(base);
    this.showOperations(base, this.hasPart || state.handler ? null : locks);
    if (base || state.view === "source") return;
    const inBox = this.hasPart ? HeatCells.profileOf(whole, state.part) : whole;
    this.handlerTable.section.hidden = !this.handlerTable.show(inBox, valueIndex, state.hideIdle, state.handler);
  }

  /* What of a profile is of the chosen handler. */
  ofHandler(profile) {
    const { handler } = this.state;
    if (!profile || !handler) return profile;
    const known = this.handled.get(profile);
    if (known?.handler === handler) return known.profile;
    const part = Handlers.profileOf(profile, handler);
    this.handled.set(profile, { handler, profile: part });
    return part;
  }

  /* Fill in the choice of handlers: there is one if there are any. */
  fillHandlers(profiles) {
    const { handler } = this.controls;
    const { handler: chosen } = this.state;
    const names = Handlers.names(profiles);
    if (chosen && !names.includes(chosen)) names.unshift(chosen); // a part of a name
    handler.parentElement.hidden = !names.length;
    ProfileView.fill(handler, [["", "all"], ...names.map((name) => [name, name])], chosen);
  }

  /* Shows the heatmap of a profile that was kept apart by time; returns what of it to show. */
  showHeat(profile, base) {
    const { hideIdle, part } = this.state;
    const isThere = Boolean(profile?.slices) && !base && this.heat.show(profile, { valueIndex: this.valueIndex, hideIdle, part });
    this.heat.section.hidden = !isThere;
    this.hasPart = Boolean(isThere && part);
    if (!this.hasPart) return profile;
    const key = JSON.stringify(part);
    if (this.parted?.profile !== profile || this.parted.key !== key) {
      this.parted = { profile, key, part: HeatCells.profileOf(profile, part) };
    }
    return this.parted.part;
  }

  /* Why a profile has no stacks, as far as is known; on the page, where there are other kinds (it
     describes the `kind`), also which of them have waits that began before. */
  static emptiness({ words, counted, moment }, kind) {
    if (!words) return "Nothing was recorded in this time.";
    if (moment) return `Nothing was read: ${words.nothing}.`;
    const before = kind && words.rows === "operations" && counted
      ? " Waits that began before the recording are not included: see Wall and Goroutine." : "";
    return `Nothing was recorded in this time: ${words.nothing}.${before}`;
  }

  /* The tables of operations and of locks; a comparison has none, since they would show only a part. */
  showOperations(base, locks) {
    const { profile, state, valueIndex } = this;
    if (base || profile.words?.rows !== "operations" || state.view === "source") return;
    this.operations.section.hidden = false;
    this.operations.show(profile, valueIndex, state.hideIdle);
    this.lockTable.section.hidden = !this.lockTable.show(profile, valueIndex, state.hideIdle, locks);
  }

  get unit() {
    return this.profile.sample_types[this.valueIndex].unit;
  }

  /* The index of the sample type to show. */
  get valueIndex() {
    const { sample_types: types, default: otherwise } = this.profile;
    const index = types.findIndex(({ type }) => type === this.state.type);
    return index < 0 ? otherwise : index;
  }

  showView() {
    const { state, graph } = this;
    const rows = graph.functions();
    if (state.view === "sandwich" && rows.length) {
      const dearest = () => rows.reduce((a, b) => (b.flat > a.flat ? b : a));
      const row = rows.find(({ name }) => name === state.root) ?? dearest();
      this.sandwich.show(this.stacks, row, graph.tree.later[0], this.options);
      this.sandwich.search(state.search);
    }
    if (state.view === "wakers") {
      this.wakers.show(this.stacks, graph.tree.later[0], this.options, state);
      this.wakers.search(state.search);
    }
    if (state.view === "graph") this.calls.show(graph.tree, rows, this.unit, graph.matches);
    if (state.view === "source") this.source.show(graph.tree, this.unit, state.file, this.sources);
  }

  showMatches({ share, value, functions }) {
    if (!this.state.search.trim()) return;
    const amount = `${FlameText.share(share, 1)}, ${FlameText.quantity(value, this.unit)}`;
    this.matched.textContent = `${amount}, functions: ${functions}`;
  }

  showTable(base) {
    const { state, kind, graph } = this;
    const counted = kind ? kind.table.count : this.profile.counted || "";
    this.table.show(graph.functions(), {
      unit: this.unit, total: graph.info(0).value, count: this.profile.few_releases ? "" : counted,
      sort: state.sort, matches: graph.matches, isCompared: Boolean(base),
      action: state.view === "sandwich" ? "Show its callers and callees" : "Search for it",
    });
  }

  /* How much of the profile is idle waits, hidden or not: in all, and by rule. */
  showIdle(valueIndex) {
    const { rows, sum } = idleRows(this.profile, valueIndex);
    const quantity = (value) => FlameText.quantity(value, this.unit);
    this.idle.hidden = !rows.length;
    const word = this.state.hideIdle ? "hidden" : "shown";
    const lines = rows.flatMap((row) => [
      newElement("dt", { textContent: `${row.name}: ${quantity(row.value)}` }),
      newElement("dd", { textContent: row.reason }),
    ]);
    this.idle.firstChild.textContent = `${quantity(sum)} of idle waiting ${word}`;
    this.idle.lastChild.replaceChildren(...lines);
  }

  showControls(hasPairs) {
    const { state, profile, kind, controls } = this;
    const [radio] = this.views.filter(({ value }) => value === state.view);
    radio.checked = true;
    const [wakers] = this.views.filter(({ value }) => value === "wakers");
    wakers.parentElement.hidden = !hasPairs;
    controls.inverted.checked = state.inverted;
    controls.hideIdle.checked = state.hideIdle;
    controls.layout.value = state.layout;
    const hasIdle = (each) => each.idle.some((rule) => rule >= 0);
    const isOfWaits = kind ? kind.table.rows === "operations" && (!kind.moment || hasIdle(profile)) : hasIdle(profile);
    controls.hideIdle.parentElement.hidden = !isOfWaits;
    for (const [name, views] of [["group", ["flame"]], ["layout", ["flame"]], ["inverted", ["flame", "wakers"]]]) {
      controls[name].parentElement.hidden = !views.includes(state.view);
    }
    if (document.activeElement !== controls.search) controls.search.value = state.search;
  }

  /* Fill in the choices of values and groups; returns the chosen group, "" if it does not exist. */
  fillChoices() {
    const { profiles } = this.stacks;
    const { profile, state, kind, controls } = this;
    const types = profile.sample_types.map(({ type }) => [type, type]);
    const keys = new Set(profiles.flatMap(({ labels, strings }) => labels.flat().map(([key]) => strings[key])));
    const hasOperations = kind ? kind.table.rows === "operations"
      : profiles.some(({ operations, strings }) => operations.some((text) => strings[text]));
    const groups = [["", "nothing"]];
    if (hasOperations) groups.push(["operation", "operation"]);
    for (const key of [...keys].sort()) groups.push([`label:${key}`, ["lock", Handlers.KEY].includes(key) ? key : `label ${key}`]);
    if (kind?.lock_option && !keys.has("lock")) groups.push(["lock", `lock (start serve with ${kind.lock_option})`]);
    const group = groups.some(([value]) => value === state.group && value !== "lock") ? state.group : "";
    const filled = [[controls.type, types, types[this.valueIndex][0]], [controls.group, groups, group]];
    for (const each of filled) ProfileView.fill(...each);
    return group;
  }

  /* Fill in the choices of a list, [value, text] each, unless they are there. */
  static fill(select, choices, chosen) {
    const wanted = JSON.stringify(choices);
    if (select.dataset.choices !== wanted) {
      select.dataset.choices = wanted;
      const option = ([value, text]) =>
        newElement("option", { value, textContent: FlameText.printable(text), disabled: value === "lock" });
      select.replaceChildren(...choices.map(option));
    }
    select.value = chosen;
  }

  /* ---- Its elements ---- */

  build(container, keys) {
    const place = (id, ariaLabel) => newElement("section", { id, ariaLabel });
    this.nothing = newElement("p", { id: "nothing" });
    this.idle = newElement("details", { id: "idle" }, newElement("summary"), newElement("dl"));
    this.places = {
      flame: place("graph", "Flame graph"), wakers: place("wakers", "Who woke whom"),
      sandwich: place("sandwich", "Callers and callees"),
      graph: place("calls", "Call graph"), source: place("source", "Source"),
    };
    this.heat = new Heatmap(newElement("section", { id: "heat", ariaLabel: "Waits by time and length" }), {
      onchange: (part) => this.onchange({ part, zoom: [] }),
    });
    this.operations = new OperationTable(newElement("section", { id: "operations", ariaLabel: "Operations" }));
    this.lockTable = new LockTable(newElement("section", { id: "locks", ariaLabel: "Locks" }));
    this.handlerTable = new HandlerTable(newElement("section", { id: "handlers", ariaLabel: "Handlers" }), {
      onchoose: (handler) => this.onchange({ handler, zoom: [] }),
    });
    const table = newElement("div", { id: "functions", className: "scroll" });
    this.functions = newElement("section", { ariaLabel: "Functions" },
      newElement("h2", { textContent: "Functions" }), table);
    this.help = this.makeHelp(keys);
    const choice = newElement("div", { className: "bar view-bar" }, this.makeViews(), ...this.makeSearch());
    this.display = this.makeOptions();
    this.controlled = [choice, this.display];
    container.append(this.heat.section, choice, this.display, this.nothing, ...Object.values(this.places),
      this.handlerTable.section, this.operations.section, this.lockTable.section, this.functions, this.help);
    const actions = [
      { key: "c", label: "Copy stack", run: (frame, graph) => this.copy(graph.tree.stackOf(frame.node), graph) },
      { key: "s", label: "Callers and callees", run: (frame) => this.choose(frame) },
      { key: "l", label: "Source", run: ({ kind, file }) => kind !== "group" && this.onchange({ view: "source", file }) },
    ];
    this.graph = new FlameGraph(this.places.flame, {
      actions, onZoom: () => this.onzoom({ zoom: this.graph.zoomPath }),
    });
    this.wakers = new Wakers(this.places.wakers, { actions, onzoom: (zoom) => this.onzoom(zoom) });
    this.sandwich = new Sandwich(this.places.sandwich, { actions });
    this.calls = new CallGraph(this.places.graph, { onchoose: (row) => this.choose(row) });
    this.source = new SourceView(this.places.source, { onchoose: (file) => this.onchange({ file }) });
    for (const element of [...this.controlled, ...Object.values(this.places), this.nothing, this.idle,
      this.handlerTable.section, this.operations.section, this.lockTable.section, this.functions, this.heat.section]) element.hidden = true; // until there is a profile
    this.table = new FunctionTable(table, {
      onchoose: (row) => this.chosen(row), onsort: (sort) => this.onchange({ sort }),
    });
  }

  makeViews() {
    this.views = ViewState.VIEWS.map(([value]) => {
      const radio = newElement("input", { type: "radio", name: "view", value });
      radio.addEventListener("change", () => this.onchange({ view: value }));
      return radio;
    });
    const labels = ViewState.VIEWS.map(([, words], i) => newElement("label", {}, this.views[i], words));
    return newElement("fieldset", { className: "views" },
      newElement("legend", { className: "hidden", textContent: "View" }), ...labels);
  }

  /* The choices of what is shown: folded up where there is little room. */
  makeOptions() {
    const isWide = matchMedia("(min-width: 900px)");
    const details = newElement("details", { className: "options", open: isWide.matches },
      newElement("summary", { textContent: "Display" }), this.makeBar());
    isWide.addEventListener("change", () => { details.open = isWide.matches; });
    return details;
  }

  makeSearch() {
    const search = newElement("input", {
      id: "search", type: "search", spellcheck: false, placeholder: "function, or path:file",
    });
    search.addEventListener("input", () => {
      clearTimeout(this.searching);
      this.searching = setTimeout(() => this.onchange({ search: search.value }), ProfileView.SEARCH_AFTER_MS);
    });
    this.controls = { search };
    this.matched = newElement("output", { id: "matched" });
    const help = newElement("button", { type: "button", textContent: "?", ariaLabel: "Keys", title: "Keys (?)" });
    help.addEventListener("click", () => this.help.showModal());
    return [newElement("label", { className: "grow" }, "Search ", search), this.matched, help];
  }

  makeBar() {
    const select = (id, name, choices = []) => {
      const made = newElement("select", { id }, ...choices.map(([value, text]) => new Option(text, value)));
      const changes = ["group", "handler"].includes(id) ? { zoom: [] } : {};
      made.addEventListener("change", () => this.onchange({ [name]: made.value, ...changes }));
      return made;
    };
    const tick = (id, name) => {
      const made = newElement("input", { id, type: "checkbox" });
      const changes = id === "inverted" ? { zoom: [], waker: [], waited: [] } : {};
      made.addEventListener("change", () => this.onchange({ [name]: made.checked, ...changes }));
      return made;
    };
    Object.assign(this.controls, {
      type: select("value", "type"), group: select("group", "group"), handler: select("handler", "handler"),
      layout: select("graph-layout", "layout", ViewState.LAYOUTS),
      inverted: tick("inverted", "inverted"), hideIdle: tick("hide-idle", "hideIdle"),
    });
    const { type, group, handler, layout, inverted, hideIdle } = this.controls;
    const bar = newElement("div", { className: "bar", role: "group", ariaLabel: "View" },
      newElement("label", {}, "Handler ", handler),
      newElement("label", {}, "Sample type ", type), newElement("label", {}, "Group by ", group),
      newElement("label", {}, "Layout ", layout), newElement("label", {}, inverted, " inverted"),
      newElement("label", {}, hideIdle, " hide idle waits"), this.idle);
    return bar;
  }

  makeHelp(keys) {
    const rows = [...ProfileView.KEYS, ...keys].flatMap(([key, words]) => [
      newElement("dt", {}, newElement("kbd", { textContent: key })), newElement("dd", { textContent: words }),
    ]);
    const words = "Flat is the value of a function itself; cum includes what it called. " +
      "An icicle has callers on top, a flame callees. Inverted, a graph begins with the functions " +
      "called last.";
    const close = newElement("button", { type: "button", textContent: "Close" });
    const help = newElement("dialog", { className: "help", ariaLabel: "Keys and terms" },
      newElement("h2", { textContent: "Keys" }), newElement("dl", {}, ...rows),
      newElement("p", { textContent: words }), close);
    close.addEventListener("click", () => help.close());
    return help;
  }

  /* ---- What the user does ---- */

  key(event) {
    if (isTyping(event) || this.help.open) return;
    if (event.key === "/") {
      event.preventDefault();
      this.controls.search.focus();
    }
    if (event.key === "?") this.help.showModal();
  }

  /* Shows callers and callees of a function, {kind, name}. */
  choose({ kind, name }) {
    if (kind !== "group") this.onchange({ view: "sandwich", root: name });
  }

  /* A function of the table was clicked. */
  chosen(row) {
    if (this.state.view === "sandwich") this.choose(row);
    else this.onchange({ search: this.state.search === row.name ? "" : row.name });
  }

  async copy(frames, graph) {
    try {
      await copyText(FlameText.stack(frames));
      graph.live.textContent = `Copied ${frames.length === 1 ? "1 frame" : `${frames.length} frames`}.`;
    } catch (error) {
      graph.live.textContent = `Nothing was copied: ${error.message}`;
    }
  }
}
