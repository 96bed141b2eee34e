"use strict";
const root = document.documentElement;
const figures = {};
const say = text => { const place = document.getElementById("trouble"); place.textContent = text; place.hidden = false; };

async function unpack(element) {
  const bytes = Uint8Array.from(atob(element.textContent.trim()), letter => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// Text and lines take the page's colours, so that a chart is right in light, in dark and on paper.
function coloured(layout, text, line) {
  const result = { ...layout, font: { ...layout.font, color: text } };
  for (const name of Object.keys(layout).filter(key => /^[xy]axis/.test(key))) {
    result[name] = { ...layout[name], gridcolor: line, linecolor: line, tickcolor: line, zerolinecolor: line };
  }
  return result;
}
const themed = layout => {
  const style = getComputedStyle(root);
  return coloured(layout, style.getPropertyValue("--text").trim(), style.getPropertyValue("--line").trim());
};
const options = { displayModeBar: false, responsive: true };

function chosen(figure) {
  const prefix = figure.dataset.choice;
  const select = prefix && document.querySelector(`select[data-chooses="${prefix}"]`);
  return figures[select ? `${figure.id}|${select.value}` : figure.id];
}

function draw(figure, layout = {}) {
  const chart = chosen(figure);
  figure.querySelector("h4").textContent = chart.title;
  figure.querySelector("figcaption").textContent = chart.text;
  const plot = figure.querySelector(".plot");
  plot.style.minHeight = `${chart.layout.height}px`;
  return Plotly.react(plot, chart.data, { ...themed(chart.layout), ...layout }, options);
}

const charts = () => [...document.querySelectorAll("figure.chart")];
const redraw = layout => charts().filter(figure => figure.dataset.drawn).forEach(figure => draw(figure, layout));

async function drawAll() {
  for (const figure of charts()) {
    await draw(figure);
    figure.dataset.drawn = "yes";
    await new Promise(next => setTimeout(next));
  }
  offerDownloads();
  root.dataset.ready = "yes";
}

// One menu for all charts: a group for each, with its two formats.
function offerDownloads() {
  for (const figure of charts()) {
    const group = document.createElement("optgroup");
    group.label = figure.querySelector("h4").textContent;
    for (const format of ["png", "svg"]) group.append(new Option(format.toUpperCase(), `${figure.id}|${format}`));
    document.getElementById("download").append(group);
  }
}

function download(id, format) {
  const figure = document.getElementById(id);
  const chart = chosen(figure);
  const width = 900;
  const height = chart.layout.height + 36;
  const margin = { ...chart.layout.margin, t: chart.layout.margin.t + 36 };
  const title = { text: chart.title, x: 0.01, xanchor: "left", y: 1, yref: "container", yanchor: "top", pad: { t: 10 }, font: { size: 15 } };
  const layout = { ...coloured(chart.layout, "#1b1f27", "#d5d9e0"), paper_bgcolor: "#fff", width, height, margin, title };
  return Plotly.downloadImage({ data: chart.data, layout }, { format, width, height, scale: 2, filename: figure.id });
}

function sort(button) {
  const heading = button.closest("th");
  const table = heading.closest("table");
  const column = [...heading.parentElement.children].indexOf(heading);
  const up = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = row => {
    const cell = row.children[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  const rows = [...table.tBodies[0].rows].sort((a, b) => compare(key(a), key(b)) * (up ? 1 : -1));
  table.tBodies[0].append(...rows);
}

const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const label = () => { document.getElementById("theme").textContent = dark() ? "Light" : "Dark"; };
document.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.id === "theme") { root.dataset.theme = dark() ? "light" : "dark"; label(); redraw(); }
  else if (button.closest("table.sortable")) sort(button);
});
document.addEventListener("change", event => {
  if (event.target.id === "download" && event.target.value) { download(...event.target.value.split("|")); event.target.value = ""; }
  const prefix = event.target.dataset.chooses;
  if (prefix) document.querySelectorAll(`figure[data-choice="${prefix}"]`).forEach(figure => draw(figure));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { label(); redraw(); });
// On paper: light, and no wider than a page.
let before;
addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; redraw({ autosize: false, width: 680 }); });
addEventListener("afterprint", () => { if (before) root.dataset.theme = before; else delete root.dataset.theme; redraw(); });

(async () => {
  label();
  if (typeof DecompressionStream === "undefined") { say("This browser is too old to draw the charts; their texts and tables say the same."); return; }
  for (const element of document.querySelectorAll(".packed-figures")) Object.assign(figures, JSON.parse(await unpack(element)));
  const script = document.createElement("script");
  script.textContent = await unpack(document.getElementById("plotly"));
  document.head.append(script);
  await drawAll();
})().catch(error => say(`The charts could not be drawn (${error.message}); their texts and tables say the same.`));
