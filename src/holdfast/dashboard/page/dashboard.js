// One page, no build step. Nothing is loaded from anywhere else. Here: what the server tells, which view is shown, and the keys.
import { byId, el, plain, short } from "./elements.js";
import { graph } from "./graph.js";
import { history } from "./history.js";
import { oneLock } from "./lock.js";
import { overview } from "./overview.js";
import { act, ask, keyOf, locks, now, old, page, redraw, stores } from "./state.js";
import { storeView } from "./stores.js";

const TICK = 500;
const SILENT = 15000; // the server says something every five seconds: a network that is gone says nothing, and closes nothing
let source, heard = 0;

// ---- what the server tells

function listen() {
  const mine = source = new EventSource("api/events");
  heard = performance.now();
  mine.addEventListener("all", (event) => { stores.clear(); locks.clear(); take(JSON.parse(event.data)); });
  mine.addEventListener("some", (event) => take(JSON.parse(event.data)));
  mine.addEventListener("beat", (event) => { hear(JSON.parse(event.data)); redraw(); });
  mine.onopen = () => { heard = performance.now(); away(false); };
  mine.onerror = () => {
    away(true);
    if (mine.readyState === EventSource.CLOSED) {
      const again = () => { if (mine === source) listen(); }; // or another was begun meanwhile: two would be one too many
      setTimeout(() => { if (mine === source) ask("api/session").then(again, again); }, 2000);
    }
  };
}

function away(is) {
  if (page.away !== is || byId("status").textContent === "connecting …") {
    byId("status").textContent = is ? "not connected: what is shown may be old" : "live";
    byId("status").classList.toggle("off", is);
  }
  page.away = is;
  redraw();
}

function hear(told) {
  heard = performance.now();
  page.skew = told.now - Date.now() / 1000;
  page.looked = told.looked;
}

function take(told) {
  hear(told);
  for (const one of told.stores) stores.set(one.id, one);
  for (const one of told.locks) locks.set(keyOf(one.store, one.name), one);
  for (const [store, name] of told.gone) locks.delete(keyOf(store, name));
  troubles();
  redraw();
}

function troubles() {
  const told = [...stores.values()].flatMap((one) => [
    ...(one.error ? [`${one.id} (${plain(one.url)}): ${plain(one.error)}`] : []), ...(one.partly ? [`${one.id}: ${one.partly}`] : []),
    ...(old(one.id) && !one.error && !page.away ? [slow(one.id, old(one.id))] : [])]);
  const place = byId("troubles");
  if (place.dataset.told === JSON.stringify(told)) return;
  place.dataset.told = JSON.stringify(told);
  place.replaceChildren(...told.map((text) => el("p", {}, text)));
  redraw();
}

const slow = (store, since) => (page.looked[store] === undefined
  ? `${store} takes long to answer: it is being looked at for the first time, for more than ${since}, and none of its locks are shown yet`
  : `${store} was last looked at more than ${since} ago, and takes long to answer: what is shown may be old`);

// ---- which view

function route() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const asked = new URLSearchParams(query || "");
  const view = { "/lock": "lock", "/graph": "graph", "/stores": "stores", "/history": "history" }[path] || "overview";
  return { view, asked };
}

const views = { overview, lock: oneLock, graph, stores: storeView, history };

function show() {
  const { view, asked } = route();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  document.title = view === "overview" ? "holdfast" : `${view === "lock" ? short(asked.get("name") || "", 60) : view} · holdfast`;
  page.ticks = [];
  const main = byId("main"), arrived = page.current.view !== "" && page.current.hash !== location.hash;
  page.current = { view, hash: location.hash, live: null };
  page.current.live = views[view](main, asked);
  if (arrived) main.focus({ preventScroll: true });
}

function tick() {
  const at = now();
  for (const call of page.ticks) call(at);
  troubles();
  if (source && performance.now() - heard > SILENT) { source.close(); away(true); listen(); }
}

// ---- keys

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "Escape") { if (typing) event.target.blur(); else location.hash = "#/"; return; }
  if (typing) return;
  const to = { l: "#/", g: "#/graph", s: "#/stores", h: "#/history" }[event.key];
  if (to) location.hash = to;
  else if (event.key === "/") { const field = byId("filter"); if (field) { field.focus(); event.preventDefault(); } }
  else if (event.key === "?") byId("help").showModal();
  else if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll("#locks a.name")], at = links.indexOf(document.activeElement);
    const next = links[event.key === "j" ? at + 1 : Math.max(0, at - 1)];
    if (next) next.focus();
  }
});

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
window.addEventListener("hashchange", show);
setInterval(tick, TICK);
// A page that nobody sees listens to nothing: a browser opens six connections to a place, and with six pages in the background
// the seventh would wait for ever.
document.addEventListener("visibilitychange", () => {
  if (document.hidden && source) { source.close(); source = null; }
  else if (!document.hidden && !source) { away(true); listen(); }
});
const out = byId("out");
out.addEventListener("click", () => act("api/logout", {}).then(() => location.assign("login"),
  () => { out.textContent = "Still logged in: no answer. Log out"; }));
ask("api/session").then((told) => { page.session = told; out.hidden = !told.login; }, () => {}).finally(() => { show(); if (!document.hidden && !source) listen(); });
