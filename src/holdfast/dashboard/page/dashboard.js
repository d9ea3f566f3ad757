// One page, no build step. Rules: what comes from a store reaches the page as text only (textContent, setAttribute of harmless
// attributes), never as HTML; nothing is loaded from anywhere else; what is off the screen is not drawn.
"use strict";

const stores = new Map(), locks = new Map();
const MOST_ROWS = 200, TICK = 500, REDRAW = 250, HOUR = 3600;
const WORST = ["deadlock", "in danger", "starving", "held unusually long"];
let skew = 0, session = { allow_evict: false, csrf: "", header: "" };
let sorting = { by: "attention", down: false }, filter = "", shown = MOST_ROWS, ticks = [], drawn = 0, pending = 0;

const byId = (id) => document.getElementById(id);
const now = () => Date.now() / 1000 + skew;
const keyOf = (store, name) => JSON.stringify([store, name]);

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((one) => one !== null && one !== undefined));
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function ago(seconds) {
  seconds = Math.max(0, seconds);
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (const [size, unit, smaller, name] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / smaller);
      return rest ? `${Math.floor(whole / size)} ${unit} ${rest} ${name}` : `${Math.floor(whole / size)} ${unit}`;
    }
  }
  return `${whole} s`;
}

// What a person can read of any name: control characters and marks that turn the direction are shown, not obeyed.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\u2028\u2029]/gu;
const plain = (text) => String(text).replace(HIDDEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

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
  skew = told.now - Date.now() / 1000;
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

async function ask(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (answer.status === 401) location.assign("login");
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

async function act(path, body) {
  session = await ask("api/session");
  const answer = await fetch(path, {
    method: "POST", credentials: "same-origin", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", [session.header]: session.csrf },
  });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error || `${answer.status}`);
  return said;
}

// ---- which view

function route() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const asked = new URLSearchParams(query || "");
  const view = { "/lock": "lock", "/graph": "graph", "/stores": "stores", "/history": "history" }[path] || "overview";
  return { view, asked };
}

const views = { overview, lock: oneLock, graph, stores: storeView, history };
let current = { view: "", live: null };

function show() {
  const { view, asked } = route();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  ticks = [];
  const main = byId("main"), arrived = current.view !== "" && current.hash !== location.hash;
  current = { view, hash: location.hash, live: null };
  current.live = views[view](main, asked);
  if (arrived) main.focus({ preventScroll: true });
}

function redraw() {
  if (pending) return;
  pending = setTimeout(() => { pending = 0; drawn = performance.now(); if (current.live) current.live(); },
    Math.max(0, REDRAW - (performance.now() - drawn)));
}

function tick() {
  const at = now();
  for (const call of ticks) call(at);
}

// ---- the pieces that move

function set(place, text) {
  if (place.told !== text) { place.told = text; place.textContent = text; }
}

function age(since) {
  const place = el("span", {});
  const move = (at) => set(place, ago(at - since));
  move(now());
  ticks.push(move);
  return place;
}

function ttlBar(holder) {
  const fill = el("i", {}), left = el("span", {});
  const move = (at) => {
    const rest = holder.ends - at, part = holder.ttl > 0 ? Math.min(1, Math.max(0, rest / holder.ttl)) : 0;
    fill.style.transform = `scaleX(${part.toFixed(3)})`;
    const kind = part > 0.5 ? "" : part > 0.25 ? "low" : "out";
    if (fill.className !== kind) fill.className = kind;
    set(left, rest > 0 ? `${ago(rest)} left` : "run out");
  };
  move(now());
  ticks.push(move);
  return el("span", { class: "ttl" }, el("span", { class: "bar", "aria-hidden": "true" }, fill), left);
}

function badges(lock) {
  return lock.attention.map((why) =>
    el("span", { class: `badge ${why === "deadlock" ? "deadlock" : why === "in danger" ? "danger" : ""}` }, why));
}

function spark(times) {
  const picture = svg("svg", { width: 90, height: 16, role: "img", "aria-label": `${times.length} acquisitions seen lately` });
  const at = now();
  for (const one of times) {
    const x = 89 - Math.min(89, ((at - one) / 600) * 89);
    picture.append(svg("line", { x1: x, x2: x, y1: 2, y2: 14, class: "spark" }));
  }
  return picture;
}

const lockLink = (store, name, kind) =>
  el("a", { href: `#/lock?store=${encodeURIComponent(store)}&name=${encodeURIComponent(name)}`, class: kind || "name" }, plain(name));

// ---- overview

const oldest = (list) => list.reduce((least, one) => Math.min(least, one.since), Infinity);
const COLUMNS = [
  { by: "attention", head: "Lock", of: (one) => Math.min(...one.attention.map((why) => WORST.indexOf(why)), 9) },
  { by: "holder", head: "Held by", of: (one) => (one.holders[0] || { owner: "" }).owner },
  { by: "age", head: "For", of: (one) => oldest(one.holders), number: true },
  { by: "left", head: "Time left", of: (one) => Math.min(...one.holders.map((held) => held.ends), Infinity) },
  { by: "token", head: "Token", of: (one) => (one.holders[0] || { token: 0 }).token, number: true },
  { by: "line", head: "In line", of: (one) => -one.waiters.length, number: true },
  { by: "lately", head: "Last 10 min", of: (one) => -one.acquired.length },
];

function wanted() {
  const text = filter.toLowerCase();
  const found = [...locks.values()].filter((one) => !text || one.name.toLowerCase().includes(text) ||
    one.store.includes(text) || [...one.holders, ...one.waiters].some((who) => who.owner.toLowerCase().includes(text)));
  const column = COLUMNS.find((one) => one.by === sorting.by), sign = sorting.down ? -1 : 1;
  const keyed = found.map((one) => [column.of(one), one]);
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  keyed.sort((a, b) => sign * order(a[0], b[0]) || order(a[1].name, b[1].name));
  return keyed.map((pair) => pair[1]);
}

function overview(main) {
  const search = el("input", { type: "search", id: "filter", value: filter, autocomplete: "off", spellcheck: "false" });
  search.addEventListener("input", () => { filter = search.value; shown = MOST_ROWS; live(); });
  const many = el("p", { class: "many", role: "status" }), body = el("tbody", {}), more = el("p", {});
  let made = new Map(); // rows, by the very object that they show: what has not changed is not made again
  const heads = COLUMNS.map((column) => el("th", { scope: "col", class: column.number ? "number" : null },
    el("button", { type: "button", on: { click: () => {
      sorting = { by: column.by, down: sorting.by === column.by && !sorting.down };
      live();
    } } }, column.head)));
  main.replaceChildren(
    el("div", { class: "tools" }, el("label", { for: "filter" }, "Filter"), search, many),
    el("table", { class: "cards", id: "locks" }, el("caption", { class: "away" }, "Locks in use; what needs attention comes first"),
      el("thead", {}, el("tr", {}, ...heads)), body), more);
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
      ticks = [];
      const old = made.get(one) || { row: row(one), ticks };
      kept.set(one, old);
      moving.push(...old.ticks);
      return old.row;
    });
    made = kept;
    ticks = moving;
    set(many, `${found.length} ${found.length === 1 ? "lock" : "locks"}${alarming ? `, ${alarming} that need attention` : ""}`);
    arrange(body, rows);
    more.replaceChildren(...(found.length > shown
      ? [el("button", { type: "button", on: { click: () => { shown += MOST_ROWS; live(); } } }, `Show more (${found.length - shown} are not shown)`)]
      : found.length ? [] : [filter ? "No lock matches." : "No locks are in use."]));
    if (focused && document.activeElement.dataset.key !== focused) { const link = [...body.querySelectorAll("a.name")].find((one) => one.dataset.key === focused); if (link) link.focus(); }
  }
  live();
  return live;
}

// Only what is not where it belongs is moved.
function arrange(body, rows) {
  const wanted = new Set(rows);
  for (const old of [...body.children]) if (!wanted.has(old)) old.remove();
  rows.forEach((one, at) => { if (body.children[at] !== one) body.insertBefore(one, body.children[at] || null); });
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
    cell("Time left", false, ...(held ? [ttlBar(one.holders.reduce((a, b) => (a.ends < b.ends ? a : b)))] : [])),
    cell("Token", true, ...(held ? [String(held.token)] : [])),
    cell("In line", true, ...(line ? [el("span", {}, `${line}, for `, age(oldest(one.waiters)))] : [])),
    cell("Last 10 min", false, ...(one.acquired.length ? [spark(one.acquired)] : [])));
}

// ---- one lock

function oneLock(main, asked) {
  const store = asked.get("store") || "", name = asked.get("name") || "";
  const top = el("div", {}), past = el("div", {});
  main.replaceChildren(el("h2", {}, plain(name)), top, past);
  let version = "";
  const live = () => {
    const lock = locks.get(keyOf(store, name));
    ticks = [];
    top.replaceChildren(...(lock ? present(lock) : [el("p", {}, "It is free: nobody holds it, nobody waits.")]));
    const seen = JSON.stringify(lock ? [lock.holders.map((one) => one.token), lock.waiters.length] : 0);
    if (seen !== version) { version = seen; before(); }
  };
  async function before() {
    const told = await ask(`api/history?most=2000&store=${encodeURIComponent(store)}&name=${encodeURIComponent(name)}`);
    if (current.view === "lock") past.replaceChildren(...pastOf(told.events.reverse(), locks.get(keyOf(store, name))));
  }
  live();
  return live;
}

function present(lock) {
  const about = [lock.store, lock.kind === "semaphore" ? `semaphore, ${lock.used} of ${lock.capacity} units` : lock.kind].join(" · ");
  const told = [el("p", {}, ...badges(lock), el("span", { class: "soft" }, about))];
  const cell = (label, ...inside) => el("td", { "data-label": label }, ...inside);
  const heads = (...names) => el("thead", {}, el("tr", {}, ...names.map((one) => el("th", { scope: "col" }, one))));
  told.push(el("h3", {}, "Inside"));
  told.push(lock.holders.length ? el("table", { class: "cards" }, heads("Owner", "Token", "For", "Time left", ...(session.allow_evict ? ["Act"] : [])),
    el("tbody", {}, ...lock.holders.map((held) => el("tr", {},
      cell("Owner", el("span", {}, plain(held.owner), held.share ? el("span", { class: "soft" }, ` ${held.share}`) : null,
        held.note ? el("div", { class: "soft" }, `“${plain(held.note)}”`) : null)),
      cell("Token", String(held.token)), cell("For", age(held.since)), cell("Time left", ttlBar(held)),
      session.allow_evict ? cell("Act", el("button", { type: "button", on: { click: () => evict(lock, held) } }, "Put out …")) : null))))
    : el("p", {}, "Nobody."));
  told.push(el("h3", {}, lock.waiters.length ? `In line: ${lock.waiters.length}` : "In line"));
  told.push(lock.waiters.length ? el("ol", {}, ...lock.waiters.slice(0, 100).map((one) =>
    el("li", {}, plain(one.owner), one.share ? ` (${one.share})` : "", ", for ", age(one.since)))) : el("p", {}, "Nobody."));
  const out = lock.eviction;
  if (out) told.push(el("p", { class: "soft" }, "Last put out by force: ", plain(out.owner), ` with token ${out.evicted_token}, `, age(out.at),
    " ago, by ", plain(out.by), `. Token ${out.token} outranks it.`));
  return told;
}

function pastOf(events, lock) {
  const end = now(), bars = [], waits = [], marks = [], holds = [], waited = [], waiting = new Map();
  for (const one of events) {
    if (one.event === "over") { bars.push([one.owner, one.at - one.seconds, one.at]); holds.push(one.seconds); }
    else if (one.event === "waiting") waiting.set(one.owner, one.at - one.seconds);
    else if (one.event === "evicted") marks.push([one.owner, one.at]);
    if ((one.event === "acquired" || one.event === "left the line") && waiting.has(one.owner)) {
      const from = waiting.get(one.owner);
      waiting.delete(one.owner);
      waits.push([one.owner, from, one.at]);
      if (one.event === "acquired") waited.push(Math.max(0, one.at - one.seconds - from));
    }
  }
  if (lock) {
    for (const held of lock.holders) bars.push([held.owner, held.since, end]);
    for (const one of lock.waiters) waits.push([one.owner, one.since, end]);
  }
  const earliest = [...bars, ...waits, ...marks].reduce((least, one) => Math.min(least, one[1]), end);
  const span = Math.min(HOUR, Math.max(120, end - earliest)), start = end - span;
  const owners = [...new Set([...bars, ...waits, ...marks].filter((one) => (one[2] || one[1]) > start).map((one) => one[0]))].slice(-14);
  const told = [el("h3", {}, "The last hour")];
  if (!owners.length) return [...told, el("p", {}, "Nothing was seen.")];
  const width = 900, left = 240, height = owners.length * 24 + 26, x = (at) => left + (Math.max(0, at - start) / span) * (width - left - 10);
  const label = `Who held it when: ${bars.length} holds and ${waits.length} waits, ${marks.length} put out by force`;
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (let part = 0; part <= 4; part += 1) {
    const at = x(start + (span * part) / 4);
    picture.append(svg("line", { x1: at, x2: at, y1: 0, y2: height - 20, class: "grid" }));
    picture.append(svg("text", { x: at, y: height - 5, "text-anchor": part === 4 ? "end" : "middle", class: "soft" },
      part === 4 ? "now" : `−${ago((span * (4 - part)) / 4)}`));
  }
  const box = (kind, [owner, from, to], thick) => {
    const lane = owners.indexOf(owner);
    if (lane < 0 || to < start) return;
    picture.append(svg("rect", { x: x(from), width: Math.max(2, x(to) - x(from)), y: lane * 24 + (24 - thick) / 2, height: thick, class: kind, rx: 2 }));
  };
  owners.forEach((owner, lane) => {
    const text = plain(owner);
    picture.append(svg("text", { x: 0, y: lane * 24 + 16 }, text.length > 34 ? `…${text.slice(-33)}` : text));
  });
  for (const one of waits) box("wait", one, 6);
  for (const one of bars) box("held", one, 14);
  for (const [owner, at] of marks) {
    const lane = owners.indexOf(owner);
    if (lane >= 0 && at > start) picture.append(svg("line", { x1: x(at), x2: x(at), y1: lane * 24 + 1, y2: lane * 24 + 23, class: "out" }));
  }
  told.push(el("div", { class: "figure", tabindex: "0", role: "group", "aria-label": "Timeline" }, picture));
  told.push(el("p", { class: "soft" }, "Green: inside. Grey: in line. Red: put out by force."));
  told.push(el("div", { class: "pair" }, histogram("How long it was held", holds), histogram("How long was waited", waited)));
  return told;
}

const STEPS = [0.1, 1, 10, 60, 600, 3600, Infinity], NAMES = ["< 0.1 s", "< 1 s", "< 10 s", "< 1 min", "< 10 min", "< 1 h", "longer"];

function histogram(title, values) {
  const counts = STEPS.map(() => 0);
  for (const one of values) counts[STEPS.findIndex((step) => one < step)] += 1;
  const most = Math.max(1, ...counts), picture = svg("svg", { width: 300, height: 7 * 20, viewBox: "0 0 300 140", role: "img",
    "aria-label": `${title}: ${NAMES.map((name, at) => `${name} ${counts[at]}`).join(", ")}` });
  counts.forEach((count, at) => {
    picture.append(svg("text", { x: 62, y: at * 20 + 14, "text-anchor": "end", class: "soft" }, NAMES[at]));
    picture.append(svg("rect", { x: 70, y: at * 20 + 4, width: (count / most) * 190, height: 12, class: "held", rx: 2 }));
    if (count) picture.append(svg("text", { x: 74 + (count / most) * 190, y: at * 20 + 14 }, String(count)));
  });
  return el("div", {}, el("h3", {}, title), values.length ? el("div", { class: "figure" }, picture) : el("p", { class: "soft" }, "Not seen yet."));
}

// ---- putting somebody out

function evict(lock, held) {
  const dialog = byId("evict"), typed = byId("evict-typed"), go = byId("evict-go"), said = byId("evict-said");
  typed.value = ""; said.textContent = ""; go.disabled = true;
  byId("evict-what").replaceChildren(
    el("p", {}, "This puts out ", el("strong", {}, plain(held.owner)), ", which has held ", el("strong", {}, plain(lock.name)), " for ",
      ago(now() - held.since), ` with token ${held.token}. If that grant is over by then, nothing happens.`),
    el("p", {}, "It is told at its next renewal. Only storage that checks tokens can stop what it writes until then.",
      lock.waiters.length ? ` Next in line is ${plain(lock.waiters[0].owner)}.` : ""));
  typed.oninput = () => { go.disabled = typed.value !== lock.name; };
  byId("evict-cancel").onclick = () => dialog.close();
  byId("evict-form").onsubmit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      const done = await act("api/evict", { store: lock.store, name: lock.name, token: held.token, typed: typed.value });
      if (done.released) dialog.close(); else said.textContent = "Nobody holds that token any more: nothing was done.";
    } catch (error) { said.textContent = error.message; }
  };
  dialog.showModal();
  typed.focus();
}

// ---- who waits for whom

function graph(main) {
  const place = el("div", {});
  main.replaceChildren(el("h2", {}, "Who waits for whom"), place);
  let asked = false, last = "";
  const live = async () => {
    if (asked) return;
    asked = true;
    try {
      const told = await ask("api/graph"), text = JSON.stringify(told);
      if (text !== last && current.view === "graph") { last = text; place.replaceChildren(...told.flatMap(drawGraph)); }
    } finally { asked = false; }
  };
  live();
  return live;
}

const sentence = (edge) => el("span", {}, plain(edge.waiter), " waits for ", el("strong", {}, plain(edge.name)), " of ", plain(edge.holder));

function drawGraph({ store, edges, deadlocks }) {
  const told = stores.size > 1 ? [el("h3", {}, store)] : [];
  if (!edges.length) return [...told, el("p", {}, "Nobody waits.")];
  const stuck = new Set(deadlocks.flat().map((edge) => JSON.stringify(edge)));
  for (const cycle of deadlocks) {
    told.push(el("p", {}, el("span", { class: "badge deadlock" }, "deadlock"),
      ...cycle.flatMap((edge, at) => [at ? ", " : "", sentence(edge)]), ". None of them can go on until one is put out or gives up."));
  }
  const some = [...edges].sort((a, b) => stuck.has(JSON.stringify(b)) - stuck.has(JSON.stringify(a))).slice(0, 60);
  const depth = new Map();
  for (const edge of some) { depth.set(edge.waiter, 0); depth.set(edge.holder, 0); }
  for (let round = 0; round < 6; round += 1) {
    for (const edge of some) if (depth.get(edge.waiter) <= depth.get(edge.holder)) depth.set(edge.waiter, Math.min(6, depth.get(edge.holder) + 1));
  }
  const columns = [...new Set(depth.values())].sort((a, b) => b - a), places = new Map(), filled = columns.map(() => 0);
  for (const [owner, deep] of depth) {
    const column = columns.indexOf(deep);
    places.set(owner, [80 + column * 330, 20 + filled[column] * 74 + (column % 2) * 37]);
    filled[column] += 1;
  }
  const width = columns.length * 330 + 120, height = Math.max(...filled) * 74 + 60;
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${depth.size} owners, ${some.length} waits, ${deadlocks.length} deadlocks; listed below` });
  for (const edge of some) {
    const bad = stuck.has(JSON.stringify(edge)) ? " stuck" : "", [fromX, fromY] = places.get(edge.waiter), [toX, toY] = places.get(edge.holder);
    const line = edgeLine(fromX, fromY + 17, toX, toY + 17);
    picture.append(svg("path", { d: line.path, class: `edge${bad}` }), svg("polygon", { points: line.tip, class: `head${bad}` }));
    picture.append(svg("text", { x: line.at[0], y: line.at[1] - 5, "text-anchor": "middle", class: "soft" }, short(edge.name, 16)));
  }
  const bad = new Set(deadlocks.flat().map((edge) => edge.waiter));
  for (const [owner, [x, y]] of places) {
    picture.append(svg("rect", { x, y, width: 220, height: 34, rx: 6, class: `node${bad.has(owner) ? " stuck" : ""}` }));
    picture.append(svg("text", { x: x + 110, y: y + 22, "text-anchor": "middle" }, short(owner, 32)));
  }
  told.push(el("div", { class: "figure", tabindex: "0", role: "group", "aria-label": "Graph" }, picture));
  told.push(el("ul", {}, ...some.map((edge) => el("li", {}, sentence(edge)))));
  if (edges.length > some.length) told.push(el("p", { class: "soft" }, `${edges.length - some.length} more are not drawn.`));
  return told;
}

// Forward to the right, backward to the left; between two of one column around the right side downward, and the left side upward.
function edgeLine(fromX, fromY, toX, toY) {
  const wide = 220, right = toX > fromX || (toX === fromX && toY > fromY), same = toX === fromX;
  const x1 = right ? fromX + wide : fromX, x2 = right === same ? toX + wide + 7 : toX - 7, pull = same ? 55 : 50;
  const c1 = right ? x1 + pull : x1 - pull, c2 = right === same ? x2 + pull : x2 - pull, tip = right === same ? -7 : 7;
  return {
    path: `M ${x1} ${fromY} C ${c1} ${fromY} ${c2} ${toY} ${x2} ${toY}`,
    tip: `${x2},${toY - 5} ${x2 + tip},${toY} ${x2},${toY + 5}`,
    at: [(x1 + 3 * c1 + 3 * c2 + x2) / 8, (fromY + toY) / 2],
  };
}

function short(text, most) {
  text = plain(text);
  return text.length > most ? `${text.slice(0, most / 2 - 1)}…${text.slice(-most / 2)}` : text;
}

// ---- stores

const TRAITS = [["system", "kind"], ["scope", "exclusion reaches"], ["fenced", "tokens"], ["fair", "first come, first served"], ["bell", "wakes the next in line"],
  ["durable", "durable"], ["clock", "clock"], ["survives", "survives"], ["min_ttl", "shortest ttl, s"], ["max_ttl", "longest ttl, s"]];

function storeView(main) {
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

// ---- history

function history(main, asked) {
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
ask("api/session").then((told) => { session = told; }, () => {}).finally(() => { show(); listen(); });
