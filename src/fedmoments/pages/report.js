"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const root = document.documentElement;
  root.classList.add("js");

  // Light or dark: as the system says, until the reader chooses.
  const theme = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const remembered = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("fedmoments-theme");
      localStorage.setItem("fedmoments-theme", value);
    } catch { /* storage is closed to files in some browsers: the choice then lasts as long as the page */ }
    return null;
  };
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { theme.textContent = dark() ? "Light" : "Dark"; theme.title = `Show the page ${dark() ? "light" : "dark"}`; };
  const stored = remembered();
  if (stored === "light" || stored === "dark") root.dataset.theme = stored;
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; remembered(root.dataset.theme); name(); });
  system.addEventListener("change", name);
  name();

  // Titles of drawings become labels, titles of marks become tooltips.
  for (const title of all("svg title")) {
    const parent = title.parentElement;
    parent.setAttribute("aria-label", title.textContent);
    if (parent.tagName.toLowerCase() !== "svg") parent.dataset.tip = title.textContent;
    title.remove();
  }
  const tip = document.getElementById("tip");
  const show = (words, x, y) => {
    tip.textContent = words;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(x - box.width / 2, 8), root.clientWidth - box.width - 8);
    const top = y - box.height - 14 < 8 ? y + 18 : y - box.height - 14;
    tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  };
  const hide = () => { tip.hidden = true; };
  let focused = null;
  const tell = () => {
    const box = focused?.getBoundingClientRect();
    if (box) show(focused.dataset.tip, box.left + box.width / 2, box.top);
    else hide();
  };
  const light = (head, on) => {
    for (const each of all(".point[data-head], tr[data-head]")) each.classList.toggle("lit", on && each.dataset.head === head);
  };

  // Cells of the map of holders tell their place in it.
  const data = document.getElementById("holders-data");
  const held = data ? JSON.parse(data.textContent) : null;
  const cell = (event) => {
    const box = event.target.getBoundingClientRect();
    const place = (share, n) => Math.min(Math.max(Math.floor(share * n), 0), n - 1);
    const row = place((event.clientY - box.top) / box.height, held.rows.length);
    const column = place((event.clientX - box.left) / box.width, held.columns.length);
    const n = held.cells[row][column];
    return `${held.columns[column]} · ${held.rows[row]}: ${n.toLocaleString("en")} ${n === 1 ? "sample" : "samples"}`;
  };
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest?.("[data-tip]");
    if (held && event.target.classList?.contains("heat-hit")) show(cell(event), event.clientX, event.clientY);
    else if (mark) show(mark.dataset.tip, event.clientX, event.clientY);
    else hide();
  });
  document.addEventListener("pointerover", (event) => {
    const head = event.target.closest?.(".point[data-head], tr[data-head]")?.dataset.head;
    light(head, head !== undefined);
  });
  document.addEventListener("focusin", (event) => {
    focused = event.target.closest?.("[data-tip]:focus-visible") ?? null;
    tell();
  });
  document.addEventListener("focusout", () => { focused = null; hide(); });
  document.addEventListener("scroll", tell, { passive: true }); // focus may scroll: the tip stays with its mark
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // Tables: a button in every column's head sorts; what is unknown stays last.
  const value = (row, column, numeric) => {
    const found = row.cells[column];
    const words = found.dataset.value ?? found.textContent.trim();
    if (!numeric) return words === "" ? null : words;
    return words === "" ? null : Number(words);
  };
  for (const head of all(".sortable thead th")) {
    head.querySelector("button").addEventListener("click", () => {
      const table = head.closest("table");
      const column = head.cellIndex;
      const numeric = head.hasAttribute("data-numeric");
      const first = numeric ? "descending" : "ascending";
      const second = numeric ? "ascending" : "descending";
      const way = head.getAttribute("aria-sort") === first ? second : first;
      for (const other of all("thead th", table)) other.setAttribute("aria-sort", other === head ? way : "none");
      const body = table.tBodies[0];
      const sign = way === "ascending" ? 1 : -1;
      const rows = Array.from(body.rows).map((row) => [value(row, column, numeric), row]);
      rows.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
      });
      body.append(...rows.map(([, row]) => row));
    });
  }

  // Drop-down lists choose a panel, in all sections that have it.
  for (const list of all("[data-chooser]")) {
    list.addEventListener("change", () => {
      for (const other of all("[data-chooser]")) {
        const same = other.dataset.chooser === list.dataset.chooser;
        if (same && Array.from(other.options).some((option) => option.value === list.value)) other.value = list.value;
      }
      const mine = all("[data-panel]").filter((panel) => panel.dataset.panel === list.dataset.chooser);
      const sections = new Set(mine.map((panel) => panel.closest("section")));
      for (const section of sections) {
        const panels = mine.filter((panel) => panel.closest("section") === section);
        if (!panels.some((panel) => panel.dataset.key === list.value)) continue;
        for (const panel of panels) panel.hidden = panel.dataset.key !== list.value;
      }
    });
    list.value = Array.from(list.options).find((option) => option.defaultSelected)?.value ?? list.value;
  }

  // Copy buttons.
  for (const button of all(".copy")) {
    button.addEventListener("click", async () => {
      const code = button.closest(".copied").querySelector("code");
      let done = true;
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        const range = document.createRange();
        range.selectNodeContents(code);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        done = document.execCommand("copy");
      }
      button.textContent = done ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }
})();
