"use strict";
// A section whose answer the server takes seconds for: asked once at a time, for one process.

class Asked {
  constructor(section, api) {
    this._section = section;
    this._api = api;
    this._state = section.querySelector("[role=status]");
    this._button = section.querySelector("button");
    this._button.addEventListener("click", () => this._ask());
    this._pid = null;
  }

  /** Forget the answer: it is of another process. */
  _begin(pid) {
    this._pid = pid;
    this._found = null;
    this._isRunning = false;
    this._draw("");
  }

  /** Ask, and draw the answer with what `says` makes of it, or with the error. */
  async _askOnce(asking, ask, says) {
    const pid = this._pid;
    this._isRunning = true;
    this._button.disabled = true;
    this._say(asking);
    let text = "";
    try {
      const found = await ask(pid);
      if (pid !== this._pid) return;
      this._found = found;
      text = says(found);
    } catch (error) {
      if (pid !== this._pid) return;
      text = error.message;
      if (!(error instanceof ApiError)) throw error;
    } finally {
      if (pid === this._pid) {
        this._isRunning = false;
        this._button.disabled = false;
        this._draw(text);
      }
    }
  }

  _say(text) {
    this._state.textContent = FlameText.printable(text);
  }
}
