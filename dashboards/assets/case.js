"use strict";
(() => {
  const { el, svg, card, pairs, table, command } = zoo, content = document.getElementById("content"), title = document.getElementById("title");
  const number = (value) => value === undefined || value === null ? "unknown" : typeof value === "number" ? String(Number(value.toPrecision(9))) : value;
  const short = (value) => (typeof value === "number" ? value.toExponential(2) : number(value));
  const shape = (value) => value ? `[${value.join(", ")}]` : "unknown";

  const worst = (leaf, share) => card(share ? `Worst output: ${share} of what is allowed` : "Worst output",
    pairs([["tensor", leaf.path], ["verdict", leaf.verdict || "unknown"], ["shape", shape(leaf.shape)], ["dtype", leaf.dtype || "unknown"],
      [`on the target at ${shape(leaf.index)}`, number(leaf.actual)], ["on the CPU there", number(leaf.cpu)],
      ["float64 truth there", number(leaf.expected)], ["typical magnitude", short(leaf.scale)], ...(leaf.note ? [["note", leaf.note]] : [])]),
    table(["measure", "error", "allowed", "CPU’s own"], [["root mean square", short(leaf.error), short(leaf.allowed), short(leaf.cpu_error)],
      ["worst element", short(leaf.max_error), short(leaf.max_allowed), short(leaf.max_cpu_error)]], "measures"));

  const timeline = (item, stages, failed) => {
    const spent = stages.map((name, at) => [name, item.seconds[at]]).filter(([, value]) => typeof value === "number");
    const whole = spent.reduce((sum, [, value]) => sum + value, 0) || 1;
    let start = 0;
    return card("Stages", el("div", { class: "gantt" }, spent.flatMap(([name, value]) => {
      const ended = failed && name === item.stage && name !== "compare";
      const bar = svg("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { x: (1000 * start) / whole, width: Math.max(2, (1000 * value) / whole), height: 10 }));
      start += value;
      return [el("span", { class: ended ? "ended" : "" }, ended ? `${name}: ended here` : name), bar, el("span", { class: "num" }, zoo.time(value))];
    })));
  };
  const expected = (about) => card("Known failure", pairs([["expected verdict", about.verdict], ...(about.stage ? [["in stage", about.stage]] : []), ["reason", about.reason],
    ["link", /^https?:\/\//.test(about.link) ? el("a", { href: about.link, rel: "noreferrer noopener" }, about.link) : about.link || "none"], ["said of", about.glob], ["since", about.added], ["until", about.expires || "no day"], ["file", about.where]]));
  const attempts = (text) => {
    let list;
    try { list = JSON.parse(text); } catch { return card("Attempts", el("pre", { tabindex: "0" }, text)); }
    return card("Attempts", table(["attempt", "verdict", "stage", "message"], (Array.isArray(list) ? list : []).map((one, at) => [String(at + 1), ...["verdict", "stage", "message"].map((name) => String(one?.[name] ?? ""))])));
  };
  const history = (known, vocabulary) => card("History",
    el("ol", { class: "transitions" }, [...known.history].reverse().map(([night, verdict], at, all) =>
      el("li", {}, zoo.pill(vocabulary.verdicts[verdict]), ` ${at === all.length - 1 ? "first seen" : "since"} ${zoo.day(vocabulary.nights[night].created)}`))),
    ...(known.ratios ? [el("h3", {}, "Error over the nights; the line is what is allowed"), zoo.line(known.ratios, `Error over ${zoo.plural(known.ratios.length, "night")}, ${zoo.percent(known.ratio) || "unknown"} tonight`, 1)] : []),
    ...(known.latencies ? [el("h3", {}, "Latency over the nights"), zoo.line(known.latencies, `Latency over ${zoo.plural(known.latencies.length, "night")}, ${zoo.time(known.latency)} tonight`)] : []));

  const OPEN = ["packages", "machine"];
  const environment = (labels, values, groups) => card("Environment", pairs([...labels.map((label, at) => [label, values?.[at]]).filter(([, value]) => typeof value === "string"),
    ...groups.filter(({ title }) => OPEN.includes(title)).flatMap(({ items }) => items.filter(({ value }) => value !== "not installed or unknown").map(({ name, value }) => [name, value]))]),
    el("details", { class: "change" }, el("summary", {}, "All that is known of the run"),
      el("div", { class: "facts" }, groups.map((group) => el("table", {}, el("caption", {}, group.title), el("tbody", {}, group.items.map(({ name, value }) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value)))))))));
  const operators = (names) => card("Operators named", el("ul", { class: "plain" }, names.map((name) => el("li", {}, el("code", {}, name), " ", el("a", { href: `matrix.html#q=${encodeURIComponent(`op:=${name}`)}` }, "in the matrix")))));
  const repro = (path) => card("Without the harness", el("p", {}, el("a", { href: path, download: "" }, "Download a Python file"), " that ends with an error as long as the failure is there."));

  async function show() {
    const asked = zoo.address(), id = asked.get("c") || "", vocabulary = await zoo.load("vocabulary");
    const architecture = await zoo.load(`architectures/${asked.get("a") || id.split("/")[0].replaceAll(".", "_")}`);
    const model = architecture.models.find((one) => one.cases.some((item) => item.id === id));
    if (!model) throw new Error(`no case ${id} in this run`);
    const known = model.cases.find((item) => item.id === id), [evidence, run] = await Promise.all([model.file, "environment"].map(zoo.load));
    const item = evidence.cases.find((one) => one.id === id) || { id, facts: [] };
    const verdict = vocabulary.verdicts[known.verdict], failed = verdict.group !== "pass";
    const facts = evidence.labels.map((label, at) => [label, item.facts?.[at]]).filter(([, value]) => typeof value === "string");
    document.title = `${verdict.word} · ${id}`;
    title.replaceChildren(architecture.name, " ", zoo.pill(verdict));
    content.replaceChildren(
      el("p", { class: "id" }, el("a", { href: `architecture.html#a=${architecture.file}` }, architecture.name), " ", el("code", {}, id)),
      el("p", { class: "lead" }, item.message || verdict.meaning),
      ...(item.message ? [el("p", { class: "quiet" }, `${verdict.verdict}: ${verdict.meaning}`)] : []),
      card("Run it again", command(item.rerun || known.rerun)),
      ...(item.repro ? [repro(item.repro)] : []),
      ...(item.expected ? [expected(item.expected)] : []),
      ...(item.worst ? [worst(item.worst, item.share)] : []),
      ...(item.detail ? [card("Error", el("pre", { tabindex: "0" }, item.detail))] : []),
      ...(item.log ? [card("Last output of the job", el("pre", { tabindex: "0" }, item.log))] : []),
      ...(item.attempts ? [attempts(item.attempts)] : []),
      ...(item.seconds ? [timeline(item, vocabulary.stages, failed)] : item.stage ? [card("Ended in stage", el("p", {}, item.stage))] : []),
      ...(item.operators ? [operators(item.operators)] : []),
      history(known, vocabulary),
      environment(evidence.environment, item.environment, run.groups),
      ...(facts.length ? [card("Facts", pairs(facts))] : []),
      card("Other cases of this model", el("ul", { class: "plain" }, model.cases.map((one) => el("li", {}, el("a", { href: `case.html#${new URLSearchParams({ a: architecture.file, c: one.id })}` }, zoo.pill(vocabulary.verdicts[one.verdict]), ` ${[one.phase, one.mode, one.dtype, one.profile].join(" · ")}`))))));
  }
  const open = () => show().catch(zoo.fail(content));
  addEventListener("hashchange", open);
  open();
})();
