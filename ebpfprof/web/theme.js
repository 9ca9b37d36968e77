"use strict";
// Dark or light: the system's setting until the user chooses; the browser stores the choice.

function storedTheme() {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null;
  }
}

function applyTheme(theme) {
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
}

/** Change from dark to light, or back. */
function toggleTheme() {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
  applyTheme(theme);
}
