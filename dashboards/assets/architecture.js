"use strict";
(() => {
  const { el, card, table, time, bytes } = zoo, content = document.getElementById("content"), title = document.getElementById("title");
  const count = (value) => (typeof value === "number" ? String(value) : "unknown");
  const column = (item) => [item.phase, item.mode, item.dtype, item.profile].join(" · ");
  /* How many times slower the other mode's repeated call is, of the same model, phase, dtype and profile, if both pass. */
  const against = (item, model, mode, passed) => {
    const other = model.cases.find((one) => one.mode === mode && ["phase", "dtype", "profile"].every((name) => one[name] === item[name]));
    return other && other !== item && passed(item) && passed(other) && item.latency && other.latency ? `${(other.latency / item.latency).toFixed(2)}×` : "–";
  };
  /* The first so many of a list drawn, and a button that draws the rest. */
  const first = (all, most, draw) => {
    if (all.length <= most) return draw(all);
    const box = el("div", {}, draw(all.slice(0, most))), more = el("button", { type: "button" }, `Show ${all.length - most} more`);
    more.addEventListener("click", () => box.replaceChildren(draw(all)));
    box.append(more);
    return box;
  };
  const series = (title, cases, told) => card(title, cases.length ? first(cases, 60, (found) => el("div", { class: "lines" }, found.map((one) => {
    const [values, label, limit] = told(one);
    return el("figure", {}, zoo.line(values, `${label} tonight`, limit), el("figcaption", {}, label));
  }))) : el("p", { class: "quiet" }, "Unknown in all nights."));
  /* What fusing and compiling gain here: the median over the cases that pass both ways. */
  const ratios = (cases, passed) => [["defer-and-fuse", "strict-eager"], ["compiled", "strict-eager"], ["compiled", "eager"]].flatMap(([mode, base]) => {
    const found = cases.filter(({ item }) => item.mode === mode).map(({ model, item }) => parseFloat(against(item, model, base, passed))).filter(Number.isFinite);
    return found.length ? [`${mode} is ${zoo.median(found).toFixed(2)} times as fast as ${base} (median of ${found.length})`] : [];
  });
  async function show() {
    const vocabulary = await zoo.load("vocabulary"), data = await zoo.load(`architectures/${zoo.address().get("a") || ""}`);
    const passed = (item) => vocabulary.verdicts[item.verdict].group === "pass";
    const cases = data.models.flatMap((model) => model.cases.map((item) => ({ model, item })));
    const link = (item, text) => el("a", { href: `case.html#${new URLSearchParams({ a: data.file, c: item.id })}` }, text);
    const changes = cases.flatMap(({ item }) => item.history.slice(1).map(([night, verdict], at) => ({ item, night, verdict, before: item.history[at][1] }))).sort((a, b) => b.night - a.night);
    document.title = `${data.name} · Model-zoo conformance`;
    title.replaceChildren(data.name);
    const named = ({ model, item }) => `${data.models.length > 1 ? `${model.model_class} ${model.model_id} ` : ""}${column(item)}`;
    content.replaceChildren(
      el("p", {}, `${cases.filter(({ item }) => passed(item)).length} of ${zoo.plural(cases.length, "case")} of ${zoo.plural(data.models.length, "model")} pass. `, el("a", { href: `matrix.html#q=${encodeURIComponent(`arch:=${data.name}`)}` }, "In the matrix"), ", ", el("a", { href: `compare.html#q=${encodeURIComponent(`arch:=${data.name}`)}` }, "compared with the night before")),
      card("Run it again", zoo.command(data.rerun)),
      card("Models", first(data.models, 300, (found) => el("div", {}, found.map((model) => el("div", { class: "one-model" }, el("p", {}, el("b", {}, model.model_class || model.id), ` ${model.model_id} `, model.evidence ? el("span", { class: "tag" }, model.evidence) : ""),
        el("ul", { class: "plain" }, model.cases.map((item) => el("li", {}, link(item, [zoo.pill(vocabulary.verdicts[item.verdict]), ` ${column(item)}`]), " ", el("small", {}, zoo.percent(item.ratio)))))))))),
      card("What changed", changes.length ? first(changes, 100, (found) => el("ol", { class: "transitions" }, found.map(({ item, night, verdict, before }) => el("li", {}, `${zoo.day(vocabulary.nights[night].created)} `, zoo.pill(vocabulary.verdicts[before]), " → ", zoo.pill(vocabulary.verdicts[verdict]), " ", link(item, item.id))))) : el("p", { class: "quiet" }, `Every case ended alike whenever it ran (${zoo.plural(vocabulary.nights.length, "night")}).`)),
      card("Speed and memory", el("p", { class: "quiet" }, "Latency is the wall time of a repeated call, all compiled before. “Strict takes” is strict-eager’s latency over this one’s, “eager takes” eager’s; both only where both pass."),
        ...ratios(cases, passed).map((line) => el("p", {}, line)),
        first(cases, 400, (found) => table(["case", "latency", "strict takes", "eager takes", "compiling", "in all", "device memory", "host memory", "programs executed", "compiled", "again", "graph breaks", "copies to host"], found.map(({ model, item }) => [link(item, named({ model, item })), time(item.latency), against(item, model, "strict-eager", passed), against(item, model, "eager", passed), time(item.compile), time(item.wall), bytes(item.device), bytes(item.host), count(item.executed), count(item.compiled), count(item.recompiled), count(item.breaks), count(item.reads)]), "measures"))),
      series("Error over the nights, as a share of what is allowed (dashed)", cases.filter(({ item }) => item.ratios), ({ model, item }) => [item.ratios, `${named({ model, item })}: ${zoo.percent(item.ratio) || "unknown"}`, 1]),
      series("Latency over the nights", cases.filter(({ item }) => item.latencies), ({ model, item }) => [item.latencies, `${named({ model, item })}: ${time(item.latency)}`]));
  }
  const open = () => show().catch(zoo.fail(content));
  addEventListener("hashchange", open);
  open();
})();
