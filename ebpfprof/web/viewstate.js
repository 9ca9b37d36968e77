"use strict";
/* What the view of a profile shows, as words in the fragment of an address: a link holds the view. */

class ViewState {
  static VIEWS = [
    ["flame", "Flame graph"], ["sandwich", "Callers and callees"], ["graph", "Call graph"],
    ["table", "Table"], ["source", "Source"],
  ];
  static LAYOUTS = [["icicle", "icicle"], ["flame", "flame"]];

  /* `words` are URLSearchParams; unknown and malformed ones are ignored. `hidesIdle` is whether idle
     waits are hidden unless they say something else. */
  static read(words, hidesIdle) {
    const one = (name, known, otherwise) =>
      known.some(([value]) => value === words.get(name)) ? words.get(name) : otherwise;
    const idle = words.get("idle");
    return {
      view: one("view", ViewState.VIEWS, "flame"),
      type: words.get("type") || "",
      group: words.get("group") || "",
      layout: one("layout", ViewState.LAYOUTS, "icicle"),
      inverted: words.get("inverted") === "1",
      hideIdle: idle === "1" ? false : idle === "0" ? true : hidesIdle,
      search: words.get("search") || "",
      zoom: words.getAll("zoom"),
      root: words.get("root") || "",
      file: words.get("file") || "",
      sort: words.get("sort") || "flat",
    };
  }

  /* Puts the state into `words`, but for what is shown anyway. */
  static write(state, words, hidesIdle) {
    const put = (name, value, usual) => { if (value !== usual) words.set(name, value); };
    put("view", state.view, "flame");
    put("type", state.type, "");
    put("group", state.group, "");
    put("layout", state.layout, "icicle");
    put("inverted", state.inverted ? "1" : "", "");
    put("idle", state.hideIdle ? "0" : "1", hidesIdle ? "0" : "1");
    put("search", state.search, "");
    put("root", state.root, "");
    put("file", state.file, "");
    put("sort", state.sort, "flat");
    for (const name of state.zoom) words.append("zoom", name);
  }
}
