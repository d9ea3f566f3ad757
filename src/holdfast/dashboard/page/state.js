// What the server has told, what is shown of it, and how to ask for more.

export const stores = new Map(), locks = new Map();
const REDRAW = 250;
let drawn = 0, pending = 0;

// What the views set: whom to call at every tick, the view that is shown, this visitor's session, our clock against the server's.
export const page = { ticks: [], current: { view: "", live: null }, session: { allow_evict: false, csrf: "", header: "" }, skew: 0 };

export const now = () => Date.now() / 1000 + page.skew;
export const keyOf = (store, name) => JSON.stringify([store, name]);

// Why the absence of a lock means nothing here; "" if it means that the lock is free.
export function unknown(store) {
  const one = stores.get(store);
  if (!one) return stores.size ? "There is no such store here." : "Nothing is known yet.";
  if (one.error) return "Not known: the store does not answer.";
  if (!one.system) return "Not known yet: the store is being asked.";
  return one.partly ? "Not known: more names are in use than are looked at." : "";
}

export async function ask(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (answer.status === 401) location.assign("login");
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

export async function act(path, body) {
  page.session = await ask("api/session");
  const answer = await fetch(path, {
    method: "POST", credentials: "same-origin", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", [page.session.header]: page.session.csrf },
  });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error || `${answer.status}`);
  return said;
}

export function redraw() {
  if (pending) return;
  pending = setTimeout(() => { pending = 0; drawn = performance.now(); if (page.current.live) page.current.live(); },
    Math.max(0, REDRAW - (performance.now() - drawn)));
}
