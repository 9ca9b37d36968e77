"use strict";
// Numbers for people on the page of `serve`; most of it is FlameText of flametree.js.

/** A duration in nanoseconds: 1.23 s, 45.6 ms. */
function formatDuration(ns) {
  return FlameText.quantity(ns, "nanoseconds");
}

/** A value of a sample type with that unit; counts with a narrow space between thousands. */
function formatValue(value, unit) {
  if (unit !== "count") return FlameText.quantity(value, unit);
  return Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f");
}

function formatShare(part, whole) {
  return whole ? FlameText.share(part, whole) : "";
}

/** A time of day of Unix time in seconds. */
function formatTime(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}
