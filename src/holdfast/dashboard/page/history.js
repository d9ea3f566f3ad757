// What happened, newest first.
import { ago, el, plain } from "./elements.js";
import { lockLink } from "./pieces.js";
import { ask, redraw } from "./state.js";

export function history(main, asked) {
  const search = el("input", { type: "search", id: "filter", value: asked.get("q") || "", autocomplete: "off", spellcheck: "false" });
  const body = el("tbody", {}), many = el("p", { class: "many", role: "status" });
  main.replaceChildren(
    el("div", { class: "tools" }, el("label", { for: "filter" }, "Search"), search, many,
      el("a", { href: "api/history.jsonl", download: "holdfast-history.jsonl" }, "All as JSON lines")),
    el("table", { class: "cards" }, el("caption", { class: "away" }, "What happened, newest first"),
      el("thead", {}, el("tr", {}, ...["When", "What", "Lock", "Who", "Token", "After", "Detail"].map((one) => el("th", { scope: "col" }, one)))), body));
  let asking = false, again = false;
  const live = async () => {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const told = await ask(`api/history?most=200&q=${encodeURIComponent(search.value)}`);
      many.textContent = told.events.length >= 200 ? "the newest 200" : `${told.events.length} events`;
      if (told.trouble) many.textContent += `; not all of them are in the file: ${told.trouble}`;
      body.replaceChildren(...told.events.map(eventRow));
    } finally { asking = false; if (again) { again = false; redraw(); } }
  };
  search.addEventListener("input", live);
  live();
  return live;
}

function eventRow(one) {
  const cell = (label, ...inside) => el("td", { "data-label": label }, ...inside);
  const at = new Date(one.at * 1000);
  return el("tr", {}, cell("When", el("time", { datetime: at.toISOString() }, at.toLocaleString())),
    cell("What", el("span", { class: one.event === "evicted" ? "level problem" : null }, one.event)), cell("Lock", lockLink(one.store, one.name, "soft")),
    cell("Who", plain(one.owner)), cell("Token", ...(one.token ? [String(one.token)] : [])), cell("After", ago(one.seconds)),
    cell("Detail", ...(one.detail ? [plain(one.detail)] : [])));
}
