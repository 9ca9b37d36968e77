"use strict";
// Requests to the server.

/** The server refused, or does not respond (`code` is 0 then); the message is a sentence. */
class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const CUT_SHORT = "The server's response was incomplete.";
const refusal = ({ status }) => `The server responded with status ${status}.`;

class Api {
  async targets() {
    return this._get("/api/targets", {});
  }

  async timeline(pid, kind) {
    return this._get(`/api/targets/${pid}/timeline`, { kind });
  }

  async goroutines(pid) {
    return this._get(`/api/targets/${pid}/goroutines`, {});
  }

  async explain(pid, seconds) {
    return this._get(`/api/targets/${pid}/explain`, { seconds });
  }

  async references(pid) {
    return this._get(`/api/targets/${pid}/references`, {});
  }

  async series(pid, after) {
    return this._get(`/api/targets/${pid}/series`, { after });
  }

  async profile(pid, kind, time) {
    return this._get(`/api/targets/${pid}/profile`, { kind, ...time });
  }

  async source(pid, file) {
    return this._get(`/api/targets/${pid}/source`, { file });
  }

  pprofUrl(pid, kind, time) {
    return `/api/targets/${pid}/pprof?${new URLSearchParams({ kind, ...time })}`;
  }

  /** A trace as a file; `time` is { seconds } of the next ones, or { last }. */
  async trace(pid, time, format) {
    const query = new URLSearchParams({ ...time, format });
    const response = await this._answer(`/proc/${pid}/debug/pprof/trace?${query}`);
    if (!response.ok) throw new ApiError(response.status, (await response.text()).trim() || refusal(response));
    const name = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition"));
    try {
      const missing = JSON.parse(response.headers.get("X-Ebpfprof-Comments") || "[]");
      return { name: name ? name[1] : "trace", data: await response.blob(), missing };
    } catch {
      throw new ApiError(0, CUT_SHORT);
    }
  }

  async _get(path, parameters) {
    const query = new URLSearchParams(parameters).toString();
    const response = await this._answer(query ? `${path}?${query}` : path);
    let body = null;
    try {
      body = await response.json();
    } catch {
      if (response.ok) throw new ApiError(0, CUT_SHORT);
    }
    if (!response.ok) {
      throw new ApiError(response.status, (body && body.error) || refusal(response));
    }
    return body;
  }

  async _answer(url) {
    try {
      return await fetch(url, { cache: "no-store" });
    } catch {
      throw new ApiError(0, "The server does not respond. Is ebpfprof still running?");
    }
  }
}
