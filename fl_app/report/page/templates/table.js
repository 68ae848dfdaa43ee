"use strict";
{
  const { columns, rows, colours } = page.clients;
  const PAGE = 100;
  const table = document.getElementById("clients");
  const head = table.querySelector("thead tr");
  const search = document.getElementById("search");
  const community = document.getElementById("community");
  const place = (key) => columns.findIndex((column) => column.key === key);
  let sorted = { column: place("client"), down: false };
  let start = 0;

  // As in records/rounding.py.
  const EXACT = [0, 0.5, 1];
  function shareDecimals(value) {
    let decimals = 1;
    const looksExact = () => EXACT.includes(Number((100 * value).toFixed(decimals)) / 100);
    if (EXACT.some((each) => Math.abs(value - each) < 1e-9)) return decimals;
    while (decimals < 4 && looksExact()) decimals += 1;
    return decimals;
  }

  function upwards(value) {
    if (!(value > 0)) return value.toFixed(2);
    const decimals = Math.max(2, 2 - Math.floor(Math.log10(value)));
    const scaled = Number((value * 10 ** decimals).toPrecision(12));
    return (Math.ceil(scaled) / 10 ** decimals).toFixed(decimals);
  }

  const shown = {
    share: (value) => `${(100 * value).toFixed(shareDecimals(value))}%`,
    points: (value) => `${value > 0 ? "+" : value < 0 ? "\u2212" : ""}${Math.abs(value).toFixed(1)}`,
    epsilon: upwards,
    value: (value) => String(Number(value.toPrecision(3))),
    number: String,
    text: String,
  };
  const cellText = (value, kind) => (value === null ? "\u2013" : shown[kind](value));

  /** Order of two values; missing values are last in both directions. */
  function order(a, b) {
    if (a === null || b === null) return (a === null) - (b === null);
    const numbers = [Number(a), Number(b)];
    const by = numbers.some(Number.isNaN) ? String(a).localeCompare(String(b)) : numbers[0] - numbers[1];
    return sorted.down ? -by : by;
  }

  function matching() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const why = place("why");
    return rows.filter((row) => {
      if (community.value && row[place("community")] !== community.value) return false;
      const text = why < 0 || row[why] === null ? "" : row[why].toLowerCase();
      return words.every((word) => String(row[0]) === word || text.includes(word));
    });
  }

  function cell(value, column) {
    const made = document.createElement(column.key === "client" ? "th" : "td");
    if (column.key === "client") made.scope = "row";
    if (column.kind !== "text") made.className = "number";
    made.textContent = cellText(value, column.kind);
    if (column.key === "community" && value in colours) {
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.dataset.colour = colours[value];
      swatch.style.background = coloured(colours[value]);
      made.prepend(swatch);
    }
    return made;
  }

  function fill() {
    const found = matching().sort((a, b) => order(a[sorted.column], b[sorted.column]) || a[0] - b[0]);
    start = Math.min(start, Math.max(0, PAGE * (Math.ceil(found.length / PAGE) - 1)));
    const visible = found.slice(start, start + PAGE);
    table.querySelector("tbody").replaceChildren(...visible.map((row) => {
      const line = document.createElement("tr");
      line.append(...row.map((value, i) => cell(value, columns[i])));
      return line;
    }));
    document.getElementById("count").textContent = `${found.length} of ${rows.length} clients`;
    document.getElementById("pages").hidden = found.length <= PAGE;
    document.getElementById("where").textContent = `${start + 1}\u2013${start + visible.length}`;
    document.getElementById("previous").disabled = start === 0;
    document.getElementById("next").disabled = start + PAGE >= found.length;
    [...head.children].forEach((header, i) => {
      header.setAttribute("aria-sort", i !== sorted.column ? "none" : sorted.down ? "descending" : "ascending");
    });
  }

  head.append(...columns.map((column, i) => {
    const header = document.createElement("th");
    const button = document.createElement("button");
    header.scope = "col";
    if (column.kind !== "text") header.className = "number";
    button.type = "button";
    button.textContent = column.label;
    button.addEventListener("click", () => {
      sorted = { column: i, down: sorted.column === i && !sorted.down };
      start = 0;
      fill();
    });
    header.append(button);
    return header;
  }));
  const names = place("community") < 0 ? [] : [...new Set(rows.map((row) => row[place("community")]))];
  names.sort((a, b) => Number(a) - Number(b) || String(a).localeCompare(b));
  community.append(...names.map((name) => new Option(name, name)));
  community.closest("label").hidden = names.length < 2;
  const refill = () => { start = 0; fill(); };
  search.addEventListener("input", refill);
  community.addEventListener("change", refill);
  document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("previous").addEventListener("click", () => { start -= PAGE; fill(); });
  document.getElementById("next").addEventListener("click", () => { start += PAGE; fill(); });
  fill();
}
