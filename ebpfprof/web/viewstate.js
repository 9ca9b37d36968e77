"use strict";
/* What the view of a profile shows, as words in the fragment of an address: a link holds the view. */

class ViewState {
  static VIEWS = [
    ["flame", "Flame graph"], ["wakers", "Who woke whom"], ["sandwich", "Callers and callees"],
    ["graph", "Call graph"], ["table", "Table"], ["source", "Source"],
  ];
  static LAYOUTS = [["icicle", "icicle"], ["flame", "flame"]];

  /* The view to show: without a choice, or with one that the profile does not have, the two sides of
     pairs, else a flame graph. */
  static viewOf(state, hasPairs) {
    const isMissing = !state.view || (state.view === "wakers" && !hasPairs);
    return isMissing ? (hasPairs ? "wakers" : "flame") : state.view;
  }

  /* `words` are URLSearchParams; unknown and malformed ones are ignored. `hidesIdle` is whether idle
     waits are hidden unless they say something else. */
  static read(words, hidesIdle) {
    const one = (name, known, otherwise) =>
      known.some(([value]) => value === words.get(name)) ? words.get(name) : otherwise;
    const idle = words.get("idle");
    return {
      view: one("view", ViewState.VIEWS, ""),
      type: words.get("type") || "",
      group: words.get("group") || "",
      handler: words.get("handler") || "",
      layout: one("layout", ViewState.LAYOUTS, "icicle"),
      inverted: words.get("inverted") === "1",
      hideIdle: idle === "1" ? false : idle === "0" ? true : hidesIdle,
      search: words.get("search") || "",
      zoom: words.getAll("zoom"),
      waker: words.getAll("waker"),
      waited: words.getAll("waited"),
      root: words.get("root") || "",
      file: words.get("file") || "",
      sort: words.get("sort") || "flat",
      part: ViewState.part(words.get("part")),
    };
  }

  /* The part of a heatmap: FROM,TO,LEAST,MOST (see HeatCells); null for all. */
  static part(word) {
    const numbers = (word ?? "").split(",").map((text) => (text.trim() ? Number(text) : NaN));
    if (numbers.length !== 4 || !numbers.every(Number.isFinite)) return null;
    const [from, to, least, most] = numbers;
    return from < to && least < most ? { from, to, least, most } : null;
  }

  /* Puts the state into `words`, but for what is shown anyway. */
  static write(state, words, hidesIdle) {
    const put = (name, value, usual) => { if (value !== usual) words.set(name, value); };
    put("view", state.view, "");
    put("type", state.type, "");
    put("group", state.group, "");
    put("handler", state.handler, "");
    put("layout", state.layout, "icicle");
    put("inverted", state.inverted ? "1" : "", "");
    put("idle", state.hideIdle ? "0" : "1", hidesIdle ? "0" : "1");
    put("search", state.search, "");
    put("root", state.root, "");
    put("file", state.file, "");
    put("sort", state.sort, "flat");
    const { from, to, least, most } = state.part ?? {};
    put("part", state.part ? [from, to, least, most].join() : "", "");
    for (const word of ["zoom", "waker", "waited"]) {
      for (const name of state[word]) words.append(word, name);
    }
  }
}
