// The stores: what they promise, and what the doctor says of them.
import { el, plain } from "./elements.js";
import { act, stores } from "./state.js";

const TRAITS = [["system", "kind"], ["scope", "exclusion reaches"], ["fenced", "tokens"], ["fair", "first come, first served"], ["bell", "wakes the next in line"],
  ["durable", "durable"], ["clock", "clock"], ["survives", "survives"], ["min_ttl", "shortest ttl, s"], ["max_ttl", "longest ttl, s"]];

export function storeView(main) {
  const places = new Map();
  main.replaceChildren(el("h2", {}, "Stores"));
  const live = () => {
    for (const one of stores.values()) {
      if (places.get(one.id) && places.get(one.id).traits === JSON.stringify(one.traits)) continue;
      const found = el("div", { role: "status" }), look = el("button", { type: "button" }, "Examine it (holdfast doctor)");
      look.addEventListener("click", async () => {
        look.disabled = true;
        found.replaceChildren(el("p", {}, "Looking …"));
        try { found.replaceChildren(findings((await act("api/doctor", { store: one.id })).findings)); }
        catch (error) { found.replaceChildren(el("p", {}, error.message)); }
        look.disabled = false;
      });
      const part = el("section", {}, el("h3", {}, `${one.id}: ${plain(one.url)}`),
        el("dl", { class: "traits" }, ...TRAITS.filter(([key]) => one.traits[key] !== undefined).flatMap(([key, label]) =>
          [el("dt", {}, label), el("dd", {}, one.traits[key] === true ? "yes" : one.traits[key] === false ? "no" : String(one.traits[key]))])),
        el("p", {}, look, " ", el("span", { class: "soft" }, "takes a lock of its own ten times; nothing else is changed")), found);
      const old = places.get(one.id);
      if (old) old.part.replaceWith(part); else main.append(part);
      places.set(one.id, { part, traits: JSON.stringify(one.traits) });
    }
  };
  live();
  return live;
}

function findings(found) {
  return el("table", { class: "cards" }, el("thead", {}, el("tr", {}, ...["Level", "What", "Finding"].map((one) => el("th", { scope: "col" }, one)))),
    el("tbody", {}, ...found.map((one) => el("tr", {}, el("td", { "data-label": "Level" }, el("span", { class: `level ${one.level}` }, one.level)),
      el("td", { "data-label": "What" }, one.check),
      el("td", { "data-label": "Finding" }, el("span", {}, plain(one.text), one.advice ? el("div", { class: "soft" }, `→ ${plain(one.advice)}`) : null))))));
}
