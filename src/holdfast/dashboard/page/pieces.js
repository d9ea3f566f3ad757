// The pieces that move, and those that all views have.
import { ago, el, plain, set, short, svg } from "./elements.js";
import { now, page, unseen } from "./state.js";

const LONGEST = 160; // letters of a name, where there are many
const LATELY = 600;

export function age(since) {
  const place = el("span", {});
  const move = (at) => set(place, ago(at - since));
  move(now());
  page.ticks.push(move);
  return place;
}

export function ttlBar(store, holder) {
  const fill = el("i", {}), left = el("span", {});
  const move = (at) => {
    const rest = holder.ends - at, part = holder.ttl > 0 ? Math.min(1, Math.max(0, rest / holder.ttl)) : 0;
    fill.style.transform = `scaleX(${part.toFixed(3)})`;
    const blind = rest > 0 ? unseen(store) : !(page.looked[store] > holder.ends); // it may have been renewed meanwhile
    const kind = blind ? "unseen" : part > 0.5 ? "" : part > 0.25 ? "low" : "out";
    if (fill.className !== kind) fill.className = kind;
    set(left, blind ? "not looked at since" : rest > 0 ? `${ago(rest)} left` : "run out");
  };
  move(now());
  page.ticks.push(move);
  return el("span", { class: "ttl" }, el("span", { class: "bar", "aria-hidden": "true" }, fill), left);
}

export function badges(lock) {
  return lock.attention.map((why) =>
    el("span", { class: `badge ${why === "deadlock" ? "deadlock" : why === "in danger" ? "danger" : ""}` }, why));
}

export const lately = (times, at) => times.filter((one) => at - one < LATELY);

// Drawn once, and moved to the left as time passes: what is over the edge is not seen, nor counted, any more.
export function spark(times) {
  const start = now(), wide = 89 / LATELY, marks = svg("g", {});
  for (const one of lately(times, start)) {
    const x = 89 - (start - one) * wide;
    marks.append(svg("line", { x1: x, x2: x, y1: 2, y2: 14, class: "spark" }));
  }
  const picture = svg("svg", { width: 90, height: 16, role: "img" }, marks);
  let shift = -1;
  const move = (at) => {
    const to = Math.round((at - start) * wide);
    if (to === shift) return;
    shift = to;
    marks.setAttribute("transform", `translate(${-shift} 0)`);
    picture.setAttribute("aria-label", `${lately(times, at).length} acquisitions seen lately`);
  };
  move(start);
  page.ticks.push(move);
  return picture;
}

export const lockLink = (store, name, kind) =>
  el("a", { href: `#/lock?store=${encodeURIComponent(store)}&name=${encodeURIComponent(name)}`, class: kind || "name",
    title: plain(name).length > LONGEST ? plain(name) : null }, short(name, LONGEST));
