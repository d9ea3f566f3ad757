// What happened, newest first.
import { ago, arrange, el, plain, set } from "./elements.js";
import { lockLink } from "./pieces.js";
import { ask, redraw, stores } from "./state.js";

export function history(main, asked) {
  const search = el("input", { type: "search", id: "filter", value: asked.get("q") || "", autocomplete: "off", spellcheck: "false" });
  const body = el("tbody", {}), many = el("p", { class: "many", role: "status" });
  const hold = el("button", { type: "button", "aria-pressed": "false" }, "Hold still");
  hold.addEventListener("click", () => { hold.setAttribute("aria-pressed", String(hold.ariaPressed !== "true")); redraw(); });
  main.replaceChildren(
    el("div", { class: "tools" }, el("label", { for: "filter" }, "Search"), search, many, hold,
      el("a", { href: "api/history.jsonl", download: "holdfast-history.jsonl" }, "All as JSON lines")),
    el("table", { class: "cards" }, el("caption", { class: "away" }, "What happened, newest first"),
      el("thead", {}, el("tr", {}, ...["When", "What", "Lock", "Who", "Token", "After", "Detail"].map((one) => el("th", { scope: "col" }, one)))), body));
  let asking = false, again = false, wanted = "", made = new Map(); // rows, by their whole event (numbers begin anew with the server): what is shown stays where it is
  const live = async () => {
    if (hold.ariaPressed === "true" && search.value === wanted) return;
    if (asking) { again = true; return; }
    asking = true;
    wanted = search.value;
    try {
      const told = await ask(`api/history?most=200&q=${encodeURIComponent(wanted)}`);
      const found = told.events.length >= 200 ? "the newest 200" : `${told.events.length} events`;
      set(many, told.trouble ? `${found}; not all of them are in the file: ${told.trouble}` : found);
      made = new Map(told.events.map((one) => [JSON.stringify(one), one]).map(([key, one]) => [key, made.get(key) || eventRow(one)]));
      arrange(body, [...made.values()]);
    } catch {
      wanted = null; // it is to be asked again, held still or not
      set(many, "no answer: what is shown is older");
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
    cell("What", el("span", { class: one.event === "evicted" ? "level problem" : null }, one.event)),
    cell("Lock", el("span", {}, lockLink(one.store, one.name, "soft"), stores.size > 1 ? el("div", { class: "soft" }, one.store) : null)),
    cell("Who", plain(one.owner)), cell("Token", ...(one.token ? [String(one.token)] : [])), cell("After", ago(one.seconds)),
    cell("Detail", ...(one.detail ? [plain(one.detail)] : [])));
}
