"use strict";
(() => {
  const items = [...document.querySelectorAll(".item")];
  // The texts of a large page are read when they are needed.
  let texts = null;
  const holds = (i, words) => {
    if (words.length === 0) return true;
    texts = texts || items.map((item) => item.textContent.toLowerCase());
    return words.every((word) => texts[i].includes(word));
  };
  const search = document.getElementById("search");
  const filters = [...document.querySelectorAll("[data-filter]")];
  const found = document.getElementById("found");
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = filters.filter((f) => f.checked).map((f) => f.dataset.filter);
    let shown = 0;
    items.forEach((item, i) => {
      const has = holds(i, words);
      const actions = item.dataset.actions.split(" ");
      const acts = wanted.length === 0 || wanted.some((w) => actions.includes(w));
      item.hidden = !(has && acts);
      if (!item.hidden) shown += 1;
    });
    const all = words.length === 0 && wanted.length === 0;
    found.textContent = all ? "" : `${shown} of ${items.length} shown`;
  };
  let later = 0;
  search.addEventListener("input", () => { clearTimeout(later); later = setTimeout(show, 120); });
  filters.forEach((f) => f.addEventListener("change", show));
  const all = document.getElementById("all");
  // The diffs of a small change are open from the start.
  if (items.every((item) => item.open)) all.textContent = "Close all";
  all.addEventListener("click", () => {
    const open = items.some((item) => !item.hidden && !item.open);
    items.forEach((item) => { if (!item.hidden) item.open = open; });
    all.textContent = open ? "Close all" : "Open all";
  });
  const follow = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target && target.matches(".item")) { target.hidden = false; target.open = true; target.scrollIntoView(); }
  };
  document.querySelector(".tools").hidden = items.length === 0;
  // A search can be linked: report.html?q=orders
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) { search.value = asked; show(); }
  addEventListener("hashchange", follow);
  follow();
})();
