"use strict";
// The page. What it shows (process, kind of profile, time, search) stands in the fragment of its
// address, and nowhere else. Which kinds there are, and their words, the server says.

const TARGETS_EVERY_MS = 5000;
const BEGINNING_EVERY_MS = 500; // while a recording begins, its state changes
const SEARCH_AFTER_MS = 120;

const byId = (id) => document.getElementById(id);

/** What the page shows; unknown and malformed words of an address are ignored. */
class State {
  static read(hash) {
    const words = new URLSearchParams(hash.replace(/^#/, ""));
    const number = (name) => {
      const value = Number(words.get(name));
      return words.has(name) && Number.isFinite(value) && value >= 0 ? value : null;
    };
    const time = (from, to) => {
      const [start, end] = [number(from), number(to)];
      return start !== null && end !== null && start < end ? { from: start, to: end } : null;
    };
    return {
      pid: number("pid"),
      kind: words.get("kind") || "",
      window: time("from", "to"),
      base: time("base-from", "base-to"),
      value: number("value"),
      group: words.get("group") || "",
      inverted: words.get("inverted") === "1",
      hideIdle: words.get("idle") !== "1",
      search: words.get("search") || "",
      zoom: words.getAll("zoom"),
      sort: words.get("sort") || "flat",
    };
  }

  static write(state) {
    const words = new URLSearchParams();
    const put = (name, value) => { if (value !== null && value !== "" && value !== false) words.set(name, value); };
    put("pid", state.pid);
    put("kind", state.kind);
    put("from", state.window && state.window.from);
    put("to", state.window && state.window.to);
    put("base-from", state.base && state.base.from);
    put("base-to", state.base && state.base.to);
    put("value", state.value);
    put("group", state.group);
    put("inverted", state.inverted ? "1" : "");
    put("idle", state.hideIdle ? "" : "1");
    put("search", state.search);
    put("sort", state.sort === "flat" ? "" : state.sort);
    for (const name of state.zoom) words.append("zoom", name);
    return `#${words}`;
  }
}

class Page {
  constructor() {
    this.api = new Api();
    this.state = State.read(location.hash);
    this.targets = [];
    this.kinds = new Map(); // the server's descriptions of the kinds of profiles, by name
    this.paused = false;
    this.profile = null;
    this.base = null;
    this.question = 0; // answers to earlier questions are ignored
    this.intervalMs = TARGETS_EVERY_MS;
    this.graph = new FlameGraph(byId("graph"), {
      onZoom: () => this.remember({ zoom: this.graph.zoomPath }),
    });
    this.findings = new Findings(byId("findings"));
    this.processes = new ProcessTable(byId("processes"), {
      hrefOf: ({ pid }) => State.write({ ...State.read(""), pid, kind: this.state.kind }),
    });
    this.timeline = new Timeline(byId("timeline"), { onpick: (from, to) => this.pick(from, to) });
    this.table = new FunctionTable(byId("functions"), {
      onchoose: (name) => this.set({ search: this.state.search === name ? "" : name }),
      onsort: (sort) => this.set({ sort }),
    });
    this.listen();
    this.run();
  }

  listen() {
    addEventListener("hashchange", () => {
      this.state = State.read(location.hash);
      this.refresh(true);
    });
    byId("pause").addEventListener("click", () => this.pause(!this.paused));
    byId("theme").addEventListener("click", () => {
      toggleTheme();
      this.draw();
    });
    byId("live").addEventListener("click", () => this.set({ window: null }));
    byId("uncompare").addEventListener("click", () => this.set({ base: null }));
    byId("value").addEventListener("change", (event) => this.set({ value: Number(event.target.value) }));
    byId("group").addEventListener("change", (event) => this.set({ group: event.target.value, zoom: [] }));
    byId("inverted").addEventListener("change", (event) => this.set({ inverted: event.target.checked, zoom: [] }));
    byId("hide-idle").addEventListener("change", (event) => this.set({ hideIdle: event.target.checked }));
    byId("search").addEventListener("input", (event) => {
      clearTimeout(this.searching);
      this.searching = setTimeout(() => this.set({ search: event.target.value }), SEARCH_AFTER_MS);
    });
    byId("access").addEventListener("submit", (event) => {
      event.preventDefault();
      const address = new URL(location.href);
      address.searchParams.set("token", byId("token").value);
      location.replace(address);
    });
    document.addEventListener("keydown", (event) => {
      if (event.target.closest("input, select, button, canvas, svg, [role=application]") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "p") this.pause(!this.paused);
      if (event.key === "/") {
        event.preventDefault();
        byId("search").focus();
      }
    });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.refresh(false); });
  }

  async run() {
    for (;;) {
      if (!document.hidden) await this.refresh(false);
      await new Promise((done) => setTimeout(done, this.intervalMs));
    }
  }

  /** Change what the page shows. It asks the server only if that is another profile. */
  set(changes) {
    const before = this.state;
    this.remember(changes);
    const same = ["pid", "kind", "window", "base"].every((name) => this.state[name] === before[name]);
    if (same) this.draw();
    else this.refresh(true);
  }

  /** Change the state and the address, and nothing of what is drawn. */
  remember(changes) {
    this.state = { ...this.state, ...changes };
    history.replaceState(null, "", location.pathname + location.search + State.write(this.state));
  }

  pick(from, to) {
    const picks = document.querySelector("input[name=picks]:checked").value;
    this.set(picks === "base" ? { base: { from, to } } : { window: { from, to } });
  }

  pause(paused) {
    this.paused = paused;
    const button = byId("pause");
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
    if (!paused) this.refresh(false);
  }

  get target() {
    return this.targets.find((each) => each.pid === this.state.pid) || null;
  }

  /** Ask the server for what the page shows; for a window that was picked, only if `isNew`. */
  async refresh(isNew) {
    if (this.paused && !isNew) return;
    const question = ++this.question;
    try {
      const found = await this.api.targets();
      if (question !== this.question) return;
      this.targets = found.targets;
      this.kinds = new Map(found.kinds.map((kind) => [kind.name, kind]));
      this.intervalMs = Math.max(1000, Math.min(found.interval_s * 1000, TARGETS_EVERY_MS));
      byId("version").textContent = found.version;
      const servable = this.targets.filter((each) => each.supported && each.kinds.length);
      if (this.state.pid === null && servable.length === 1) this.remember({ pid: servable[0].pid });
      this.showProblem(null);
      const target = this.target;
      this.showProcesses(target);
      if (!target) return;
      if (!target.kinds.includes(this.state.kind) && target.kinds.length) this.state.kind = target.kinds[0];
      this.showTarget(target);
      if (!target.kinds.length) {
        this.findings.show(null);
        return;
      }
      await this.loadFindings(target, question);
      if (question !== this.question) return;
      await this.load(target, question, isNew);
    } catch (error) {
      if (question === this.question) this.showProblem(error);
    }
  }

  /** Goroutines that hang or leak now, whatever time and kind of profile the page shows. */
  async loadFindings(target, question) {
    const found = target.ended ? null : await this.api.goroutines(target.pid);
    if (question === this.question) this.findings.show(found);
  }

  async load(target, question, isNew) {
    const { kind, window, base } = this.state;
    const times = await this.api.timeline(target.pid, kind);
    if (question !== this.question) return;
    this.times = times;
    this.showState(times); // it may have begun just now, for this request
    if (times.state === "reading" || times.state === "attaching" || !times.windows.length) this.intervalMs = BEGINNING_EVERY_MS;
    this.showTimeline();
    const wanted = JSON.stringify([target.pid, kind, window, base]);
    const isKnown = this.loaded === wanted && this.profile;
    if (isKnown && window && !isNew) return;
    try {
      const [profile, before] = await Promise.all([
        this.api.profile(target.pid, kind, window || {}),
        base ? this.api.profile(target.pid, kind, base) : null,
      ]);
      if (question !== this.question) return;
      this.profile = profile;
      this.base = before;
      this.loaded = wanted;
      this.missing = "";
    } catch (error) {
      if (question !== this.question) return;
      if (!(error instanceof ApiError) || error.code !== 404) throw error;
      if (this.loaded !== wanted) this.profile = this.base = null;
      this.missing = target.ended || window || base ? error.message : ""; // the state says it
    }
    this.draw();
  }

  showProblem(error) {
    const problem = byId("error");
    problem.hidden = !error;
    problem.textContent = error ? error.message : "";
    byId("access").hidden = !(error instanceof ApiError && error.code === 401);
    byId("status").textContent = error ? "" : this.paused ? "paused" : "";
    if (error && !(error instanceof ApiError)) throw error;
  }

  /** The table of processes where none is shown, and the way back to it. */
  showProcesses(target) {
    byId("main").hidden = !target;
    byId("processes").hidden = Boolean(target);
    byId("all").hidden = this.targets.length < 2;
    this.processes.show(this.targets);
    const isGone = !target && this.state.pid !== null;
    byId("welcome").hidden = !isGone;
    byId("welcome").textContent = isGone ? `Process ${this.state.pid} is gone, or was never served here.` : "";
    if (!target) document.title = "ebpfprof";
  }

  /** The one state of the process that is shown. */
  showState({ state, says }) {
    byId("state").dataset.state = state;
    if (byId("state").textContent !== says) byId("state").textContent = FlameText.printable(says);
  }

  showTarget(target) {
    const about = byId("about");
    const name = document.createElement("h2");
    name.textContent = FlameText.printable(`${target.name} (${target.pid})`);
    const words = document.createElement("p");
    words.textContent = [target.go, target.user && `user ${target.user}`,
      target.container && `container ${target.container.slice(0, 12)}`].filter(Boolean).join(" · ");
    about.replaceChildren(name, words);
    if (target.state !== "idle") this.showState(target); // the timeline's request begins a recording
    document.title = `${name.textContent} – ebpfprof`;
    const kinds = [...this.kinds.values()].filter(({ name }) => target.kinds.includes(name));
    const tabs = kinds.map(({ name: kind, title, summary }) => {
      const tab = document.createElement("button");
      tab.type = "button";
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-selected", String(kind === this.state.kind));
      tab.dataset.kind = kind;
      tab.textContent = title.charAt(0).toUpperCase() + title.slice(1);
      tab.title = summary;
      tab.addEventListener("click", () => this.set({ kind, value: null, group: "", zoom: [] }));
      return tab;
    });
    const list = byId("kinds");
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.kind : null;
    list.replaceChildren(...tabs);
    for (const tab of tabs) if (tab.dataset.kind === focused) tab.focus();
  }

  showTimeline() {
    const { window, base } = this.state;
    const { windows, unit, kind } = this.times || { windows: [], unit: "nanoseconds" };
    const isMoment = this.kinds.has(kind) && this.kinds.get(kind).moment;
    this.timeline.show(windows, { unit, isMoment, window, base });
    const words = (time) => `${formatTime(time.from)} to ${formatTime(time.to)}`;
    const shown = window ? words(window) : "the last minute";
    byId("window").textContent = base ? `${shown}, compared with ${words(base)}` : shown;
    byId("live").hidden = !window;
    byId("uncompare").hidden = !base;
  }

  draw() {
    const { profile, state } = this;
    this.showTimeline();
    const isEmpty = !profile || !profile.stacks.length;
    byId("nothing").hidden = !isEmpty;
    byId("nothing").textContent = profile ? "Nothing was recorded in this time." : this.missing || "";
    byId("graph").hidden = isEmpty;
    byId("functions").hidden = isEmpty;
    byId("idle").hidden = true;
    byId("losses").hidden = true;
    byId("headline").textContent = "";
    byId("matched").textContent = "";
    byId("download").href = this.api.pprofUrl(state.pid, state.kind, state.window || {});
    byId("hide-idle").parentElement.hidden = !this.showsOperations(state.kind);
    byId("inverted").checked = state.inverted;
    byId("hide-idle").checked = state.hideIdle;
    if (document.activeElement !== byId("search")) byId("search").value = state.search;
    if (isEmpty) return;
    const valueIndex = state.value !== null && state.value < profile.sample_types.length ? state.value : profile.default;
    const kind = this.kinds.get(profile.kind); // state.kind may be one whose profile is not there yet
    const group = this.fillChoices(profile, valueIndex);
    byId("headline").textContent = headline(profile, kind, valueIndex, state.hideIdle);
    this.showIdle(profile, valueIndex);
    this.graph.setData(profile, {
      valueIndex, hideIdle: state.hideIdle, base: this.base, groupBy: group, inverted: state.inverted,
    });
    this.graph.zoomToPath(state.zoom);
    const found = this.graph.search(state.search);
    if (state.search) byId("matched").textContent = `${formatShare(found.share, 1)} matches`;
    this.table.show(this.graph.functions(), {
      unit: profile.sample_types[valueIndex].unit, total: this.graph.info(0).value, count: kind.table.count,
      sort: state.sort, filter: state.search, isCompared: Boolean(this.base),
    });
    const notes = profile.comments.map((text) => Object.assign(document.createElement("li"), { textContent: FlameText.printable(text) }));
    byId("notes").querySelector("ul").replaceChildren(...notes);
    this.showLosses(profile);
  }

  /** How much is missing: a warning where that may change what is shown, else a footnote. */
  showLosses({ comments, incomplete }) {
    const told = comments.filter((text) => text.startsWith("incomplete"));
    const isAlarming = Boolean(incomplete && incomplete.alarming);
    const losses = byId("losses");
    losses.hidden = !told.length;
    losses.classList.toggle("alarming", isAlarming);
    losses.textContent = FlameText.printable(isAlarming ? told.join("; ") : told.slice(-1).join());
    (isAlarming ? byId("headline") : byId("functions").parentElement).after(losses);
  }

  /** Whether samples of a kind of profile are of operations, some of which are idle. */
  showsOperations(kind) {
    return this.kinds.has(kind) && this.kinds.get(kind).table.rows === "operations";
  }

  /** Fill in the choices of values and groups; returns the chosen group, "" if it does not exist. */
  fillChoices(profile, valueIndex) {
    const values = profile.sample_types.map((type, index) => [String(index), type.type]);
    const keys = new Set(profile.labels.flatMap((labels) => labels.map(([key]) => profile.strings[key])));
    const groups = [["", "nothing"]];
    if (this.showsOperations(profile.kind)) groups.push(["operation", "wait reason"]);
    for (const key of [...keys].sort()) groups.push([`label:${key}`, key === "lock" ? "lock" : `label ${key}`]);
    const { lock_option: option } = this.kinds.get(profile.kind) || {};
    if (option && !keys.has("lock")) groups.push(["lock", `lock (start serve with ${option})`]);
    const group = groups.some(([value]) => value === this.state.group && value !== "lock") ? this.state.group : "";
    for (const [id, choices, chosen] of [["value", values, String(valueIndex)], ["group", groups, group]]) {
      const select = byId(id);
      const wanted = JSON.stringify(choices);
      if (select.dataset.choices !== wanted) {
        select.dataset.choices = wanted;
        select.replaceChildren(...choices.map(([value, text]) => Object.assign(new Option(FlameText.printable(text), value), { disabled: value === "lock" })));
      }
      select.value = chosen;
    }
    return group;
  }

  showIdle(profile, valueIndex) {
    const { rows, sum } = idleRows(profile, valueIndex);
    const details = byId("idle");
    const unit = profile.sample_types[valueIndex].unit;
    details.hidden = !rows.length;
    details.querySelector("summary").textContent =
      `${formatValue(sum, unit)} of idle waiting ${this.state.hideIdle ? "hidden" : "shown"}`;
    const list = details.querySelector("dl");
    list.replaceChildren();
    for (const row of rows) {
      const name = document.createElement("dt");
      name.textContent = `${row.name}: ${formatValue(row.value, unit)}`;
      const reason = document.createElement("dd");
      reason.textContent = row.reason;
      list.append(name, reason);
    }
  }
}

applyTheme(storedTheme());
const page = new Page();
