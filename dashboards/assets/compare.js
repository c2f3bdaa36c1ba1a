"use strict";
(async () => {
  const { el } = zoo, byId = (id) => document.getElementById(id), content = byId("content"), search = byId("q"), sort = byId("sort");
  const COLUMN = ["phase", "mode", "dtype", "profile"], FIXED = ["mode", "dtype", "profile"], PAGE = 100;
  const [vocabulary, offered, matrix] = await Promise.all(["vocabulary", "runs", "matrix"].map(zoo.load));
  const { verdicts } = vocabulary, { runs, became: words } = offered, { STATUS } = zoo.query;
  const { all: models, keys, plain, href } = zoo.query.models(matrix);
  const LOOKS = { regressed: ["▼", "backend"], fixed: ["▲", "pass"], "changed failure": ["≠", "backend"], "still failing": ["✕", "backend"], "still passing": ["✓", "pass"],
    "no longer measured": ["△", "environment"], "measured again": ["△", "environment"], "not measured": ["△", "environment"] };
  const looks = (word) => LOOKS[word] || ["·", "missing"];
  const meaning = Object.fromEntries(words.map(({ word, meaning }) => [word, meaning])), order = words.map(({ word }) => word);
  const slug = (word) => word.replaceAll(" ", "-");
  const GONE = { verdict: "NOT_PLANNED", group: "missing", symbol: "–", word: "not planned", meaning: "in no plan of that run" };
  const MEASURED = ["pass", "backend", "model"], sides = {};
  let pairs = [], asked = 0, shown = PAGE;

  /* What becomes of a case between two runs, as results/history.py tells it; null where neither has it. */
  function became(a, b) {
    if (a.verdict < 0 && b.verdict < 0) return null;
    if (a.verdict < 0) return "new";
    if (b.verdict < 0) return "removed";
    const [before, after] = [a, b].map(({ verdict }) => verdicts[verdict].group);
    if (before === "missing" || after === "missing") return "without a result";
    const was = MEASURED.includes(before), is = MEASURED.includes(after);
    if (!was || !is) return was ? "no longer measured" : is ? "measured again" : "not measured";
    if (before === "pass") return after === "pass" ? "still passing" : "regressed";
    if (after === "pass") return "fixed";
    return a.verdict === b.verdict && a.failure === b.failure ? "still failing" : "changed failure";
  }

  const select = (name, label, options) => el("label", {}, el("span", {}, label), el("select", { id: name }, options.map(([value, text]) => el("option", { value }, text))));
  function offer() {
    const differing = (run) => ["torch_tpu", "torch", "transformers"].filter((name) => run.facts[name]).map((name) => `${name} ${run.facts[name].slice(0, 16)}`).join(", ");
    const names = runs.map((run, at) => [run.run, `${run.when} · ${run.target}${run.emulated ? " (emulated)" : ""}${run.tier ? ` · ${run.tier}` : ""}${at ? "" : " · this site’s run"}${differing(run) ? ` · ${differing(run)}` : ""}`]);
    for (const [side, box] of [["a", byId("sides").children[0]], ["b", byId("sides").children[2]]]) {
      box.append(select(side, "run", names), ...FIXED.map((name) => select(`${side}-${name}`, name, [["", "each"]])));
      box.addEventListener("change", () => open().then(write).catch(zoo.fail(content)));
    }
  }
  const columnOf = (side, column) => sides[side].columns.findIndex((one) => COLUMN.every((name) => one[name] === column[name]));
  /* Each column of either run, as A and as B have it where they fix a mode, dtype or profile. */
  function columnPairs() {
    const found = new Map();
    for (const base of [...sides.a.columns, ...sides.b.columns]) {
      const [a, b] = ["a", "b"].map((side) => ({ ...base, ...Object.fromEntries(FIXED.map((name) => [name, byId(`${side}-${name}`).value]).filter(([, value]) => value)) }));
      const pair = { a, b, at: { a: columnOf("a", a), b: columnOf("b", b) } };
      if (pair.at.a >= 0 || pair.at.b >= 0) found.set(COLUMN.map((name) => `${a[name]}/${b[name]}`).join(" "), pair);
    }
    return [...found.values()];
  }
  const cell = (side, model, at) => {
    const { verdict, failure, ratio, latency, columns } = sides[side], place = model.at * columns.length + at;
    return at < 0 ? { verdict: -1 } : { verdict: verdict[place], failure: failure[place], ratio: ratio[place], latency: latency[place] };
  };
  const named = ({ verdict }) => verdict < 0 ? GONE : verdicts[verdict];

  function collect() {
    pairs = [];
    const columns = columnPairs();
    for (const model of models) for (const column of columns) {
      const a = cell("a", model, column.at.a), b = cell("b", model, column.at.b), word = became(a, b);
      if (word) pairs.push({ model, column, a, b, became: word, error: grew("ratio", a, b), latency: grew("latency", a, b) });
    }
    arrange();
  }
  const known = new Set(verdicts.map(({ verdict }) => verdict.toLowerCase()));
  const fits = (one, word) => word === "none" ? one.verdict < 0 : one.verdict >= 0 && (STATUS[word]?.includes(named(one).group) ?? named(one).verdict.toLowerCase() === word);
  const understood = (word) => word === "none" || Object.hasOwn(STATUS, word) || known.has(word);
  const of = (side) => (values) => values.every((one) => understood(one.replace(/^!/, ""))) && ["pair", ({ [side]: one }) =>
    values.some((value) => value.startsWith("!") ? one.verdict >= 0 && !fits(one, value.slice(1)) : fits(one, value))];
  Object.assign(keys, {
    a: of("a"), b: of("b"),
    verdict: (values) => values.every(understood) && ["pair", ({ a, b }) => values.some((value) => fits(a, value) || fits(b, value))],
    became: (values) => values.every((value) => order.some((word) => slug(word) === value)) && ["pair", (pair) => values.includes(slug(pair.became))],
  });
  for (const key of COLUMN) keys[key] = (values) => ["column", ({ a, b }) => values.includes(a[key].toLowerCase()) || values.includes(b[key].toLowerCase())];
  const bare = (word) => word === "differs" ? ["pair", ({ a, b }) => a.verdict !== b.verdict] : word === "same" ? ["pair", ({ a, b }) => a.verdict === b.verdict] : plain(word);

  /* How many times A's value B's is, of what passes in both; else -1. */
  const grew = (name, a, b) => typeof a[name] === "number" && typeof b[name] === "number" && a[name] > 0 && named(a).group === "pass" && named(b).group === "pass" ? b[name] / a[name] : -1;
  const ORDER = { became: (pair) => order.indexOf(pair.became), name: (pair) => pair.model.at, error: (pair) => -pair.error, latency: (pair) => -pair.latency };
  /* In the order that is chosen, once: what a query leaves of it is in order too. */
  function arrange() {
    const keys = new Map(pairs.map((pair) => [pair, ORDER[sort.value](pair)]));
    pairs.sort((one, other) => keys.get(one) - keys.get(other) || one.model.at - other.model.at);
  }

  function filter() {
    const query = zoo.query.parse(search.value, ["model", "column", "pair"], keys, bare);
    const wantedModels = new Set(models.filter((model) => query.model.every((test) => test(model))));
    const inView = pairs.filter((pair) => wantedModels.has(pair.model) && query.column.every((test) => test(pair.column)));
    const found = inView.filter((pair) => query.pair.every((test) => test(pair)));
    const counts = new Map(order.map((word) => [word, 0]));
    for (const pair of inView) counts.set(pair.became, counts.get(pair.became) + 1);
    byId("counts").replaceChildren(...[...counts].filter(([, count]) => count).map(([word, count]) =>
      el("a", { class: `chip ${looks(word)[1]}`, href: `#${address(`${modelPart()} became:${slug(word)}`.trim())}`, title: meaning[word] }, el("b", { "aria-hidden": "true" }, looks(word)[0]), ` ${word} `, el("span", {}, String(count)))));
    byId("shown").textContent = `${found.length} of ${zoo.plural(pairs.length, "case")}`;
    byId("hint").textContent = query.wrong.length ? `Not understood: ${query.wrong.join(" ")}. Press ? for what can be typed.` : found.length ? "" : "Nothing matches.";
    const factors = ["latency", "error"].map((title) => [title, inView.map((pair) => pair[title]).filter((factor) => factor > 0)]).filter(([, all]) => all.length);
    byId("medians").textContent = factors.map(([title, all]) => `${title} of B over that of A: median ${zoo.median(all).toPrecision(3)}× of ${zoo.plural(all.length, "case")} that pass${all.length === 1 ? "es" : ""} in both`).join("; ");
    draw(found);
  }
  /* What the query says of models and columns, which counts are of. */
  const modelPart = () => search.value.trim().split(/\s+/).filter((word) => !/^-?(?:(?:a|b|verdict|became):.*|differs|same)$/i.test(word)).join(" ");
  const told = (one) => [zoo.pill(named(one)), " ", el("small", {}, [zoo.percent(one.ratio), typeof one.latency === "number" ? zoo.time(one.latency) : ""].filter(Boolean).join(", "))];
  function draw(found) {
    const line = ({ model, column, a, b, became: word }) => {
      const own = runs.findIndex((run) => run.run === byId("b").value) === 0 ? column.b : byId("a").value === runs[0].run ? column.a : null;
      const parts = COLUMN.map((name) => column.a[name] === column.b[name] ? column.a[name] : `${column.a[name]} → ${column.b[name]}`).join(" · ");
      const planned = own && matrix.columns.findIndex((one) => COLUMN.every((name) => one[name] === own[name]));
      const linked = own && planned >= 0 && matrix.verdict[model.at * matrix.columns.length + planned] >= 0;
      return [el("span", {}, el("a", { href: `architecture.html#a=${model.file}` }, el("b", {}, model.arch)), ` ${model.class} ${model.model}`),
        linked ? el("a", { href: href(model, own) }, parts) : parts, el("span", {}, told(a)), el("span", {}, told(b)),
        el("span", { class: `count ${looks(word)[1]}`, title: meaning[word] }, el("b", { "aria-hidden": "true" }, looks(word)[0]), ` ${word}`)];
    };
    if (!found.length) return content.replaceChildren();
    const more = el("button", { type: "button" }, `Show ${Math.min(PAGE, found.length - shown)} more`);
    more.addEventListener("click", () => { shown += PAGE; draw(found); });
    content.replaceChildren(zoo.table(["model", "case", "A", "B", "became"], found.slice(0, shown).map(line), "two-sided"), ...(found.length > shown ? [more] : []));
  }
  function between() {
    const [a, b] = ["a", "b"].map((side) => runs.find((run) => run.run === byId(side).value));
    const names = [...new Set([...Object.keys(a.facts), ...Object.keys(b.facts)])].filter((name) => a.facts[name] !== b.facts[name]);
    const notes = [...(a.target !== b.target || a.emulated !== b.emulated ? [`The targets differ: latencies are of other devices${a.emulated !== b.emulated ? ", one of them emulated" : ""}.`] : []),
      ...["a", "b"].filter((side) => sides[side].elsewhere).map((side) => `${zoo.plural(sides[side].elsewhere, "case")} of ${side.toUpperCase()} ${sides[side].elsewhere === 1 ? "has" : "have"} no counterpart in this site’s run and ${sides[side].elsewhere === 1 ? "is" : "are"} not shown; zoo diff counts all.`)];
    byId("between").replaceChildren(...notes.map((text) => el("p", { class: "notice" }, text)),
      names.length ? el("details", { class: "change" }, el("summary", {}, `${zoo.plural(names.length, "fact")} of the two runs differ${names.length === 1 ? "s" : ""}`), zoo.table(["fact", "A", "B"], names.map((name) => [name, a.facts[name] ?? "unknown", b.facts[name] ?? "unknown"]))) : el("p", { class: "quiet" }, a === b ? "A and B are the same run." : "Versions, machine and settings that were recorded are the same."));
  }

  /* All that a reader can choose is in the address. */
  const chosen = () => ["a", "b"].flatMap((side) => [[side, byId(side).value], ...FIXED.map((name) => [`${side}-${name}`, byId(`${side}-${name}`).value]).filter(([, value]) => value)]);
  function address(query) {
    const to = new URLSearchParams([...chosen(), ["q", query]]);
    if (sort.value !== "became") to.set("sort", sort.value);
    return to;
  }
  const write = () => history.replaceState(null, "", `#${address(search.value)}`);
  async function open() {
    const turn = ++asked, files = await Promise.all(["a", "b"].map((side) => zoo.load(`runs/${runs.findIndex((run) => run.run === byId(side).value)}`)));
    if (turn !== asked) return;
    [sides.a, sides.b] = files;
    for (const side of ["a", "b"]) for (const name of FIXED) {
      const box = byId(`${side}-${name}`), value = box.value || wanted.get(box.id) || "", values = [...new Set(sides[side].columns.map((column) => column[name]))];
      box.replaceChildren(...[["", "each"], ...values.map((one) => [one, one])].map(([one, text]) => el("option", { value: one }, text)));
      box.value = values.includes(value) ? value : "";
    }
    wanted = new URLSearchParams();
    shown = PAGE;
    collect();
    between();
    filter();
  }
  let wanted = new URLSearchParams();
  function read() {
    wanted = zoo.address();
    const ids = runs.map((run) => run.run), before = runs.findIndex((run, at) => at && run.target === runs[0].target && run.emulated === runs[0].emulated);
    byId("a").value = ids.includes(wanted.get("a")) ? wanted.get("a") : ids[Math.max(0, before)];
    byId("b").value = ids.includes(wanted.get("b")) ? wanted.get("b") : ids[0];
    for (const side of ["a", "b"]) for (const name of FIXED) byId(`${side}-${name}`).value = "";
    search.value = wanted.has("q") ? wanted.get("q") : "differs";
    sort.value = Object.hasOwn(ORDER, wanted.get("sort") || "") ? wanted.get("sort") : "became";
    return open();
  }
  const changed = () => { shown = PAGE; write(); filter(); };
  offer();
  byId("words").textContent = order.map(slug).join(", ");
  search.addEventListener("input", changed);
  sort.addEventListener("change", () => { arrange(); changed(); });
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  byId("swap").addEventListener("click", () => {
    const now = new Map(chosen()), to = new URLSearchParams(address(search.value));
    for (const name of ["", ...FIXED.map((one) => `-${one}`)]) for (const [side, other] of [["a", "b"], ["b", "a"]]) {
      if (now.has(other + name)) to.set(side + name, now.get(other + name)); else to.delete(side + name);
    }
    location.hash = `#${to}`;
  });
  addEventListener("hashchange", () => read().catch(zoo.fail(content)));
  await read();
})().catch(zoo.fail(document.getElementById("content")));
