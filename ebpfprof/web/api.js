"use strict";
// Requests to the server.

/** The server refused, or does not answer (`code` is 0 then); the message is a sentence. */
class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

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

  async profile(pid, kind, time) {
    return this._get(`/api/targets/${pid}/profile`, { kind, ...time });
  }

  async source(pid, file) {
    return this._get(`/api/targets/${pid}/source`, { file });
  }

  pprofUrl(pid, kind, time) {
    return `/api/targets/${pid}/pprof?${new URLSearchParams({ kind, ...time })}`;
  }

  traceUrl(pid) {
    return `/proc/${pid}/debug/pprof/trace?seconds=5`;
  }

  async _get(path, parameters) {
    const query = new URLSearchParams(parameters).toString();
    let response;
    try {
      response = await fetch(query ? `${path}?${query}` : path, { cache: "no-store" });
    } catch {
      throw new ApiError(0, "The server does not answer. Does ebpfprof still run?");
    }
    let body = null;
    try {
      body = await response.json();
    } catch {
      if (response.ok) throw new ApiError(0, "The server's answer was cut short.");
    }
    if (!response.ok) {
      throw new ApiError(response.status, (body && body.error) || `The server answered with status ${response.status}.`);
    }
    return body;
  }
}
