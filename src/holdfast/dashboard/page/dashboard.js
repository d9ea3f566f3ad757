// One page, no build step. Nothing is loaded from anywhere else. Here: what the server tells, which view is shown, and the keys.
import { byId, el, plain } from "./elements.js";
import { graph } from "./graph.js";
import { history } from "./history.js";
import { oneLock } from "./lock.js";
import { overview } from "./overview.js";
import { ask, keyOf, locks, now, page, redraw, stores } from "./state.js";
import { storeView } from "./stores.js";

const TICK = 500;

// ---- what the server tells

function listen() {
  const source = new EventSource("api/events");
  source.addEventListener("all", (event) => { stores.clear(); locks.clear(); take(JSON.parse(event.data)); });
  source.addEventListener("some", (event) => take(JSON.parse(event.data)));
  source.onopen = () => status("live", false);
  source.onerror = () => {
    status("not connected: what is shown may be old", true);
    if (source.readyState === EventSource.CLOSED) {
      setTimeout(() => { ask("api/session").then(listen, listen); }, 2000);
    }
  };
}

function status(text, off) {
  byId("status").textContent = text;
  byId("status").classList.toggle("off", off);
}

function take(told) {
  page.skew = told.now - Date.now() / 1000;
  for (const one of told.stores) stores.set(one.id, one);
  for (const one of told.locks) locks.set(keyOf(one.store, one.name), one);
  for (const [store, name] of told.gone) locks.delete(keyOf(store, name));
  troubles();
  redraw();
}

function troubles() {
  const told = [...stores.values()].flatMap((one) => [
    ...(one.error ? [`${one.id} (${plain(one.url)}): ${plain(one.error)}`] : []), ...(one.partly ? [`${one.id}: ${one.partly}`] : [])]);
  const place = byId("troubles");
  if (place.dataset.told === JSON.stringify(told)) return;
  place.dataset.told = JSON.stringify(told);
  place.replaceChildren(...told.map((text) => el("p", {}, text)));
}

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
  page.ticks = [];
  const main = byId("main"), arrived = page.current.view !== "" && page.current.hash !== location.hash;
  page.current = { view, hash: location.hash, live: null };
  page.current.live = views[view](main, asked);
  if (arrived) main.focus({ preventScroll: true });
}

function tick() {
  const at = now();
  for (const call of page.ticks) call(at);
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
ask("api/session").then((told) => { page.session = told; }, () => {}).finally(() => { show(); listen(); });
