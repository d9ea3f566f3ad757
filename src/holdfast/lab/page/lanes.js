// A row for each process, the store and the storage: its name with what can be done to it, and its time up to the cursor.
import { byId, el, plain, svg } from "./elements.js";

const HEIGHT = 42;
let rows = new Map();

export function build(tape, doing) {
  const place = byId("lanes");
  place.replaceChildren();
  rows = new Map();
  for (const lane of tape.lanes) {
    const buttons = doing ? doing(lane).map(([sign, told, act]) =>
      el("button", { type: "button", "aria-label": told, title: told, on: { click: act } }, sign)) : [];
    const picture = svg("svg", { role: "img" });
    rows.set(lane, picture);
    place.append(el("div", { class: "lane" }, el("b", {}, plain(lane)), ...buttons), picture);
  }
}

export function draw(tape, at) {
  const length = Math.max(tape.length, 0.001);
  const together = bothOf(tape.spans, at);
  for (const [lane, picture] of rows) {
    const width = picture.clientWidth || 600;
    const x = (moment) => 6 + (moment / length) * (width - 12);
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const parts = [];
    const spans = tape.spans.filter((one) => one.lane === lane && one.since <= at);
    const isProcess = lane !== "store" && lane !== "storage";
    if (isProcess) for (const [since, until] of together) parts.push(box("both", x(since), 0, x(until), HEIGHT));
    for (const kind of ["waits", "holds", "says", "paused", "cut"]) {
      for (const one of spans.filter((span) => span.kind === kind)) parts.push(...span(one, x, at));
    }
    let labelled = -Infinity; // numbers that would stand in each other are left out
    for (const one of tape.events) {
      if (one.lane !== lane || one.at > at) continue;
      parts.push(...mark(one, x));
      if (one.kind === "write" && one.balance !== null && x(one.at) - labelled > 26) {
        labelled = x(one.at);
        parts.push(words(one.balance, labelled - 8, 16));
      }
    }
    parts.push(svg("line", { class: "cursor", x1: x(at), x2: x(at), y1: 0, y2: HEIGHT }));
    picture.setAttribute("aria-label", spoken(lane, spans, at));
    picture.replaceChildren(...parts);
  }
}

function box(kind, left, top, right, height, told) {
  const made = svg("rect", { class: kind, x: left, y: top, width: Math.max(1, right - left), height, rx: kind === "both" ? 0 : 3 });
  if (told) { const title = svg("title", {}); title.textContent = told; made.append(title); }
  return made;
}

function words(text, x, y, kind) {
  const made = svg("text", { x, y, class: kind || "" });
  made.textContent = text;
  return made;
}

function span(one, x, at) {
  const until = one.until === null ? at : Math.min(one.until, at), left = x(one.since), right = x(until);
  if (one.kind === "waits") return [box("waits", left, 26, right, 6, "waits in line")];
  if (one.kind === "holds") return [box("holds", left, 10, right, 22, "believes that it holds the lock"), ...fits(`token ${one.token}`, left, right, 25)];
  if (one.kind === "says") return [box("says", left, 10, right, 22, "what the store says"), ...fits(`${one.about}: token ${one.token}`, left, right, 25)];
  if (one.kind === "paused") return [box("paused", left, 4, right, 34, "paused"), ...fits("paused", left, right, 36)];
  return [box("cut", left, 3, right, 36, one.about || "cut off")];
}

const fits = (text, left, right, y) => (right - left > text.length * 6.6 ? [words(text, left + 5, y)] : []);

function mark(one, x) {
  const at = x(one.at);
  const named = (made) => { const title = svg("title", {}); title.textContent = one.text; made.append(title); return made; };
  if (one.kind === "refused") return cross(at, 21, named);
  if (one.kind === "write") return [named(svg("circle", { class: "mark write", cx: at, cy: 27, r: 5 }))];
  if (one.kind === "read") return [named(svg("circle", { class: "mark", cx: at, cy: 27, r: 4 }))];
  if (one.kind === "renewed") return [named(svg("circle", { class: "mark renewed", cx: at, cy: 6, r: 3 }))];
  if (one.kind === "lost") return [...cross(at, 6, named)];
  if (one.kind === "killed") return cross(at, 21, named);
  if (one.kind === "clock") return [named(words("clock", at + 8, 9, "told"))];
  if (one.kind === "failover") return [named(words("failed over", at + 8, 9, "told"))];
  if (one.kind === "down") return [named(words("node down", at + 8, 9, "told"))];
  if (one.kind === "forget") return [named(words("forgot", at + 8, 9, "told"))];
  return [];
}

function cross(at, y, named) {
  const arm = 5;
  return [named(svg("path", { class: "cross", d: `M${at - arm} ${y - arm}L${at + arm} ${y + arm}M${at - arm} ${y + arm}L${at + arm} ${y - arm}` }))];
}

// The times in which two believe that they hold the lock.
function bothOf(spans, at) {
  const moments = spans.filter((one) => one.kind === "holds" && one.since <= at)
    .flatMap((one) => [[one.since, 1], [one.until === null ? at : Math.min(one.until, at), -1]])
    .sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  const found = [];
  let inside = 0, since = 0;
  for (const [moment, change] of moments) {
    if (inside > 1 && moment > since) found.push([since, moment]);
    inside += change;
    since = moment;
  }
  return found;
}

function spoken(lane, spans, at) {
  const now = spans.filter((one) => one.until === null || one.until > at).map((one) =>
    ({ holds: `believes that it holds the lock, token ${one.token}`, waits: "waits in line", paused: "is paused", cut: "is cut off",
       says: `says that ${one.about} holds it, token ${one.token}` })[one.kind]);
  return `${lane}, at ${at.toFixed(2)} s: ${now.join(", ") || "nothing"}`;
}
