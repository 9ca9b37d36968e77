"use strict";
/* The page of one profile: a flame graph with its toolbar, and a table of functions. The page's
   element "profile" holds the profile, its element "base" the one to compare with, if any. */

/* An element with properties and children; text is never markup. */
function standaloneElement(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

class StandalonePage {
  static ROWS = 100; // functions in the table; more come with a button

  constructor(app, profile, base) {
    this.app = app;
    this.profile = profile;
    this.base = base;
    this.sorted = { column: "flat", isDown: true };
    this.shown = StandalonePage.ROWS;
    app.classList.add("standalone");
    app.append(this.header(), this.toolbar());
    const place = standaloneElement("section", { ariaLabel: "Flame graph" });
    this.table = standaloneElement("section", { ariaLabel: "Functions" });
    this.idleWaits = standaloneElement("details");
    app.append(this.idleWaits, place, this.table);
    this.graph = new FlameGraph(place);
    this.update();
  }

  header() {
    const { profile, base } = this;
    const make = standaloneElement;
    const title = base ? `${profile.title}, compared` : profile.title;
    const about = make("p", { className: "standalone-about", textContent: this.about() });
    const theme = make("button", { type: "button", textContent: "Dark or light" });
    theme.addEventListener("click", () => {
      const root = document.documentElement;
      const isDark = root.dataset.theme
        ? root.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = isDark ? "light" : "dark";
    });
    const heading = make("h1", { textContent: FlameText.printable(title) });
    const header = make("header", {}, make("div", {}, heading, about), theme);
    const comments = base ? [...profile.comments, ...base.comments] : profile.comments;
    if (comments.length > 0) {
      const list = make("ul", {}, ...comments.map((each) =>
        make("li", { textContent: FlameText.printable(each) })));
      header.append(make("details", {}, make("summary", { textContent: "Comments" }), list));
    }
    return header;
  }

  about() {
    const length = (each) => FlameText.quantity(each.duration_s, "seconds");
    const words = [];
    if (this.profile.time_s > 0) {
      const time = new Date(this.profile.time_s * 1000).toISOString();
      words.push(`from ${time.slice(0, 19).replace("T", " ")} UTC`);
    }
    if (this.profile.duration_s > 0) words.push(`for ${length(this.profile)}`);
    if (this.base && this.base.duration_s > 0) words.push(`base of ${length(this.base)}`);
    return words.join(", ");
  }

  toolbar() {
    const { profile } = this;
    const make = standaloneElement;
    const choice = (label, options, value) => {
      const select = make("select", {}, ...options.map(([each, text]) =>
        make("option", { value: each, textContent: FlameText.printable(text) })));
      select.value = value;
      select.addEventListener("change", () => this.update());
      return [make("label", {}, `${label} `, select), select];
    };
    const tick = (label, checked) => {
      const box = make("input", { type: "checkbox", checked });
      box.addEventListener("change", () => this.update());
      return [make("label", {}, box, ` ${label}`), box];
    };
    const types = profile.sample_types.map(({ type, unit }, i) => [String(i), `${type}, ${unit}`]);
    const [typeLabel, type] = choice("Value", types, String(profile.default));
    const [groupLabel, group] = choice("Group by", this.groupings(), "");
    const [invertLabel, invert] = tick("Callers of each function (inverted)", false);
    const [idleLabel, idle] = tick("Hide idle waits", "hideIdle" in this.app.dataset);
    this.controls = { type, group, invert, idle };
    this.search = make("input", { type: "search", placeholder: "Function or file" });
    this.search.addEventListener("input", () => this.find());
    this.matched = make("output", { className: "standalone-quiet" });
    const reset = make("button", { type: "button", textContent: "Reset zoom" });
    reset.addEventListener("click", () => this.graph.reset());
    const hasIdle = [profile, this.base].some((each) => each && each.idle.some((i) => i >= 0));
    idleLabel.hidden = !hasIdle;
    groupLabel.hidden = group.options.length < 2;
    const bar = make("div", { className: "standalone-bar" }, typeLabel,
      make("label", {}, "Search ", this.search), this.matched, groupLabel, invertLabel, idleLabel, reset);
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "What the flame graph shows");
    return bar;
  }

  /* The ways to group the stacks: [value of groupBy, words]. */
  groupings() {
    const groups = [["", "nothing"]];
    const profiles = this.base ? [this.profile, this.base] : [this.profile];
    if (profiles.some((each) => each.operations.some((text) => each.strings[text] !== ""))) {
      groups.push(["operation", "operation"]);
    }
    const keys = new Set();
    for (const each of profiles) {
      for (const [key] of each.labels.flat()) keys.add(each.strings[key]);
    }
    for (const key of [...keys].sort()) groups.push([`label:${key}`, `label ${key}`]);
    return groups;
  }

  update() {
    const { type, group, invert, idle } = this.controls;
    this.graph.setData(this.profile, {
      valueIndex: Number(type.value),
      groupBy: group.value,
      inverted: invert.checked,
      hideIdle: idle.checked,
      base: this.base,
    });
    this.unit = this.profile.sample_types[Number(type.value)].unit;
    this.fillIdleWaits();
    this.rows = this.graph.functions();
    this.find();
    this.fillTable();
  }

  /* How much of the profile is idle waits, hidden or not: in all, and by rule. */
  fillIdleWaits() {
    const make = standaloneElement;
    const { idle, idle_rules: rules, values } = this.profile;
    const index = Number(this.controls.type.value);
    const sums = rules.map(() => 0);
    idle.forEach((rule, i) => {
      if (rule >= 0) sums[rule] += values[i][index];
    });
    const quantity = (value) => FlameText.quantity(value, this.unit);
    const word = this.controls.idle.checked ? "Hidden" : "Shown";
    const whole = quantity(sums.reduce((sum, each) => sum + each, 0));
    const order = [...sums.keys()].sort((a, b) => sums[b] - sums[a]);
    const lines = order.map((i) =>
      make("li", { textContent: `${rules[i].name}, ${quantity(sums[i])}: ${rules[i].reason}` }));
    this.idleWaits.hidden = rules.length === 0;
    this.idleWaits.replaceChildren(
      make("summary", { textContent: `${word}: idle waits of ${whole}` }), make("ul", {}, ...lines));
  }

  find() {
    const found = this.graph.search(this.search.value);
    const value = `${FlameText.quantity(found.value, this.unit)}`;
    this.matched.textContent = this.search.value.trim()
      ? `${FlameText.share(found.share, 1)}, ${value}, functions: ${found.functions}`
      : "";
  }

  /* The columns of the table: [key, heading, value of a row]. */
  columns() {
    const columns = [
      ["name", "Function", (row) => row.name],
      ["flat", "Flat", (row) => row.flat],
      ["total", "With calls", (row) => row.total],
    ];
    if (this.base) {
      columns.push(["change", "Change of flat", (row) => row.flat - row.baseFlat]);
      columns.push(["totalChange", "Change with calls", (row) => row.total - row.base]);
    }
    return columns;
  }

  fillTable() {
    const make = standaloneElement;
    const columns = this.columns();
    const { column, isDown } = this.sorted;
    const [, , valueOf] = columns.find(([key]) => key === column) ?? columns[1];
    const order = (a, b) => (valueOf(a) < valueOf(b) ? -1 : valueOf(a) > valueOf(b) ? 1 : 0);
    const rows = [...this.rows].sort((a, b) => (isDown ? order(b, a) : order(a, b)));
    const headings = columns.map(([key, text]) => {
      const button = make("button", { type: "button", textContent: text });
      button.addEventListener("click", () => this.sortBy(key));
      const heading = make("th", { scope: "col" }, button);
      const direction = isDown ? "descending" : "ascending";
      heading.setAttribute("aria-sort", key === column ? direction : "none");
      return heading;
    });
    const whole = this.graph.info(0);
    const cell = (key, value) => {
      const text = FlameText.quantity(value, this.unit);
      if (key === "flat" || key === "total") {
        return make("td", {}, `${text} `, make("small", {
          textContent: FlameText.share(value, whole.value),
        }));
      }
      return make("td", { textContent: value > 0 ? `+${text}` : text });
    };
    const body = rows.slice(0, this.shown).map((row) => {
      const name = make("button", { type: "button", textContent: row.name });
      name.title = "Search for it";
      name.addEventListener("click", () => {
        this.search.value = row.name;
        this.find();
      });
      const cells = columns.slice(1).map(([key, , of]) => cell(key, of(row)));
      return make("tr", {}, make("td", {}, name), ...cells);
    });
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...headings)),
      make("tbody", {}, ...body));
    const more = make("button", { type: "button", textContent: `All ${rows.length} functions` });
    more.hidden = rows.length <= this.shown;
    more.addEventListener("click", () => {
      this.shown = Infinity;
      this.fillTable();
    });
    this.table.replaceChildren(make("h2", { textContent: "Functions" }), table, more);
  }

  sortBy(column) {
    const { sorted } = this;
    const isDown = sorted.column === column ? !sorted.isDown : column !== "name";
    this.sorted = { column, isDown };
    this.fillTable();
    const index = this.columns().findIndex(([key]) => key === column);
    this.table.querySelectorAll("th button")[index].focus();
  }
}

/* Only in a file that holds its profile: the server's page (app.js) fetches profiles. */
window.standalonePage = (() => {
  const content = (id) => {
    const element = document.getElementById(id);
    return element && JSON.parse(element.textContent);
  };
  return new StandalonePage(document.getElementById("app"), content("profile"), content("base"));
})();
