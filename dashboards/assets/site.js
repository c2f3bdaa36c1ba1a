"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const form = byId("filter"), search = byId("q"), verdict = byId("v"), mode = byId("m"), phase = byId("p");
  const dialog = byId("case");
  const { stages, labels, verdicts, cases: details } = JSON.parse(byId("details").textContent);
  const numberOf = new Map(details.map((item, number) => [item.id, number]));
  const entries = [...document.querySelectorAll(".entry")].map((row) => ({
    row,
    text: row.dataset.q,
    cells: [...row.querySelectorAll(".cell")].map((cell) => ({
      cell,
      mode: cell.closest("td").dataset.m,
      phase: cell.closest("td").dataset.p,
      text: `${cell.textContent} ${cell.title}`.toLowerCase(),
      ...cell.dataset,
    })),
  }));

  /* Everything that a reader can choose is in the address, so that a view can be sent to somebody. */
  const state = () => {
    const hash = new URLSearchParams(location.hash.slice(1));
    return Object.fromEntries(["q", "v", "m", "p", "case"].map((name) => [name, hash.get(name) || ""]));
  };
  const address = (change) => {
    const hash = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...state(), ...change })) if (value) hash.set(name, value);
    return `#${hash}`;
  };
  const go = (change) => { location.hash = address(change); };
  document.querySelectorAll("a.cell").forEach((cell) => { cell.href = `#${new URLSearchParams({ case: details[cell.dataset.n].id })}`; });
  const replace = (change) => { history.replaceState(null, "", address(change)); show(); };

  const matches = (cell, wanted) =>
    !wanted || cell.v === wanted || verdicts[cell.v].group === wanted || (wanted === "not-pass" && cell.v !== "PASS");

  function filter({ q, v, m, p }) {
    if (search.value !== q) search.value = q;
    verdict.value = v;
    mode.value = m;
    if (phase) phase.value = p;
    document.querySelectorAll("[data-m]").forEach((item) => {
      item.hidden = (Boolean(m) && item.dataset.m !== m) || (Boolean(p) && Boolean(item.dataset.p) && item.dataset.p !== p);
    });
    document.querySelectorAll(".family th").forEach((family) => {
      family.colSpan = family.closest("table").querySelectorAll("thead th:not([hidden])").length;
    });
    document.querySelectorAll("[data-filter]").forEach((chip) => chip.classList.toggle("chosen", chip.dataset.filter === v));
    const words = q.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const entry of entries) {
      let any = false;
      for (const cell of entry.cells) {
        const fits = matches(cell, v) && (!m || cell.mode === m) && (!p || cell.phase === p) &&
          words.every((word) => entry.text.includes(word) || cell.text.includes(word));
        cell.cell.classList.toggle("dim", !fits);
        any ||= fits;
      }
      entry.row.hidden = !any;
      shown += any;
    }
    document.querySelectorAll(".matrix tbody").forEach((body) => {
      body.hidden = !body.querySelector(".entry:not([hidden])");
    });
    byId("shown").textContent = shown === entries.length ? `${shown} models` : `${shown} of ${entries.length} models`;
    byId("nothing").hidden = shown > 0;
  }

  function el(tag, className, ...children) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }
  function bar(start, width) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 1000 10");
    svg.setAttribute("preserveAspectRatio", "none");
    const rect = document.createElementNS(svg.namespaceURI, "rect");
    for (const [name, value] of Object.entries({ x: start, width: Math.max(width, 2), height: 10 })) rect.setAttribute(name, value);
    svg.append(rect);
    return svg;
  }
  const number = (value) =>
    value === undefined || value === null ? "unknown" : typeof value === "number" ? String(Number(value.toPrecision(9))) : value;
  const short = (value) => (typeof value === "number" ? value.toExponential(2) : number(value));
  const seconds = (value) => `${value < 10 ? value.toFixed(2) : value.toFixed(0)} s`;
  const shape = (value) => `[${(value || []).join(", ")}]`;
  const section = (title, ...content) => [el("h3", "", title), ...content];
  const pairs = (items) => el("dl", "pairs", ...items.map(([name, value]) => el("div", String(value).length > 36 ? "long" : "", el("dt", "", name), el("dd", "", value))));

  function copyButton(text, source) {
    const button = el("button", "", "Copy");
    button.type = "button";
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(source);
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Selected";
      }
    });
    return button;
  }

  function worst(leaf, share) {
    const head = el("thead", "", el("tr", "", ...["", "error", "allowed", "CPU’s own"].map((text) => el("th", "", text))));
    const line = (name, ...values) => el("tr", "", el("th", "", name), ...values.map((value) => el("td", "", short(value))));
    const index = leaf.index ? shape(leaf.index) : "unknown";
    return section(
      share ? `Worst output: ${share} of what is allowed` : "Worst output",
      pairs([
        ["tensor", leaf.path], ["verdict", leaf.verdict || "unknown"], ["shape", shape(leaf.shape)], ["dtype", leaf.dtype || "unknown"],
        [`on the target at ${index}`, number(leaf.actual)], ["on the CPU there", number(leaf.cpu)],
        ["float64 truth there", number(leaf.expected)], ["typical magnitude", short(leaf.scale)],
        ...(leaf.note ? [["note", leaf.note]] : []),
      ]),
      el("table", "compare", head, el("tbody", "",
        line("root mean square", leaf.error, leaf.allowed, leaf.cpu_error),
        line("worst element", leaf.max_error, leaf.max_allowed, leaf.max_cpu_error))),
    );
  }

  function timeline(item) {
    const spent = stages.map((name, at) => [name, item.seconds[at]]).filter(([, value]) => typeof value === "number");
    const whole = spent.reduce((sum, [, value]) => sum + value, 0) || 1;
    let start = 0;
    const rows = spent.flatMap(([name, value]) => {
      const ended = verdicts[item.verdict].group !== "pass" && name === item.stage && name !== "compare";
      const line = [
        el("span", ended ? "ended" : "", ended ? `${name}: ended here` : name),
        bar((1000 * start) / whole, (1000 * value) / whole),
        el("span", "num", seconds(value)),
      ];
      start += value;
      return line;
    });
    return section("Stages", el("div", "gantt", ...rows));
  }

  function render(item) {
    const { group, symbol, word, meaning } = verdicts[item.verdict];
    const facts = labels.map((label, at) => [label, item.facts[at]]).filter(([, value]) => typeof value === "string");
    const rerun = item.rerun || `zoo rerun ${item.id}`;
    const timed = item.seconds && typeof item.seconds[stages.indexOf(item.stage)] === "number";
    const button = (text, label, action) => {
      const made = el("button", "", text);
      made.type = "button";
      made.setAttribute("aria-label", label);
      made.addEventListener("click", action);
      return made;
    };
    const title = el("h2", "", item.facts[0] || "", el("span", `pill ${group}`, el("b", "", symbol), ` ${word}`));
    title.id = "case-title";
    title.tabIndex = -1;
    title.autofocus = true;
    const command = el("pre", "", rerun);
    dialog.replaceChildren(
      el("div", "case-top",
        el("div", "", title, el("p", "", el("code", "", item.id))),
        button("←", "Previous case", () => step(-1)), button("→", "Next case", () => step(1)),
        button("✕", "Close", () => dialog.close())),
      el("div", "case-body",
        el("p", "lead", item.message || meaning),
        item.message ? el("p", "", el("small", "", `${item.verdict}: ${meaning}`)) : null,
        ...section("Run it again", el("div", "command", command, copyButton(rerun, command))),
        ...(item.worst ? worst(item.worst, item.share) : []),
        ...(item.detail ? section("Error", el("pre", "", item.detail)) : []),
        ...(item.log ? section("Last output of the job", el("pre", "", item.log)) : []),
        ...(item.seconds ? timeline(item) : []),
        ...(timed || !item.stage ? [] : section("Ended in stage", el("p", "", item.stage))),
        ...section("Facts", pairs(facts))),
    );
  }

  const visible = () => [...document.querySelectorAll(".entry:not([hidden]) td:not([hidden]) a.cell:not(.dim)")];
  function step(by) {
    const cells = visible();
    const at = cells.findIndex((cell) => Number(cell.dataset.n) === numberOf.get(state().case));
    const next = cells[(at + by + cells.length) % cells.length];
    if (next) replace({ case: details[next.dataset.n].id });
  }

  function show() {
    const now = state();
    filter(now);
    const number = numberOf.get(now.case);
    if (number === undefined) {
      if (dialog.open) dialog.close();
      return;
    }
    render(details[number]);
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }

  search.addEventListener("input", () => replace({ q: search.value }));
  verdict.addEventListener("change", () => replace({ v: verdict.value }));
  mode.addEventListener("change", () => replace({ m: mode.value }));
  if (phase) phase.addEventListener("change", () => replace({ p: phase.value }));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => { event.preventDefault(); replace({ q: "", v: "", m: "", p: "" }); });
  byId("show-all").addEventListener("click", () => replace({ q: "", v: "", m: "", p: "" }));
  addEventListener("hashchange", show);
  dialog.addEventListener("close", () => {
    const cell = document.querySelector(`a.cell[data-n="${numberOf.get(state().case)}"]`);
    if (state().case) replace({ case: "" });
    if (cell) cell.focus({ preventScroll: true });
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.addEventListener("click", (event) => {
    const cell = event.target.closest("a.cell"), chip = event.target.closest("[data-filter]");
    if (event.ctrlKey || event.metaKey || event.shiftKey || !(cell || chip)) return;
    event.preventDefault();
    if (cell) go({ case: details[cell.dataset.n].id });
    else replace({ v: state().v === chip.dataset.filter ? "" : chip.dataset.filter });
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step_by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (dialog.open) {
      if (step_by) step(step_by);
      return;
    }
    const typing = event.target.closest("input, select");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      search.select();
    } else if (event.key === "Escape" && typing === search) {
      replace({ q: "" });
    } else if (event.target.matches("a.cell") && event.key.startsWith("Arrow")) {
      const row = event.target.closest("tr"), place = [...row.children].indexOf(event.target.closest("td"));
      const rows = [...document.querySelectorAll(".entry:not([hidden])")];
      const down = { ArrowUp: -1, ArrowDown: 1 }[event.key] || 0;
      const next = rows[rows.indexOf(row) + down]?.children[place + (step_by || 0)]?.querySelector("a.cell");
      if (next) {
        event.preventDefault();
        next.focus();
      }
    }
  });

  form.hidden = false;
  show();
})();
