"use strict";
// Search, filter, sort and enlarge. The page can be read without any of it. Names come from file names: they are only
// ever read from attributes and written as text.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const tile = "i[role]";

  // -- enlarge: every picture is a button; a group of them is one stop of the tab key, arrows move inside it
  const viewer = document.getElementById("viewer");
  let current = null;

  for (const tiles of all(".tiles")) {
    all(tile, tiles).forEach((picture, place) => {
      picture.setAttribute("role", "button");
      picture.tabIndex = place ? -1 : 0;
    });
  }
  const button = "i[role=button]";

  const show = (picture) => {
    current = picture;
    const image = document.getElementById("viewer-image");
    image.className = picture.className;
    image.style.backgroundPosition = picture.style.backgroundPosition;
    document.getElementById("viewer-path").textContent = picture.title;
    const heading = picture.closest("article")?.querySelector("h3");
    const category = picture.dataset.category ?? heading?.textContent.trim() ?? "";
    document.getElementById("viewer-note").textContent = `${category} · ${picture.dataset.note}`;
    if (!viewer.open) viewer.showModal();
  };
  const turn = (step) => {
    const pictures = all(button, current.closest("article, section")).filter((picture) => picture.offsetParent);
    show(pictures[(pictures.indexOf(current) + step + pictures.length) % pictures.length]);
  };
  const go = (picture) => {
    for (const other of all(button, picture.closest(".tiles"))) other.tabIndex = other === picture ? 0 : -1;
    picture.focus();
  };
  const steps = { ArrowLeft: -1, ArrowRight: 1 };

  document.addEventListener("click", (event) => {
    const picture = event.target.closest(button);
    if (picture) show(picture);
    else if (event.target === viewer) viewer.close(); // beside the dialog
  });
  document.addEventListener("keydown", (event) => {
    if (viewer.open) {
      if (event.key in steps) turn(steps[event.key]);
      return;
    }
    const picture = event.target.closest && event.target.closest(button);
    if (!picture) return;
    if (event.key === "Enter" || event.key === " ") show(picture);
    else if (event.key in steps) {
      const pictures = all(button, picture.closest(".tiles"));
      const next = pictures[pictures.indexOf(picture) + steps[event.key]];
      if (!next) return;
      go(next);
    } else return;
    event.preventDefault();
  });
  document.getElementById("viewer-back").addEventListener("click", () => turn(-1));
  document.getElementById("viewer-next").addEventListener("click", () => turn(1));
  document.getElementById("viewer-close").addEventListener("click", () => viewer.close());
  viewer.addEventListener("close", () => {
    if (current) go(current);
  });

  // -- search, filter, sort
  const tools = document.getElementById("tools");
  if (!tools) return;
  tools.hidden = false;
  const find = document.getElementById("find");
  const sort = document.getElementById("sort");
  const found = document.getElementById("found");
  const sections = all(".categories").map((section) => ({
    section,
    kind: section.dataset.kind,
    entries: all("article", section).map((article) => ({
      article,
      name: article.querySelector("h3").textContent.trim(),
      size: Number(article.dataset.size),
      confidence: Number(article.dataset.confidence),
      marks: article.dataset.marks.split(" "),
      number: `#${article.dataset.number}`,
      place: Number(article.dataset.place),
    })),
  }));
  const total = sections.reduce((sum, { entries }) => sum + entries.length, 0);
  const orders = {
    size: (a, b) => b.size - a.size,
    small: (a, b) => a.size - b.size,
    sure: (a, b) => b.confidence - a.confidence,
    unsure: (a, b) => a.confidence - b.confidence,
    name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
    similar: (a, b) => a.place - b.place,
  };

  const apply = () => {
    const wanted = find.value.trim().toLowerCase();
    const shows = tools.querySelector("[name=show]:checked").value;
    let visible = 0, hits = 0;
    for (const { section, kind, entries } of sections) {
      let here = 0;
      for (const { article, name, marks, number } of entries) {
        let fits = shows === "all" || shows === kind || marks.includes(shows);
        let matched = 0;
        for (const picture of wanted || article.dataset.searched ? all(button, article) : []) {
          const hit = fits && wanted !== "" && picture.title.toLowerCase().includes(wanted);
          picture.classList.toggle("hit", hit);
          if (hit) matched += 1;
        }
        article.dataset.searched = wanted;
        if (wanted) fits = fits && (matched > 0 || wanted === number || name.toLowerCase().includes(wanted));
        const others = article.querySelector(".others");
        if (others && matched && others.querySelector(".hit")) others.open = true;
        article.hidden = !fits;
        here += fits;
        hits += matched;
      }
      section.hidden = !here;
      visible += here;
    }
    const images = wanted ? `, ${hits.toLocaleString("en")} ${hits === 1 ? "image" : "images"}` : "";
    found.textContent = visible === total && !wanted ? "" : `${visible} of ${total} categories${images}`;
  };
  const reorder = () => {
    for (const { section, entries } of sections) {
      section.append(...[...entries].sort(orders[sort.value]).map(({ article }) => article));
    }
  };

  find.addEventListener("input", apply);
  sort.addEventListener("change", reorder);
  tools.addEventListener("change", (event) => event.target.name === "show" && apply());
  for (const link of all("[data-show]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      tools.querySelector(`[value=${link.dataset.show}]`).checked = true;
      apply();
      tools.scrollIntoView();
    });
  }
  // a link to a hidden category shows everything again
  window.addEventListener("hashchange", () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !target.closest("[hidden]")) return;
    find.value = "";
    tools.querySelector("[value=all]").checked = true;
    apply();
    target.scrollIntoView();
  });
})();
