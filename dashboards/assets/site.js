"use strict";
/* What all pages share: data files that register themselves, elements made of text alone, words for numbers. */
const zoo = (() => {
  const given = new Map(), waiting = new Map();
  const give = (name, value) => {
    given.set(name, value);
    for (const tell of waiting.get(name) || []) tell(value);
  };
  /* Scripts load from a disk too, which fetch does not. The name is checked: it may come from the address. */
  const load = (name) => new Promise((resolve, reject) => {
    if (given.has(name)) return resolve(given.get(name));
    if (!/^[a-z]+(\/[A-Za-z0-9][A-Za-z0-9_-]*)?$/.test(name)) return reject(new Error(`no data file is called ${name}`));
    waiting.set(name, [...(waiting.get(name) || []), resolve]);
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    script.addEventListener("error", () => reject(new Error(`this site has no data/${name}.js`)));
    document.head.append(script);
  });
  const el = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) if (value !== null && value !== undefined) node.setAttribute(name, value);
    node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
    return node;
  };
  const svg = (tag, attributes, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const address = () => new URLSearchParams(location.hash.slice(1));
  const percent = (ratio) => {
    if (typeof ratio !== "number") return ratio ?? "";
    if (ratio > 0 && ratio < 0.01) return "< 1 %";
    if (ratio < 10) return `${ratio > 1 ? Math.max(101, Math.round(100 * ratio)) : Math.round(100 * ratio)} %`;
    return ratio < 1e6 ? `${Math.round(ratio).toLocaleString("en")}×` : `${ratio.toExponential(0)}×`;
  };
  const time = (s) => typeof s !== "number" ? "unknown" : s < 0.1 ? `${Number((1000 * s).toPrecision(3))} ms` : s < 10 ? `${s.toFixed(2)} s` : `${s.toFixed(0)} s`;
  const bytes = (n) => typeof n !== "number" ? "unknown" : `${(n / 2 ** 20).toLocaleString("en", { maximumFractionDigits: 0 })} MiB`;
  const pill = (verdict) => el("span", { class: `pill ${verdict.group}` }, el("b", { "aria-hidden": "true" }, verdict.symbol), ` ${verdict.word}`);
  const card = (title, ...content) => el("section", { class: "card" }, el("h2", {}, title), ...content);
  const pairs = (items) => el("dl", { class: "pairs" }, items.map(([name, value]) => el("div", { class: String(value.textContent ?? value).length > 36 ? "long" : "" }, el("dt", {}, name), el("dd", {}, value))));
  /* With its roles spelled out, which a stylesheet that lays a row out otherwise would take away. */
  const table = (heads, rows, kind = "") => el("div", { class: "scroll", tabindex: "0" }, el("table", { class: `list ${kind}`, role: "table" },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads.map((head) => el("th", { scope: "col", role: "columnheader" }, head)))),
    el("tbody", { role: "rowgroup" }, rows.map((row) => el("tr", { role: "row" }, row.map((cell) => el("td", { role: "cell" }, cell)))))));
  const median = (values) => {
    const sorted = Float64Array.from(values).sort(), middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  };
  const command = (text) => {
    const shown = el("pre", { tabindex: "0" }, text), button = el("button", { type: "button" }, "Copy");
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(shown);
      try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Selected"; }
    });
    return el("div", { class: "command" }, shown, button);
  };
  const day = (created) => created.slice(0, 10);
  /* A line over the nights, its gaps left open; `limit` is drawn across. */
  const line = (values, label, limit) => {
    const known = values.map((value, at) => [at, value]).filter(([, value]) => typeof value === "number");
    const top = Math.max(...known.map(([, value]) => value), limit || 0) || 1, step = 300 / Math.max(1, values.length - 1);
    const y = (value) => 38 - (36 * value) / top;
    const marks = known.map(([at, value]) => svg("circle", { cx: at * step, cy: y(value), r: 2 }));
    const path = known.map(([at, value], n) => `${n && known[n - 1][0] === at - 1 ? "L" : "M"}${at * step} ${y(value)}`).join("");
    const rule = limit ? [svg("line", { class: "limit", x1: 0, x2: 300, y1: y(limit), y2: y(limit) })] : [];
    return svg("svg", { class: "line", viewBox: "-3 -1 306 41", role: "img", "aria-label": label }, svg("path", { d: path }), ...marks, ...rule);
  };
  const fail = (where) => (error) => where.replaceChildren(el("p", { class: "notice" }, error.message));
  document.addEventListener("keydown", (event) => {
    const search = document.getElementById("q");
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, dialog")) return;
    if (event.key === "/") {
      event.preventDefault();
      if (search) search.select(); else location.href = "matrix.html";
    } else if (event.key === "?" && document.getElementById("help")) document.getElementById("help").showModal();
  });
  const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
  return { give, load, el, svg, address, percent, time, bytes, pill, card, pairs, table, command, day, line, fail, plural, median };
})();
