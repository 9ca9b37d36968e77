"use strict";
/* Text for people; the units are those of ebpfprof/console/text.py. */
const FlameText = {
  UNITS: [[3600e9, "h"], [60e9, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "us"]],
  BYTES: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]],
  NANOSECONDS: { nanoseconds: 1, microseconds: 1e3, milliseconds: 1e6, seconds: 1e9 },

  quantity(value, unit) {
    const factor = this.NANOSECONDS[unit];
    const units = factor ? this.UNITS : unit === "bytes" ? this.BYTES : [];
    const amount = value * (factor || 1);
    for (const [size, name] of units) {
      if (Math.abs(amount) >= size * 0.9995) return `${this.threeDigits(amount / size)} ${name}`;
    }
    const name = factor ? "ns" : unit === "bytes" ? "B" : unit === "count" ? "" : unit;
    return `${amount.toFixed(0)} ${this.printable(name)}`.trimEnd();
  },
  threeDigits(value) {
    const size = Math.abs(value);
    return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
  },
  share(part, whole) {
    return whole > 0 ? `${this.threeDigits((100 * part) / whole)} %` : "0 %";
  },
  /* The name, without the path of its package and cut if it has more letters than that. */
  fitted(name, letters) {
    if (name.length <= letters) return name;
    const short = name.slice(name.split("[", 1)[0].split("(", 1)[0].lastIndexOf("/") + 1);
    return short.length <= letters ? short : `${short.slice(0, letters - 1)}…`;
  },
  /* Where a function is (FlameTree.info): its file and line. */
  place({ file, line }) {
    if (line < 0) return `${file} (several lines)`;
    return line > 0 && file ? `${file}:${line}` : file;
  },
  /* How the value of a node differs from the one in the base. */
  change({ value, base, unit }) {
    const change = value - base;
    const sign = change > 0 ? "+" : "";
    const share = base > 0 ? ` (${sign}${this.threeDigits((100 * change) / base)} %)` : "";
    const was = base > 0 ? `base ${this.quantity(base, unit)}` : "not in base";
    return `${was}, change ${sign}${this.quantity(change, unit)}${share}`;
  },
  /* The stack of a node as lines, as Go's tracebacks: what was called last comes first. */
  stack(frames) {
    const lines = frames.map((frame) => {
      const place = FlameText.place(frame);
      return place ? `${frame.name}\n\t${place}` : frame.name;
    });
    return `${lines.join("\n")}\n`;
  },
  /* Characters that are invisible, or turn the text around them, as escapes: \x1b, \u202e. */
  printable(text) {
    return text.replace(/(?! )[\p{C}\p{Z}]/gu, (character) => {
      const short = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[character];
      if (short) return short;
      const digits = character.codePointAt(0).toString(16);
      if (digits.length <= 2) return `\\x${digits.padStart(2, "0")}`;
      return digits.length <= 4 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
    });
  },
};
