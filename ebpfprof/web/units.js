"use strict";
// Numbers for people on the page of `serve`; most of it is FlameText of flametree.js.

/** A duration in nanoseconds: 1.23 s, 45.6 ms. */
function formatDuration(ns) {
  return FlameText.quantity(ns, "nanoseconds");
}

/** A value of a sample type with that unit; counts with commas between thousands. */
function formatValue(value, unit) {
  if (unit !== "count") return FlameText.quantity(value, unit);
  return Math.round(value).toLocaleString("en-US");
}

function formatShare(part, whole) {
  return whole ? FlameText.share(part, whole) : "";
}

/** How many events a row has; "-" where there is time and no event: none has ended yet. */
function formatCount({ count, value, cum = value }) {
  return count || !cum ? formatValue(count, "count") : "-";
}

/** What an event of a row took; "-" where there is none. */
function formatMean({ count, value, cum = value }, unit) {
  return count ? formatValue(cum / count, unit) : "-";
}

/** A number of goroutines or CPUs, on average. */
function formatNumber(value) {
  return value >= 99.95 ? formatValue(value, "count") : FlameText.threeDigits(value);
}

/** A standard error as a part of its value. */
function formatError(error) {
  if (error <= 0) return "";
  return error < 0.1 ? `±${(100 * error).toPrecision(2)} %` : `±${(100 * error).toFixed(0)} %`;
}

/** A time of day of Unix time in seconds. */
function formatTime(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}
