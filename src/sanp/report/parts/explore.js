// Dash gives its slider and its file input no names; a screen reader needs them.
const NAMES = {"#budget [role=slider]": "mean cost, of the dense network's", "#upload input": "your own image"};
new MutationObserver(() => {
  for (const [place, name] of Object.entries(NAMES)) {
    for (const element of document.querySelectorAll(place)) element.setAttribute("aria-label", name);
  }
}).observe(document.documentElement, {childList: true, subtree: true});

// Dash leaves out a file that is too large, and says nothing.
function weigh(files) {
  const place = document.getElementById("too-large");
  const file = files && files[0];
  if (!place || !file) return;
  const most = Number(place.dataset.largest);
  place.textContent = file.size <= most ? "" :
    `${file.name} has ${Math.ceil(file.size / 1e6)} MB, and at most ${Math.floor(most / 1e6)} MB are taken: give a smaller picture.`;
}
document.addEventListener("change", event => weigh(event.target.files), true);
document.addEventListener("drop", event => weigh(event.dataTransfer && event.dataTransfer.files), true);
