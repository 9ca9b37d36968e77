"use strict";
// Numbers for people, as ebpfprof/console/text.py writes them.

const UNITS = [[3600e9, "h"], [60e9, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "us"]];

function threeDigits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** A duration of so many nanoseconds: 1.23 s, 45.6 ms. */
function formatDuration(ns) {
  for (const [size, unit] of UNITS) {
    if (Math.abs(ns) >= size * 0.9995) return `${threeDigits(ns / size)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

function formatBytes(bytes) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit < names.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return unit ? `${threeDigits(bytes)} ${names[unit]}` : `${bytes} B`;
}

/** A value of a sample type with that unit. */
function formatValue(value, unit) {
  if (unit === "nanoseconds") return formatDuration(value);
  if (unit === "bytes") return formatBytes(value);
  return Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f");
}

function formatShare(part, whole) {
  return whole ? `${(100 * part / whole).toFixed(1)} %` : "";
}

/** A time of day of Unix time in seconds. */
function formatTime(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}
