// One lock: who is inside, who waits, what happened; and how somebody is put out.
import { ago, byId, el, plain, refill } from "./elements.js";
import { pastOf } from "./past.js";
import { age, badges, ttlBar } from "./pieces.js";
import { act, ask, keyOf, locks, now, page, unknown } from "./state.js";

export function oneLock(main, asked) {
  const store = asked.get("store") || "", name = asked.get("name") || "";
  const top = el("div", {}), past = el("div", {});
  main.replaceChildren(el("h2", {}, plain(name)), el("p", { id: "done", role: "status" }), top, past);
  let version = "", shown = null;
  const live = () => {
    const lock = locks.get(keyOf(store, name)), nobody = unknown(store) || "It is free: nobody holds it, nobody waits.";
    if (shown !== (lock || nobody)) { // other locks change all the time
      shown = lock || nobody;
      page.ticks = [];
      refill(top, ...(lock ? present(lock) : [el("p", {}, nobody)]));
    }
    const seen = JSON.stringify(lock ? [lock.holders.map((one) => one.token), lock.waiters.length] : 0);
    if (seen !== version) { version = seen; before(); }
  };
  async function before() {
    const told = await ask(`api/history?most=2000&store=${encodeURIComponent(store)}&name=${encodeURIComponent(name)}`).catch(() => null);
    if (told && page.current.view === "lock") refill(past, ...pastOf(told.events.reverse(), locks.get(keyOf(store, name))));
  }
  live();
  // Refusals and losses are told by processes, and change nothing in the store.
  const timer = setInterval(() => { if (main.contains(past)) before(); else clearInterval(timer); }, 3000);
  return live;
}

function present(lock) {
  const about = [lock.store, lock.kind === "semaphore" ? `semaphore, ${lock.used} of ${lock.capacity} units` : lock.kind].join(" · ");
  const told = [el("p", {}, ...badges(lock), el("span", { class: "soft" }, about))];
  const cell = (label, ...inside) => el("td", { "data-label": label }, ...inside);
  const heads = (...names) => el("thead", {}, el("tr", {}, ...names.map((one) => el("th", { scope: "col" }, one))));
  told.push(el("h3", {}, "Inside"));
  told.push(lock.holders.length ? el("table", { class: "cards holders" }, heads("Owner", "Token", "For", "Time left", ...(page.session.allow_evict ? ["Act"] : [])),
    el("tbody", {}, ...lock.holders.map((held) => el("tr", {},
      cell("Owner", el("span", {}, plain(held.owner), held.share ? el("span", { class: "soft" }, ` ${held.share}`) : null,
        held.note ? el("div", { class: "soft" }, `“${plain(held.note)}”`) : null)),
      cell("Token", String(held.token)), cell("For", age(held.since)), cell("Time left", ttlBar(lock.store, held)),
      page.session.allow_evict ? cell("Act", el("button", { type: "button", "data-key": `out ${held.token}`, on: { click: () => evict(lock, held) } }, "Put out …")) : null))))
    : el("p", {}, "Nobody."));
  told.push(el("h3", {}, lock.waiters.length ? `In line: ${lock.waiters.length}` : "In line"));
  told.push(lock.waiters.length ? el("ol", {}, ...lock.waiters.slice(0, 100).map((one) =>
    el("li", {}, plain(one.owner), one.share ? ` (${one.share})` : "", ", for ", age(one.since)))) : el("p", {}, "Nobody."));
  const out = lock.eviction;
  if (out) told.push(el("p", { class: "soft" }, "Last put out by force: ", plain(out.owner), ` with token ${out.evicted_token}, `, age(out.at),
    " ago, by ", plain(out.by), `. Token ${out.token} outranks it.`));
  return told;
}

function evict(lock, held) {
  const dialog = byId("evict"), typed = byId("evict-typed"), go = byId("evict-go"), said = byId("evict-said");
  typed.value = ""; said.textContent = ""; go.disabled = true;
  byId("evict-what").replaceChildren(
    el("p", {}, "This puts out ", el("strong", {}, plain(held.owner)), ", which has held ", el("strong", {}, plain(lock.name)), " for ",
      ago(now() - held.since), ` with token ${held.token}. If that grant is over by then, nothing happens.`),
    el("p", {}, "It is told at its next renewal. Only storage that checks tokens can stop what it writes until then.",
      lock.waiters.length ? ` Next in line is ${plain(lock.waiters[0].owner)}.` : ""));
  // What cannot be typed may be typed as it is shown; and an accent is typed as a keyboard makes it.
  typed.oninput = () => { go.disabled = ![lock.name, plain(lock.name)].some((one) => one.normalize() === typed.value.normalize()); };
  byId("evict-cancel").onclick = () => dialog.close();
  dialog.onclose = () => (document.querySelector(`[data-key="out ${held.token}"]`) || byId("main")).focus({ preventScroll: true });
  byId("evict-form").onsubmit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    said.textContent = ""; // of the last time
    try {
      const done = await act("api/evict", { store: lock.store, name: lock.name, token: held.token, typed: lock.name });
      if (done.released) {
        dialog.close();
        byId("done").textContent = `Put out: ${plain(held.owner)}. Token ${done.new_token} outranks ${held.token}.`;
      } else said.textContent = "Nobody holds that token any more: nothing was done.";
    } catch (error) {
      said.textContent = error instanceof TypeError ? "No answer. It is not known whether the holder was put out: look again" : error.message;
    }
    if (dialog.open) typed.focus(); // what was pressed cannot be, for now, and has lost the focus
  };
  dialog.showModal();
  typed.focus();
}
