"use strict";
(async () => {
  const { el } = zoo, byId = (id) => document.getElementById(id);
  const grid = byId("grid"), head = byId("head"), rows = byId("rows"), search = byId("q"), sort = byId("sort"), group = byId("group");
  const [vocabulary, data, { clusters }, { operators }] = await Promise.all(["vocabulary", "matrix", "clusters", "operators"].map(zoo.load));
  const { columns } = data, width = columns.length, verdicts = vocabulary.verdicts, { STATUS, any } = zoo.query;
  const { all: models, facet, keys, plain, href: caseHref } = zoo.query.models(data);
  const varying = ["phase", "mode", "dtype", "profile"].filter((name) => new Set(columns.map((column) => column[name])).size > 1 || name === "mode");
  const last = Date.parse(vocabulary.nights.at(-1).created);
  const ages = vocabulary.nights.map((night) => (last - Date.parse(night.created)) / 86400000);
  let called = null;
  const COLUMN = ["phase", "mode", "dtype", "profile"];
  for (const key of COLUMN) keys[key] = (values) => ["column", (column) => values.includes(column[key].toLowerCase())];
  const status = (cell, word) => word === "changed" ? data.changed[cell] === ages.length - 1 : STATUS[word].includes(verdicts[data.verdict[cell]].group);
  Object.assign(keys, {
    verdict: (values) => ["cell", (cell) => values.includes(verdicts[data.verdict[cell]].verdict.toLowerCase())],
    cluster: (values) => ["cell", (cell) => values.includes(String(data.cluster[cell]))],
    calls: (values) => {
      if (!called) {
        zoo.load("calls").then((given) => { called = given.operators; filter(); }).catch(zoo.fail(rows));
        return ["model", () => false];
      }
      const found = new Set(called.filter((one) => any(values, one.name)).flatMap((one) => one.models));
      return ["model", ({ at }) => found.has(at)];
    },
    op: (values) => {
      const cells = new Set(operators.filter((one) => any(values, one.name)).flatMap((one) => Object.values(one.cells).flat()));
      return ["cell", (cell) => cells.has(cell)];
    },
    status: (values) => values.every((one) => one === "changed" || Object.hasOwn(STATUS, one)) && ["cell", (cell) => values.some((one) => status(cell, one))],
    since: ([value]) => /^\d+d$/.test(value) && ["cell", (cell) => data.changed[cell] >= 0 && ages[data.changed[cell]] < parseInt(value, 10)],
  });

  let shown = [], visible = [], fits = new Uint8Array(data.verdict.length), active = [0, -1], height = 44;
  const ORDER = {
    name: () => 0,
    failures: (model) => -visible.filter((column) => fails(model.at * width + column)).length,
    error: (model) => -Math.max(...visible.map((column) => { const ratio = data.ratio[model.at * width + column]; return typeof ratio === "number" ? ratio : ratio ? Infinity : -1; })),
    changed: (model) => -Math.max(...visible.map((column) => data.changed[model.at * width + column])),
  };
  const fails = (cell) => data.verdict[cell] >= 0 && verdicts[data.verdict[cell]].group !== "pass";

  function filter() {
    const query = zoo.query.parse(search.value, ["model", "column", "cell"], keys, plain);
    visible = columns.flatMap((column, at) => (query.column.every((test) => test(column)) ? [at] : []));
    const found = [];
    for (const model of models) {
      if (!query.model.every((test) => test(model))) continue;
      let any = false;
      for (const column of visible) {
        const cell = model.at * width + column;
        fits[cell] = data.verdict[cell] >= 0 && query.cell.every((test) => test(cell)) ? 1 : 0;
        any ||= fits[cell] === 1;
      }
      if (any) found.push(model);
    }
    const key = ORDER[sort.value] || ORDER.name, places = new Map(found.map((model) => [model, key(model)]));
    if (sort.value !== "name") found.sort((a, b) => places.get(a) - places.get(b) || a.at - b.at);
    shown = found;
    if (group.value) {
      const by = new Map();
      for (const model of found) {
        const name = facet(group.value, model.at) || "unknown";
        if (!by.has(name)) by.set(name, []);
        by.get(name).push(model);
      }
      shown = [...by].sort(([a], [b]) => (a < b ? -1 : 1)).flatMap(([name, members]) => [{ title: name, members }, ...members]);
    }
    byId("shown").textContent = found.length === models.length ? `${models.length} models` : `${found.length} of ${models.length} models`;
    const named = /(?:^|\s)cluster:(\d+)/.exec(search.value), one = named && clusters[Number(named[1])];
    byId("hint").textContent = query.wrong.length ? `Not understood: ${query.wrong.join(" ")}. Press ? for what can be typed.` : !found.length ? "Nothing matches." : one ? `Blocker ${named[1]}: ${one.verdict} ${one.what}` : "";
    active = [Math.min(active[0], Math.max(0, shown.length - 1)), Math.min(active[1], visible.length - 1)];
    grid.setAttribute("aria-rowcount", shown.length + 1);
    grid.setAttribute("aria-colcount", visible.length + 1);
    grid.style.setProperty("--columns", visible.length);
    grid.classList.toggle("tight", visible.length > 10);
    head.replaceChildren(el("div", { role: "row", class: "line", "aria-rowindex": "1" }, el("div", { role: "columnheader", class: "name" }, "architecture"),
      visible.map((at) => el("div", { role: "columnheader", title: COLUMN.map((name) => columns[at][name]).join(" · ") }, varying.map((name) => el("span", {}, columns[at][name]))))));
    draw();
  }

  const href = (line, column) => column < 0 ? `architecture.html#a=${line.file}` : caseHref(line, columns[column]);
  function cellOf(model, column, at) {
    const cell = model.at * width + column, is = data.verdict[cell];
    if (is < 0) return el("div", { role: "gridcell", class: "none", id: at, "aria-label": "not planned" }, "–");
    const verdict = verdicts[is], ratio = zoo.percent(data.ratio[cell]);
    return el("div", { role: "gridcell", id: at, class: fits[cell] ? "" : "dim" }, el("a", { class: `cell ${verdict.group}`, href: href(model, column), tabindex: "-1", title: `${verdict.word} ${ratio}` }, el("b", { "aria-hidden": "true" }, verdict.symbol), el("span", { class: "sr" }, verdict.word), el("small", {}, ratio)));
  }
  function draw() {
    height = parseFloat(getComputedStyle(grid).getPropertyValue("--row")) || 44;
    rows.style.height = `${shown.length * height}px`;
    const first = Math.max(0, Math.floor(grid.scrollTop / height) - 4), end = Math.min(shown.length, first + Math.ceil(grid.clientHeight / height) + 8);
    rows.replaceChildren(...shown.slice(first, end).map((line, n) => {
      const at = first + n;
      const made = line.members
        ? el("div", { role: "row", class: "line title", "aria-rowindex": at + 2 }, el("div", { role: "rowheader", id: `r${at}c-1` }, line.title, " ", el("small", {}, `${line.members.filter((model) => !visible.some((column) => fails(model.at * width + column))).length} of ${line.members.length} pass`)))
        : el("div", { role: "row", class: "line", "aria-rowindex": at + 2 },
          el("div", { role: "rowheader", class: "name", id: `r${at}c-1` }, el("a", { href: href(line, -1), tabindex: "-1" }, el("b", {}, line.arch), el("span", {}, `${line.class} ${line.model}`))),
          visible.map((column, place) => cellOf(line, column, `r${at}c${place}`)));
      made.style.top = `${at * height}px`;
      return made;
    }));
    mark();
  }
  function mark() {
    for (const old of rows.querySelectorAll(".active")) old.classList.remove("active");
    const now = byId(`r${active[0]}c${active[1]}`) || byId(`r${active[0]}c-1`);
    if (now) { now.classList.add("active"); grid.setAttribute("aria-activedescendant", now.id); } else grid.removeAttribute("aria-activedescendant");
  }
  function move(down, right) {
    active = [Math.max(0, Math.min(shown.length - 1, active[0] + down)), Math.max(-1, Math.min(visible.length - 1, active[1] + right))];
    const top = active[0] * height, room = grid.clientHeight - head.offsetHeight;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + height > grid.scrollTop + room) grid.scrollTop = top + height - room;
    draw();
    byId(`r${active[0]}c${active[1]}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /* All that a reader can choose is in the address, so that a view can be sent to somebody. */
  function read() {
    const asked = zoo.address();
    search.value = asked.get("q") || "";
    sort.value = asked.get("sort") in ORDER ? asked.get("sort") : "name";
    group.value = asked.has("group") && ["family", "task", "library", ""].includes(asked.get("group")) ? asked.get("group") : "family";
    filter();
  }
  function changed() {
    const to = new URLSearchParams();
    if (search.value) to.set("q", search.value);
    if (sort.value !== "name") to.set("sort", sort.value);
    if (group.value !== "family") to.set("group", group.value);
    history.replaceState(null, "", `#${to}`);
    grid.scrollTop = 0;
    active = [0, -1];
    filter();
  }
  search.addEventListener("input", changed);
  sort.addEventListener("change", changed);
  group.addEventListener("change", changed);
  byId("filter").addEventListener("submit", (event) => { event.preventDefault(); grid.focus(); });
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  addEventListener("hashchange", read);
  addEventListener("resize", draw);
  let drawing = false;
  grid.addEventListener("scroll", () => {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; draw(); });
  });
  grid.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(grid.clientHeight / height) - 2);
    const to = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [page, 0], PageUp: [-page, 0], Home: [-shown.length, 0], End: [shown.length, 0] }[event.key];
    if (to) { event.preventDefault(); move(...to); }
    else if (event.key === "Enter") {
      const link = byId(grid.getAttribute("aria-activedescendant"))?.querySelector("a");
      if (link) link.click();
    }
  });
  byId("legend").replaceChildren(...vocabulary.verdicts.filter((_, at) => data.verdict.includes(at)).map((verdict) => zoo.pill(verdict)));
  read();
})().catch(zoo.fail(document.getElementById("rows")));
