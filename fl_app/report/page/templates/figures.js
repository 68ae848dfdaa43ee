"use strict";
const page = JSON.parse(document.getElementById("data").textContent);
const light = new RegExp(Object.keys(page.dark).join("|"), "gi");

/** A copy of a figure in the colours of the scheme. */
function coloured(figure) {
  const text = JSON.stringify(figure);
  return JSON.parse(scheme.dark ? text.replace(light, (found) => page.dark[found.toLowerCase()]) : text);
}

/** The rows of numbers of a matrix that is packed with one byte per cell. */
function unpacked({ bytes, side, low, high, steps }) {
  const grades = atob(bytes);
  const value = (i) => {
    const grade = grades.charCodeAt(i);
    return grade > steps ? null : low + ((high - low) * grade) / steps;
  };
  return Array.from({ length: side }, (_, row) => Array.from({ length: side }, (_, column) => value(row * side + column)));
}

function draw(id, figure) {
  const { data, layout } = coloured(figure);
  for (const trace of data) {
    if (trace.packed) trace.z = unpacked(trace.packed);
    delete trace.packed;
  }
  return Plotly.react(id, data, layout, { responsive: true, displayModeBar: false });
}

const slider = document.getElementById("round");
const rest = () => new Promise((done) => setTimeout(done));

async function drawFrame() {
  const frame = page.frames[slider.value];
  document.getElementById("frame").textContent = frame.caption;
  slider.setAttribute("aria-valuetext", frame.caption);
  await draw("matrix", frame.matrix);
  await draw("graph", frame.graph);
}

async function drawAll() {
  document.querySelectorAll("[data-colour]").forEach((swatch) => {
    swatch.style.background = coloured(swatch.dataset.colour);
  });
  for (const [id, figure] of Object.entries(page.figures)) {
    await draw(id, figure);
    await rest(); // the page must react to the reader while the figures are drawn
    if (id === "accuracy" && page.frames.length) await drawFrame();
  }
  if (page.frames.length && !page.figures.accuracy) await drawFrame();
}

async function loadPlotly() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

function prepareSlider() {
  if (!page.frames.length) return;
  document.getElementById("frames").hidden = false;
  slider.max = page.frames.length - 1;
  slider.value = slider.max;
  slider.disabled = page.frames.length === 1;
  slider.addEventListener("input", drawFrame);
}

function prepareCopy() {
  const button = document.getElementById("copy");
  if (!button) return;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById("command").textContent);
    button.textContent = "Copied";
  });
}

prepareSlider();
prepareCopy();
// Programs take their picture of a page when it is loaded, which it is not while a frame is written.
// In a sandbox, as of viewers of notebooks, no frame can be.
function holdLoad() {
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.hidden = true;
  frame.contentDocument?.open();
  return () => {
    frame.contentDocument?.close();
    frame.remove();
  };
}

const painted = document.hidden ? (then) => then() : requestAnimationFrame;
const release = holdLoad();
painted(() => setTimeout(async () => {
  try {
    await loadPlotly();
    await drawAll();
    scheme.listeners.push(drawAll);
    document.body.dataset.drawn = "yes";
  } finally {
    release();
  }
}));
