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
  async function show() {
    const vocabulary = await zoo.load("vocabulary"), data = await zoo.load(`architectures/${zoo.address().get("a") || ""}`);
    const passed = (item) => vocabulary.verdicts[item.verdict].group === "pass";
    const cases = data.models.flatMap((model) => model.cases.map((item) => ({ model, item })));
    const link = (item, text) => el("a", { href: `case.html#${new URLSearchParams({ a: data.file, c: item.id })}` }, text);
    const changes = cases.flatMap(({ item }) => item.history.slice(1).map(([night, verdict], at) => ({ item, night, verdict, before: item.history[at][1] }))).sort((a, b) => b.night - a.night);
    document.title = `${data.name} · Model-zoo conformance`;
    title.replaceChildren(data.name);
    content.replaceChildren(
      el("p", {}, `${cases.filter(({ item }) => passed(item)).length} of ${cases.length} cases of ${data.models.length} models pass. `, el("a", { href: `matrix.html#q=${encodeURIComponent(`arch:=${data.name}`)}` }, "In the matrix")),
      card("Run it again", zoo.command(data.rerun)),
      card("Models", ...data.models.slice(0, 300).map((model) => el("div", { class: "one-model" }, el("p", {}, el("b", {}, model.model_class || model.id), ` ${model.model_id} `, model.evidence ? el("span", { class: "tag" }, model.evidence) : ""),
        el("ul", { class: "plain" }, model.cases.map((item) => el("li", {}, link(item, [zoo.pill(vocabulary.verdicts[item.verdict]), ` ${column(item)}`].map((part) => part instanceof Node ? part : document.createTextNode(part)).reduce((all, part) => (all.append(part), all), document.createDocumentFragment())), " ", el("small", {}, zoo.percent(item.ratio)))))))),
      card("What changed", changes.length ? el("ol", { class: "transitions" }, changes.slice(0, 100).map(({ item, night, verdict, before }) => el("li", {}, `${zoo.day(vocabulary.nights[night].created)} `, zoo.pill(vocabulary.verdicts[before]), " → ", zoo.pill(vocabulary.verdicts[verdict]), " ", link(item, item.id)))) : el("p", { class: "quiet" }, `Every case ended alike in all nights that are known (${vocabulary.nights.length} at most).`)),
      card("Speed and memory", el("p", { class: "quiet" }, "Latency is the wall time of a repeated call, all compiled before. “Strict takes” is strict-eager’s latency over this one’s, “eager takes” eager’s; both only where both pass."),
        table(["case", "latency", "strict takes", "eager takes", "compiling", "device memory", "host memory", "programs compiled", "again", "graph breaks", "copies to host"], cases.slice(0, 400).map(({ model, item }) => [link(item, `${model.model_class} ${column(item)}`), time(item.latency), against(item, model, "strict-eager", passed), against(item, model, "eager", passed), time(item.compile), bytes(item.device), bytes(item.host), count(item.compiled), count(item.recompiled), count(item.breaks), count(item.reads)]))),
      card("Error over the nights, as a share of what is allowed", el("div", { class: "lines" }, cases.filter(({ item }) => item.ratios).slice(0, 60).map(({ model, item }) => el("figure", {}, zoo.line(item.ratios, `${item.id}: ${zoo.percent(item.ratio) || "unknown"} tonight`, 1), el("figcaption", {}, `${model.model_class} ${column(item)}: ${zoo.percent(item.ratio) || "unknown"}`))))));
  }
  const open = () => show().catch(zoo.fail(content));
  addEventListener("hashchange", open);
  open();
})();
