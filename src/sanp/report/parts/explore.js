// Dash gives its slider and its file input no names; a screen reader needs them.
const NAMES = {"#budget [role=slider]": "mean cost, of the dense network's", "#upload input": "your own image"};
new MutationObserver(() => {
  for (const [place, name] of Object.entries(NAMES)) {
    for (const element of document.querySelectorAll(place)) element.setAttribute("aria-label", name);
  }
}).observe(document.documentElement, {childList: true, subtree: true});
