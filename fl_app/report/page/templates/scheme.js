"use strict";
// Before the first paint: the scheme that was chosen here before, else the system's.
const scheme = {
  system: matchMedia("(prefers-color-scheme: dark)"),
  listeners: [],
  get dark() {
    return (document.documentElement.dataset.scheme || (this.system.matches ? "dark" : "light")) === "dark";
  },
  kept() {
    try { return localStorage.getItem("fl-app-scheme"); } catch { return null; }
  },
  choose(name) {
    document.documentElement.dataset.scheme = name;
    try { localStorage.setItem("fl-app-scheme", name); } catch { /* the choice lasts for this page */ }
    this.told();
  },
  told() {
    const button = document.getElementById("scheme");
    button.textContent = this.dark ? "Light scheme" : "Dark scheme";
    this.listeners.forEach((listener) => listener());
  },
};
if (scheme.kept()) document.documentElement.dataset.scheme = scheme.kept();
document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("scheme").addEventListener("click", () => scheme.choose(scheme.dark ? "light" : "dark"));
  scheme.system.addEventListener("change", () => scheme.told());
  scheme.told();
});
