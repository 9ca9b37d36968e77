"use strict";
/* The page of one profile: the page's element "profile" holds it, its element "base" the one to
   compare with, if any, "sources" the text of files, by their paths, and "summary" {sentence, locks}
   (see LockTable). */

class StandalonePage {
  constructor(app, profile, base, sources, summary) {
    Object.assign(this, { profile, base, summary, hidesIdle: "hideIdle" in app.dataset });
    this.sources = {
      get: async (path) => {
        if (Object.hasOwn(sources, path)) return sources[path];
        throw new Error("This page does not contain the file's text; `ebpfprof report --source DIR` adds it.");
      },
    };
    app.before(this.header());
    this.headline = newElement("p", { id: "headline" });
    app.append(this.headline, ...this.comments());
    this.view = new ProfileView(app, {
      onchange: (changes) => {
        this.remember(changes);
        this.draw();
      },
      onzoom: (changes) => this.remember(changes),
    });
    addEventListener("hashchange", () => this.read());
    this.read();
  }

  read() {
    this.state = ViewState.read(new URLSearchParams(location.hash.slice(1)), this.hidesIdle);
    this.draw();
  }

  remember(changes) {
    this.state = { ...this.state, ...changes };
    const words = new URLSearchParams();
    ViewState.write(this.state, words, this.hidesIdle);
    history.replaceState(null, "", `#${words}`);
  }

  draw() {
    const { profile, base, state, sources, summary } = this;
    this.view.show(profile, base, state, { sources, locks: summary.locks });
    const shown = this.view.profile;
    const isEmpty = base || !shown.stacks.length;
    const sentence = this.view.hasPart || state.handler ? "" : summary.sentence;
    this.headline.textContent = isEmpty ? "" : sentence || headline(shown, this.view.valueIndex, state.hideIdle);
  }

  get graph() {
    return this.view.graph;
  }

  header() {
    const { profile, base } = this;
    const title = base ? `${profile.title}, compared` : profile.title;
    const theme = newElement("button", { type: "button", textContent: "Dark or light" });
    theme.addEventListener("click", toggleTheme);
    return newElement("header", {}, newElement("h1", { textContent: FlameText.printable(title) }),
      newElement("p", { className: "about quiet", textContent: this.about() }), theme);
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

  comments() {
    const texts = [this.profile, this.base].flatMap((each) => (each ? each.comments : []));
    if (!texts.length) return [];
    const items = texts.map((text) => newElement("li", { textContent: FlameText.printable(text) }));
    return [newElement("details", { id: "notes" },
      newElement("summary", { textContent: "How it was recorded" }), newElement("ul", {}, ...items))];
  }
}

applyTheme(storedTheme());
/* Only in a file that holds its profile: the server's page (app.js) fetches profiles. */
window.standalonePage = (() => {
  const content = (id) => {
    const element = document.getElementById(id);
    return element && JSON.parse(element.textContent);
  };
  return new StandalonePage(document.getElementById("app"), content("profile"), content("base"),
    content("sources") ?? {}, content("summary") ?? { sentence: "", locks: null });
})();
