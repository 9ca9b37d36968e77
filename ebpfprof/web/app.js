"use strict";
// The page. What it shows (process, kind of profile, time, search) is stored in the fragment of its
// address only. The server describes the kinds of profiles.

const TARGETS_EVERY_MS = 5000;
const BEGINNING_EVERY_MS = 500; // while a recording begins, its state changes
const OVERVIEW = "Overview"; // the tab that is shown while no kind of profile is chosen
const READ_PAUSES = 10; // pause between readings of memory, in multiples of their duration

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
      ...ViewState.read(words, true),
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
    ViewState.write(state, words, true);
    return `#${words}`;
  }

  /** The state that shows what is wrong and the last minutes: it names no profile, and nothing of one. */
  static overview(pid) {
    return { ...State.read(""), pid };
  }

  static isOverview(state) {
    return State.write(state) === State.write(State.overview(state.pid));
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
    this.view = new ProfileView(byId("view"), {
      onchange: (changes) => this.set(changes), onzoom: (changes) => this.remember(changes),
      keys: [["p", "pause or continue"]],
    });
    this.traces = new Traces(byId("traces"), this.api);
    this.findings = new Findings(byId("findings"));
    this.explanation = new Explanation(byId("explanation"), this.api);
    this.strips = new Strips(byId("strips"), this.api);
    this.references = new References(byId("references"), this.api);
    this.processes = new ProcessTable(byId("processes"), {
      hrefOf: ({ pid }) => State.write({ ...State.read(""), pid, kind: this.state.kind }),
    });
    this.timeline = new Timeline(byId("timeline"), { onpick: (from, to) => this.pick(from, to) });
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
    });
    byId("live").addEventListener("click", () => this.set({ window: null, part: null }));
    byId("uncompare").addEventListener("click", () => this.set({ base: null }));
    byId("access").addEventListener("submit", (event) => {
      event.preventDefault();
      const address = new URL(location.href);
      address.searchParams.set("token", byId("token").value);
      location.replace(address);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "p" && !isTyping(event)) this.pause(!this.paused);
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
    if (changes.part) this.stay();
    const before = this.state;
    this.remember(changes);
    const same = ["pid", "kind", "window", "base"].every((name) => this.state[name] === before[name]);
    if (same) {
      this.draw();
      return;
    }
    if (this.target) { // at once: the answer may take seconds
      this.showTarget(this.target);
      this.begin(this.target);
    }
    this.refresh(true);
  }

  /** Go on showing the time of the profile: a part of it is selected, and the last minute moves. */
  stay() {
    const { window, pid, kind, base } = this.state;
    const times = this.profile?.slices?.times;
    if (window || !times) return;
    this.question += 1; // no answer to come is for this time
    this.remember({ window: { from: times[0][0], to: times[times.length - 1][1] } });
    this.loaded = this.wanted = JSON.stringify([pid, kind, this.state.window, base]);
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
      if (!target.kinds.includes(this.state.kind)) {
        this.state.kind = "";
        if (!State.isOverview(this.state)) this.state.kind = target.kinds[0] ?? "";
      }
      this.showTarget(target);
      this.traces.show(target, found.last_s);
      this.begin(target);
      await (this.state.kind ? this.load(target, question, isNew) : this.loadOverview(target, question));
    } catch (error) {
      if (question === this.question) this.showProblem(error);
    }
  }

  /** What the page is to show; nothing of something else stays on it meanwhile. */
  begin(target) {
    const { kind, window, base } = this.state;
    this.wanted = JSON.stringify([target.pid, kind, window, base]);
    const place = `${target.pid} ${kind}`;
    if (this.loaded !== this.wanted && (this.profile || (this.place && this.place !== place))) {
      this.profile = this.base = null;
      this.missing = "Loading…";
      if (this.place !== place) this.times = null;
      this.draw();
    }
    this.place = place;
  }

  /** What is wrong now, goroutines that hang or leak, and the last minutes: none needs a recording. */
  async loadOverview(target, question) {
    this.explanation.show(target, this.paused);
    this.references.show(target);
    const [found] = await Promise.all([
      target.ended || !target.kinds.length ? null : this.api.goroutines(target.pid),
      this.strips.show(target.kinds.length ? target : null),
    ]);
    if (question === this.question) this.findings.show(found);
  }

  async load(target, question, isNew) {
    const { kind, window, base } = this.state;
    const { wanted } = this;
    const isKnown = this.loaded === wanted && this.profile;
    const began = performance.now();
    if (target.read.includes(kind)) {
      this.times = null;
      this.showTimeline();
    } else {
      const times = await this.api.timeline(target.pid, kind);
      if (question !== this.question) return;
      this.times = times;
      this.showState(times); // it may have begun with this request
      if (times.state === "reading" || times.state === "attaching" || !times.windows.length) this.intervalMs = BEGINNING_EVERY_MS;
      this.showTimeline();
      if (isKnown && window && !isNew) return;
    }
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
      if (!this.times) {
        this.showState({ state: "read", says: `Read from its memory at ${formatTime(Date.now() / 1000)}.` });
        this.intervalMs = Math.max(this.intervalMs, READ_PAUSES * (performance.now() - began));
      }
    } catch (error) {
      if (question !== this.question) return;
      if (!(error instanceof ApiError) || error.code !== 404) throw error;
      if (this.loaded !== wanted) this.profile = this.base = null;
      const isSaid = this.times && !target.ended && !window && !base; // the state says it
      this.missing = isSaid ? "" : error.message;
    }
    this.draw();
  }

  showProblem(error) {
    if (error) byId("welcome").hidden = true;
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
    byId("welcome").textContent = isGone ? `Process ${this.state.pid} has ended, or was never served here.` : "";
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
    byId("overview").hidden = Boolean(this.state.kind);
    byId("recorded").hidden = !this.state.kind;
    // The timeline's request begins a recording; what is read from memory says when it was.
    if (!this.state.kind || (target.state !== "idle" && !target.read.includes(this.state.kind))) this.showState(target);
    document.title = `${name.textContent} – ebpfprof`;
    const worst = findingWords(target.findings);
    const overview = { name: "", title: worst ? `${OVERVIEW} (${worst})` : OVERVIEW, summary: "What is wrong, and the last minutes; nothing is recorded for it" };
    const kinds = [...this.kinds.values()].filter(({ name }) => target.kinds.includes(name));
    const tabs = [overview, ...kinds].map(({ name: kind, title, summary }) => {
      const tab = document.createElement("button");
      tab.type = "button";
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-selected", String(kind === this.state.kind));
      tab.dataset.kind = kind;
      tab.textContent = title.charAt(0).toUpperCase() + title.slice(1);
      tab.title = summary;
      tab.addEventListener("click", () => this.set(kind ? { kind, type: "", group: "", zoom: [], waker: [], waited: [], part: null } : State.overview(target.pid)));
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
    const { moment = false, at_a_time: atATime = "" } = this.kinds.get(kind) ?? {};
    byId("time").hidden = !windows.length;
    this.timeline.show(windows, { unit, isMoment: moment, atATime, window, base });
    const words = (time) => `${formatTime(time.from)} to ${formatTime(time.to)}`;
    const shown = window ? words(window) : "the last minute";
    byId("window").textContent = base ? `${shown}, compared with ${words(base)}` : shown;
    byId("live").hidden = !window;
    byId("uncompare").hidden = !base;
  }

  draw() {
    const { profile, state } = this;
    this.showTimeline();
    byId("losses").hidden = true;
    const kind = profile ? this.kinds.get(profile.kind) : null; // not state.kind, which may not be there yet
    byId("headline").textContent = "";
    byId("download").hidden = byId("notes").hidden = !profile;
    const handler = state.handler ? { handler: state.handler } : {};
    byId("download").href = this.api.pprofUrl(state.pid, state.kind, { ...state.window, ...handler });
    const sources = { get: (path) => this.api.source(state.pid, path) };
    this.view.show(profile, this.base, state, { kind, sources, nothing: this.missing });
    if (!profile) return;
    byId("headline").textContent = headline(this.view.profile, this.view.valueIndex, state.hideIdle);
    const notes = profile.comments.map((text) => Object.assign(document.createElement("li"), { textContent: FlameText.printable(text) }));
    byId("notes").querySelector("ul").replaceChildren(...notes);
    this.showLosses(profile);
  }

  /** Losses: a warning if they may change what is shown, else a footnote. */
  showLosses({ comments, incomplete }) {
    const reported = comments.filter((text) => text.startsWith("incomplete"));
    const isAlarming = Boolean(incomplete && incomplete.alarming);
    const losses = byId("losses");
    losses.hidden = !reported.length;
    losses.classList.toggle("alarming", isAlarming);
    losses.textContent = FlameText.printable(isAlarming ? reported.join("; ") : reported.slice(-1).join());
    byId(isAlarming ? "headline" : "view").after(losses);
  }
}

applyTheme(storedTheme());
const page = new Page();
