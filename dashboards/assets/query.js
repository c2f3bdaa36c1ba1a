"use strict";
/* What can be typed into a search field: words, `key:value,value`, and a minus before either that turns it round. */
zoo.query = (() => {
  const STATUS = { passing: ["pass"], failing: ["backend", "model"], environment: ["environment", "harness"], missing: ["missing"] };

  /* Tests by kind, and in `wrong` what cannot be understood. `keys` has for each key a function from its values to a
     kind and a test, or to nothing; `plain` one from a word without a key. A key still without value is no test yet. */
  function parse(text, kinds, keys, plain) {
    const query = Object.fromEntries([...kinds, "wrong"].map((kind) => [kind, []]));
    for (const word of text.trim().split(/\s+/).filter(Boolean)) {
      const [, not, key, value] = /^(-?)(?:([a-z]+):)?(.*)$/i.exec(word), values = value.toLowerCase().split(",").filter(Boolean);
      if (key && !values.length) continue;
      const found = !key ? plain(value.toLowerCase()) : Object.hasOwn(keys, key) ? keys[key](values) : null;
      if (!found) query.wrong.push(word);
      else query[found[0]].push(not ? (item) => !found[1](item) : found[1]);
    }
    return query;
  }
  /* Whether one of the values is part of a text, or after `=` all of it. */
  const any = (values, text) => values.some((one) => one.startsWith("=") ? text.toLowerCase() === one.slice(1) : text.toLowerCase().includes(one));

  /* Models as a site's matrix has them, and the keys that choose among them. */
  function models(data) {
    const { entries, architectures } = data;
    const facet = (name, at) => entries[name].values[entries[name].of[at]];
    const all = entries.class.map((name, at) => {
      const { name: arch, file } = architectures[entries.architecture[at]];
      return { at, arch, file, class: name, model: entries.model[at], text: `${arch} ${name} ${entries.model[at]} ${facet("family", at)} ${facet("task", at)}`.toLowerCase() };
    });
    const keys = {};
    for (const key of ["arch", "class", "model"]) keys[key] = (values) => ["model", (model) => any(values, model[key])];
    for (const key of ["family", "task", "library", "weights", "evidence"]) keys[key] = (values) => ["model", ({ at }) => any(values, facet(key, at))];
    const plain = (word) => ["model", ({ text }) => text.includes(word)];
    const caseId = (model, column) => [model.arch, model.class, model.model, facet("weights", model.at), column.phase, column.mode, column.dtype, column.profile].join("/");
    const href = (model, column) => `case.html#${new URLSearchParams({ a: model.file, c: caseId(model, column) })}`;
    return { all, facet, keys, plain, href };
  }
  return { STATUS, parse, any, models };
})();
