"use strict";
// Set before the first paint: the scheme that the reader chose last, else the system's.
const scheme = {
  system: matchMedia("(prefers-color-scheme: dark)"),
  listeners: [],
  get dark() {
    return (document.documentElement.dataset.scheme || (this.system.matches ? "dark" : "light")) === "dark";
  },
  stored() {
    try { return localStorage.getItem("fl-app-scheme"); } catch { return null; }
  },
  choose(name) {
    document.documentElement.dataset.scheme = name;
    try { localStorage.setItem("fl-app-scheme", name); } catch { /* the choice lasts for this page */ }
    this.update();
  },
  update() {
    const button = document.getElementById("scheme");
    button.textContent = this.dark ? "Light scheme" : "Dark scheme";
    this.listeners.forEach((listener) => listener());
  },
};
if (scheme.stored()) document.documentElement.dataset.scheme = scheme.stored();
document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("scheme").addEventListener("click", () => scheme.choose(scheme.dark ? "light" : "dark"));
  scheme.system.addEventListener("change", () => scheme.update());
  scheme.update();
});
