"use strict";
/* A flame graph as a page of its own: a toolbar around the graph, from the JSON in #profile and,
   to compare it with, in #base. What is looked at stands in the fragment of the address. */

class StandalonePage {
  constructor(app, profile, base) {
    this.app = app;
    this.profile = profile;
    this.base = base;
    this.state = this.read();
    this.build();
    this.graph = new FlameGraph(this.place, {});
    this.show();
    addEventListener("hashchange", () => {
      this.state = this.read();
      this.show();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.closest("input, select")) return;
      event.preventDefault();
      this.searchBox.focus();
    });
  }

  /* What a link says; what can't be is left out. */
  read() {
    const words = new URLSearchParams(location.hash.slice(1));
    const value = Number(words.get("value") ?? NaN);
    const group = words.get("group") || "";
    const isGroup = this.groups().some(([each]) => each === group);
    return {
      valueIndex: this.profile.sample_types[value] ? value : this.profile.default,
      groupBy: isGroup ? group : "",
      inverted: words.get("inverted") === "1",
      hideIdle: words.has("idle") ? words.get("idle") !== "1" : "hideIdle" in this.app.dataset,
      search: words.get("search") || "",
    };
  }

  set(changes) {
    this.state = { ...this.state, ...changes };
    const { valueIndex, groupBy, inverted, hideIdle, search } = this.state;
    const words = new URLSearchParams();
    if (valueIndex !== this.profile.default) words.set("value", valueIndex);
    if (groupBy) words.set("group", groupBy);
    if (inverted) words.set("inverted", "1");
    if (hideIdle !== "hideIdle" in this.app.dataset) words.set("idle", hideIdle ? "0" : "1");
    if (search) words.set("search", search);
    history.replaceState(null, "", `${location.pathname}${location.search}#${words}`);
    if (Object.keys(changes).join() === "search") this.showSearch();
    else this.show();
  }

  /* By what stacks can be grouped: [value, words]. */
  groups() {
    const { profile } = this;
    const keys = new Set();
    for (const labels of profile.labels) {
      for (const [key] of labels) keys.add(profile.strings[key]);
    }
    const found = [["", "nothing"]];
    if (profile.operations.some((each) => profile.strings[each])) {
      found.push(["operation", "wait operation"]);
    }
    for (const key of [...keys].sort()) {
      const words = key === "lock" ? "lock" : `label ${FlameText.printable(key)}`;
      found.push([`label:${key}`, words]);
    }
    return found;
  }

  /* ---- What is there ---- */

  build() {
    const { profile } = this;
    const title = this.make("h1", "flame-title", FlameText.printable(profile.title));
    const about = this.make("p", "flame-about", this.about());
    const bar = this.make("div", "flame-bar");
    bar.setAttribute("role", "toolbar");
    bar.setAttribute("aria-label", "Flame graph");
    const types = profile.sample_types.map(({ type }, i) => [i, FlameText.printable(type)]);
    this.value = this.choice(bar, "Show", types, (text) => this.set({ valueIndex: Number(text) }));
    this.group = this.choice(bar, "Group by", this.groups(), (groupBy) => this.set({ groupBy }));
    this.inverted = this.check(bar, "invert", (inverted) => this.set({ inverted }));
    this.hideIdle = this.check(bar, "hide idle", (hideIdle) => this.set({ hideIdle }));
    this.hideIdle.parentElement.hidden = !profile.idle_rules.length;
    const label = this.make("label", "flame-search", "Search ");
    this.searchBox = this.make("input");
    this.searchBox.type = "search";
    this.searchBox.spellcheck = false;
    this.searchBox.addEventListener("input", () => this.set({ search: this.searchBox.value }));
    label.append(this.searchBox);
    this.matched = this.make("span", "flame-matched");
    this.matched.setAttribute("aria-live", "polite");
    const theme = this.make("button", "", "Theme");
    theme.type = "button";
    theme.title = "Dark or light";
    theme.addEventListener("click", () => StandalonePage.toggleTheme());
    bar.append(label, this.matched, theme);
    this.idle = this.details("flame-idle");
    this.place = this.make("div");
    const notes = this.details("flame-notes");
    notes.summary.textContent = "How it was recorded";
    notes.element.hidden = !profile.comments.length;
    notes.fill(profile.comments);
    this.app.append(title, about, bar, this.idle.element, this.place, notes.element);
  }

  about() {
    const { profile, base } = this;
    const words = [];
    if (profile.time_s > 0) words.push(new Date(profile.time_s * 1000).toLocaleString());
    if (profile.duration_s > 0) words.push(FlameText.quantity(profile.duration_s, "seconds"));
    if (base) words.push("compared with another profile");
    return words.join(" · ");
  }

  make(tag, name = "", text = "") {
    const made = document.createElement(tag);
    if (name) made.className = name;
    made.textContent = text;
    return made;
  }

  choice(bar, words, choices, onchange) {
    const label = this.make("label", "", `${words} `);
    const select = this.make("select");
    for (const [value, text] of choices) select.append(new Option(text, value));
    select.addEventListener("change", () => onchange(select.value));
    label.append(select);
    bar.append(label);
    return select;
  }

  check(bar, words, onchange) {
    const label = this.make("label");
    const box = this.make("input");
    box.type = "checkbox";
    box.addEventListener("change", () => onchange(box.checked));
    label.append(box, ` ${words}`);
    bar.append(label);
    return box;
  }

  details(name) {
    const element = this.make("details", name);
    const summary = this.make("summary");
    const list = this.make("ul");
    element.append(summary, list);
    const fill = (lines) => {
      const item = (line) => this.make("li", "", FlameText.printable(line));
      list.replaceChildren(...lines.map(item));
    };
    return { element, summary, fill };
  }

  /* ---- What is shown ---- */

  show() {
    const { profile, base, state } = this;
    this.value.value = String(state.valueIndex);
    this.group.value = state.groupBy;
    this.inverted.checked = state.inverted;
    this.hideIdle.checked = state.hideIdle;
    const { valueIndex, groupBy, inverted, hideIdle } = state;
    this.graph.setData(profile, { valueIndex, groupBy, inverted, hideIdle, base });
    this.showIdle();
    this.showSearch();
  }

  showSearch() {
    const { search } = this.state;
    if (this.searchBox.value !== search) this.searchBox.value = search;
    const found = this.graph.search(search);
    this.matched.textContent = search
      ? `${FlameText.share(found.share, 1)} matches (${found.functions} functions)`
      : "";
  }

  /* What was waited for as idle, by rule, whether it is hidden or not. */
  showIdle() {
    const { profile, state } = this;
    const { unit } = profile.sample_types[state.valueIndex];
    const sums = profile.idle_rules.map(() => 0);
    profile.idle.forEach((rule, i) => {
      if (rule >= 0) sums[rule] += profile.values[i][state.valueIndex];
    });
    const whole = sums.reduce((sum, each) => sum + each, 0);
    const order = [...sums.keys()].sort((a, b) => sums[b] - sums[a]);
    this.idle.element.hidden = !sums.length;
    this.idle.summary.textContent =
      `${state.hideIdle ? "Hidden" : "Shown"} as idle: ${FlameText.quantity(whole, unit)}`;
    this.idle.fill(
      order.map((i) => {
        const { name, reason } = profile.idle_rules[i];
        return `${name}, ${FlameText.quantity(sums[i], unit)}: ${reason}`;
      }),
    );
  }

  static toggleTheme() {
    const { dataset } = document.documentElement;
    const isDark = dataset.theme
      ? dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    dataset.theme = isDark ? "light" : "dark";
  }
}

{
  const parsed = (id) => {
    const element = document.getElementById(id);
    return element ? JSON.parse(element.textContent) : null;
  };
  window.standalone = new StandalonePage(
    document.getElementById("app"), parsed("profile"), parsed("base"),
  );
}
