"use strict";
(() => {
  // How long ago a time was.
  const age = (seconds) => {
    const minutes = Math.floor(seconds / 60);
    if (minutes < 1) return "just now";
    if (minutes < 60) return `${minutes} min ago`;
    if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ago`;
    return `${Math.floor(minutes / 24 / 60)} d ago`;
  };
  for (const time of document.querySelectorAll("time")) {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    if (seconds >= 0) time.append(` (${age(seconds)})`);
  }
  const found = document.getElementById("found");
  const asked = new URLSearchParams(location.search);
  const keep = (form) => {
    const set = [...new FormData(form)].filter(([, value]) => value !== "");
    if (asked.has("refresh")) set.push(["refresh", asked.get("refresh")]);
    const query = new URLSearchParams(set).toString();
    history.replaceState(null, "", query ? `?${query}` : location.pathname);
  };

  // The page loads itself again. The header of a server does it too; here the links keep the rest of the address.
  const refresh = document.getElementById("refresh");
  if (refresh) {
    const seconds = Number(asked.get("refresh"));
    const refreshes = Number.isInteger(seconds) && seconds >= 10 && seconds <= 3600;
    if (refreshes && refresh.hidden) setTimeout(() => location.reload(), seconds * 1000);
    refresh.hidden = false;
    for (const link of refresh.querySelectorAll("a")) {
      const wanted = new URLSearchParams(link.search).get("refresh");
      if (refreshes ? wanted === String(seconds) : wanted === null) link.setAttribute("aria-current", "true");
      link.addEventListener("click", (event) => {
        event.preventDefault();
        const query = new URLSearchParams(location.search);
        query.delete("refresh");
        if (wanted) query.set("refresh", wanted);
        location.search = query.toString();
      });
    }
  }
  const wire = (form, show) => {
    let later = 0;
    form.hidden = false;
    for (const field of form.elements) {
      if (field.name && asked.has(field.name)) field.value = asked.get(field.name);
    }
    form.addEventListener("submit", (event) => { event.preventDefault(); keep(form); show(); });
    form.addEventListener("input", () => {
      clearTimeout(later);
      later = setTimeout(() => { keep(form); show(); }, 150);
    });
    show();
  };
  const wordsOf = (field) => field.value.toLowerCase().split(/\s+/).filter(Boolean);

  // The overview of a static site: the filter of the address.
  const filter = document.getElementById("filter");
  if (filter && filter.hidden) {
    const rows = [...document.querySelectorAll("li.row[data-conditions]")];
    wire(filter, () => {
      const words = wordsOf(filter.elements.q);
      const condition = filter.elements.condition.value;
      let shown = 0;
      for (const row of rows) {
        const has = condition === "" || row.dataset.conditions.split(" ").includes(condition);
        row.hidden = !(has && words.every((word) => row.dataset.text.includes(word)));
        if (!row.hidden) shown += 1;
      }
      const all = words.length === 0 && condition === "";
      for (const section of document.querySelectorAll("main > section")) {
        section.hidden = section.querySelector("li.row:not([hidden])") === null;
        const details = section.querySelector("details");
        if (details && !all) details.open = true;
      }
      found.textContent = all ? "" : `${shown} of ${rows.length} stacks`;
    });
  }

  // The search of a static site: names that a script file holds.
  const search = document.getElementById("search-form");
  const names = globalThis.konvergeNames;
  if (search && search.hidden && names) {
    const most = 500;
    const hits = document.getElementById("hits");
    const item = (kind, name, places) => {
      const row = document.createElement("li");
      row.className = "row";
      const add = (tag, className, text) => {
        const part = document.createElement(tag);
        part.className = className;
        part.textContent = text;
        row.append(part, " ");
      };
      add("span", "where", kind);
      add("span", "name", name);
      for (const place of places.slice(0, 50)) {
        const link = document.createElement("a");
        link.href = names.paths[place];
        link.textContent = names.stacks[place];
        row.append(link, " ");
      }
      if (places.length > 50) row.append(`and ${places.length - 50} more`);
      return row;
    };
    wire(search, () => {
      const words = wordsOf(search.elements.q);
      let count = 0;
      const rows = [];
      const look = (kind, all) => {
        for (const [name, places] of Object.entries(all)) {
          const text = `${kind} ${name}`.toLowerCase();
          if (!words.every((word) => text.includes(word))) continue;
          count += 1;
          if (rows.length < most) rows.push(item(kind, name, places));
        }
      };
      if (words.length > 0) {
        for (const [kind, all] of Object.entries(names.kinds)) look(kind, all);
        look("image", names.images);
      }
      hits.replaceChildren(...rows);
      const more = count > most ? `, the first ${most} shown` : "";
      found.textContent = words.length === 0 ? "" : `${count} results${more}`;
    });
  }
})();
