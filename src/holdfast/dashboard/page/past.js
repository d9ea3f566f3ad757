// What happened to one lock, as a timeline and two histograms.
import { ago, byId, el, plain, svg } from "./elements.js";
import { now } from "./state.js";

const HOUR = 3600;

export function pastOf(events, lock) {
  const end = now(), bars = [], waits = [], marks = [], holds = [], waited = [], harm = [], waiting = new Map();
  for (const one of events) {
    if (one.event === "over") { bars.push([one.owner, one.at - one.seconds, one.at]); holds.push(one.seconds); }
    else if (one.event === "waiting") waiting.set(one.owner, one.at - one.seconds);
    else if (one.event === "evicted") marks.push([one.owner, one.at]);
    if (one.event === "refused" || one.event === "lost") { marks.push([one.owner, one.at]); harm.push(one); }
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
  const width = byId("main").clientWidth - 24, wide = width > 600, left = wide ? 240 : 116, letters = wide ? 34 : 16, parts = wide ? 4 : 2;
  const height = owners.length * 24 + 26, x = (at) => left + (Math.max(0, at - start) / span) * (width - left - 10);
  const label = `Who held it when: ${bars.length} holds and ${waits.length} waits, ${marks.length} put out by force`;
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (let part = 0; part <= parts; part += 1) {
    const at = x(start + (span * part) / parts);
    picture.append(svg("line", { x1: at, x2: at, y1: 0, y2: height - 20, class: "grid" }));
    picture.append(svg("text", { x: at, y: height - 5, "text-anchor": part === parts ? "end" : "middle", class: "soft" },
      part === parts ? "now" : `−${ago((span * (parts - part)) / parts)}`));
  }
  const box = (kind, [owner, from, to], thick) => {
    const lane = owners.indexOf(owner);
    if (lane < 0 || to < start) return;
    picture.append(svg("rect", { x: x(from), width: Math.max(2, x(to) - x(from)), y: lane * 24 + (24 - thick) / 2, height: thick, class: kind, rx: 2 }));
  };
  owners.forEach((owner, lane) => {
    const text = plain(owner);
    picture.append(svg("text", { x: 0, y: lane * 24 + 16 }, text.length > letters ? `…${text.slice(1 - letters)}` : text));
  });
  for (const one of waits) box("wait", one, 6);
  for (const one of bars) box("held", one, 14);
  for (const [owner, at] of marks) {
    const lane = owners.indexOf(owner);
    if (lane >= 0 && at > start) picture.append(svg("line", { x1: x(at), x2: x(at), y1: lane * 24 + 1, y2: lane * 24 + 23, class: "out" }));
  }
  told.push(el("div", { class: "figure", tabindex: "0", role: "group", "aria-label": "Timeline", "data-key": "timeline" }, picture));
  told.push(el("p", { class: "soft" }, "Green: inside. Grey: in line. Red: put out by force, lost, or refused by the storage."));
  if (harm.length) {
    const refused = harm.filter((one) => one.event === "refused").length;
    told.push(el("h3", {}, `Refused by the storage: ${refused}; lost: ${harm.length - refused}`));
    told.push(el("ul", {}, ...harm.slice(-20).reverse().map((one) =>
      el("li", {}, `${one.event} ${ago(end - one.at)} ago: ${plain(one.owner)}${one.token ? ` with token ${one.token}` : ""}. ${plain(one.detail)}`))));
  }
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
