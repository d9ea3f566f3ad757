// All locks; what is off the screen is not drawn.
import { arrange, el, plain, set } from "./elements.js";
import { age, badges, lately, lockLink, spark, ttlBar } from "./pieces.js";
import { keyOf, locks, now, page, stores, unknown } from "./state.js";

const MOST_ROWS = 200;
const WORST = ["deadlock", "in danger", "starving", "held unusually long"];
let sorting = { by: "attention", down: false }, filter = "", shown = MOST_ROWS;

const oldest = (list) => list.reduce((least, one) => Math.min(least, one.since), Infinity);
const COLUMNS = [
  { by: "attention", head: "Lock", of: (one) => Math.min(...one.attention.map((why) => WORST.indexOf(why)), 9) },
  { by: "holder", head: "Held by", of: (one) => (one.holders[0] || { owner: "" }).owner },
  { by: "age", head: "For", of: (one) => oldest(one.holders), number: true },
  { by: "left", head: "Time left", of: (one) => Math.min(...one.holders.map((held) => held.ends), Infinity) },
  { by: "token", head: "Token", of: (one) => (one.holders[0] || { token: 0 }).token, number: true },
  { by: "line", head: "In line", of: (one) => -one.waiters.length, number: true },
  { by: "lately", head: "Last 10 min", of: (one) => -lately(one.acquired, now()).length },
];

function wanted() {
  const text = filter.toLowerCase();
  const found = [...locks.values()].filter((one) => !text || one.name.toLowerCase().includes(text) ||
    one.store.includes(text) || [...one.holders, ...one.waiters].some((who) => who.owner.toLowerCase().includes(text)));
  const column = COLUMNS.find((one) => one.by === sorting.by), sign = sorting.down ? -1 : 1;
  const keyed = found.map((one) => [column.of(one), one]);
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const names = sorting.by === "attention" ? sign : 1; // the column of the names
  keyed.sort((a, b) => sign * order(a[0], b[0]) || names * order(a[1].name, b[1].name));
  return keyed.map((pair) => pair[1]);
}

export function overview(main) {
  const search = el("input", { type: "search", id: "filter", value: filter, autocomplete: "off", spellcheck: "false" });
  search.addEventListener("input", () => { filter = search.value; shown = MOST_ROWS; live(); });
  const many = el("p", { class: "many", role: "status" }), body = el("tbody", {}), none = el("span", {});
  // The same button all the time: one that is made anew with every change can hardly be clicked.
  const further = el("button", { type: "button", hidden: true, on: { click: () => { shown += MOST_ROWS; live(); } } });
  let made = new Map(); // rows, by the very object that they show: what has not changed is not made again
  const heads = COLUMNS.map((column) => el("th", { scope: "col", class: column.number ? "number" : null },
    el("button", { type: "button", on: { click: () => {
      sorting = { by: column.by, down: sorting.by === column.by && !sorting.down };
      live();
    } } }, column.head)));
  main.replaceChildren(
    el("div", { class: "tools" }, el("label", { for: "filter" }, "Filter"), search, many),
    el("table", { class: "cards", id: "locks" }, el("caption", { class: "away" }, "Locks in use; what needs attention comes first"),
      el("thead", {}, el("tr", {}, ...heads)), body), el("p", {}, further, none));
  function live() {
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : undefined;
    const kept = new Map(), moving = [];
    const found = wanted();
    COLUMNS.forEach((column, at) => {
      if (column.by === sorting.by) heads[at].setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
      else heads[at].removeAttribute("aria-sort");
    });
    const alarming = found.filter((one) => one.attention.length).length;
    const rows = found.slice(0, shown).map((one) => {
      page.ticks = [];
      const old = made.get(one) || { row: row(one), ticks: page.ticks };
      kept.set(one, old);
      moving.push(...old.ticks);
      return old.row;
    });
    made = kept;
    page.ticks = moving;
    set(many, `${found.length} ${found.length === 1 ? "lock" : "locks"}${alarming ? `, ${alarming} that need attention` : ""}`);
    arrange(body, rows);
    set(further, `Show more (${found.length - shown} are not shown)`);
    further.hidden = found.length <= shown;
    set(none, found.length ? "" : filter ? "No lock matches." : [...stores.keys(), ...(stores.size ? [] : [""])].map(unknown).find(Boolean) || "No locks are in use.");
    if (focused && document.activeElement.dataset.key !== focused) { const link = [...body.querySelectorAll("a.name")].find((one) => one.dataset.key === focused); if (link) link.focus({ preventScroll: true }); }
  }
  live();
  return live;
}

function row(one) {
  const held = one.holders[0], line = one.waiters.length;
  const link = lockLink(one.store, one.name);
  link.dataset.key = keyOf(one.store, one.name);
  const kind = one.kind === "mutex" ? "" : one.kind === "semaphore" ? `semaphore, ${one.used} of ${one.capacity}` : one.kind;
  const about = [stores.size > 1 ? one.store : "", kind].filter(Boolean).join(" · ");
  const cell = (label, number, ...inside) => el("td", { "data-label": label, class: number ? "number" : null }, ...inside);
  return el("tr", {},
    cell("Lock", false, el("span", {}, ...badges(one), link, about ? el("div", { class: "soft" }, about) : null)),
    cell("Held by", false, ...(held ? [plain(held.owner) + (one.holders.length > 1 ? ` and ${one.holders.length - 1} more` : "")] : [])),
    cell("For", true, ...(held ? [age(oldest(one.holders))] : [])),
    cell("Time left", false, ...(held ? [ttlBar(one.store, one.holders.reduce((a, b) => (a.ends < b.ends ? a : b)))] : [])),
    cell("Token", true, ...(held ? [String(held.token)] : [])),
    cell("In line", true, ...(line ? [el("span", {}, `${line}, for `, age(oldest(one.waiters)))] : [])),
    cell("Last 10 min", false, ...(lately(one.acquired, now()).length ? [spark(one.acquired)] : [])));
}
