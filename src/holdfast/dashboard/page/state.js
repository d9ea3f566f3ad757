// What the server has told, what is shown of it, and how to ask for more.

export const stores = new Map(), locks = new Map();
const REDRAW = 250;
const PRESS = 10000; // at most: a release outside of the window may not be heard
let drawn = 0, pending = 0, pressed = -PRESS;

// A click is a press and a release on one element: what may be pressed is not made anew meanwhile.
addEventListener("pointerdown", () => { pressed = performance.now(); }, true);
for (const over of ["pointerup", "pointercancel"]) addEventListener(over, () => { pressed = -PRESS; }, true);

// What the views set: whom to call at every tick, the view that is shown, this visitor's session, our clock against the server's;
// and whether the server is heard at all, and when it last looked at each store.
export const page = { ticks: [], current: { view: "", live: null }, session: { allow_evict: false, csrf: "", header: "" }, skew: 0,
  away: false, looked: {} };

export const now = () => Date.now() / 1000 + page.skew;
export const keyOf = (store, name) => JSON.stringify([store, name]);

// Why the absence of a lock means nothing here; "" if it means that the lock is free.
export function unknown(store) {
  const one = stores.get(store);
  if (page.away) return "Not known: the dashboard does not answer.";
  if (!one) return stores.size ? "There is no such store here." : "Nothing is known yet.";
  if (one.error) return "Not known: the store does not answer.";
  if (!one.system) return "Not known yet: the store is being asked.";
  if (old(store)) return `Not known: the store was last looked at more than ${old(store)} ago.`;
  return one.partly ? "Not known: more names are in use than are looked at." : "";
}

// A look takes long where there are thousands of names and the store is far away; "" if the last one is new enough.
const OLD = [[3600, "an hour"], [600, "10 min"], [120, "2 min"], [30, "30 s"], [10, "10 s"]];
export function old(store) {
  const one = stores.get(store) || {}, seconds = now() - (page.looked[store] ?? one.since) - (one.every || 0);
  return (OLD.find(([least]) => seconds > least) || [0, ""])[1];
}

// What is shown of it goes on by itself, and nobody has looked lately.
export const unseen = (store) => page.away || Boolean((stores.get(store) || {}).error || old(store));

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
  let said;
  try { said = await answer.json(); } catch { throw new TypeError(`${answer.status}`); } // of somebody in between, or cut off
  if (!answer.ok) throw new Error(said.error || `${answer.status}`);
  return said;
}

export function redraw() {
  if (pending) return;
  pending = setTimeout(() => {
    pending = 0;
    if (performance.now() - pressed < PRESS) { redraw(); return; }
    drawn = performance.now();
    if (page.current.live) page.current.live();
  }, Math.max(20, REDRAW - (performance.now() - drawn)));
}
