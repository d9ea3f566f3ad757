// Who waits for whom.
import { el, plain, refill, short, svg } from "./elements.js";
import { ask, page, stores, unknown } from "./state.js";

export function graph(main) {
  const place = el("div", {});
  main.replaceChildren(el("h2", {}, "Who waits for whom"), place);
  let asked = false, told = [], last = "";
  const live = async () => {
    if (asked) return;
    asked = true;
    try { told = await ask("api/graph"); } catch { /* it is asked again; and whether nobody waits is not known meanwhile */ }
    asked = false;
    const text = JSON.stringify([told, told.map((one) => unknown(one.store))]);
    if (text !== last && page.current.view === "graph") { last = text; refill(place, ...told.flatMap(drawGraph)); }
  };
  live();
  return live;
}

const sentence = (edge) => el("span", {}, plain(edge.waiter), " waits for ", el("strong", {}, plain(edge.name)), " of ", plain(edge.holder));

function drawGraph({ store, edges, waits, deadlocks }) {
  const told = stores.size > 1 ? [el("h3", {}, store)] : [];
  if (!edges.length) return [...told, el("p", {}, unknown(store) || "Nobody waits.")];
  const stuck = new Set(deadlocks.flat().map((edge) => JSON.stringify(edge)));
  for (const cycle of deadlocks) {
    told.push(el("p", {}, el("span", { class: "badge deadlock" }, "deadlock"),
      ...cycle.flatMap((edge, at) => [at ? ", " : "", sentence(edge)]), ". None of them can go on until one is put out or gives up."));
  }
  const depth = new Map();
  for (const edge of edges) { depth.set(edge.waiter, 0); depth.set(edge.holder, 0); }
  for (let round = 0; round < 6; round += 1) {
    for (const edge of edges) if (depth.get(edge.waiter) <= depth.get(edge.holder)) depth.set(edge.waiter, Math.min(6, depth.get(edge.holder) + 1));
  }
  const columns = [...new Set(depth.values())].sort((a, b) => b - a), places = new Map(), filled = columns.map(() => 0);
  for (const [owner, deep] of depth) {
    const column = columns.indexOf(deep);
    places.set(owner, [80 + column * 330, 20 + filled[column] * 74 + (column % 2) * 37]);
    filled[column] += 1;
  }
  const width = columns.length * 330 + 120, height = Math.max(...filled) * 74 + (columns.length > 1 ? 37 : 0);
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${depth.size} owners, ${edges.length} waits, ${deadlocks.length} deadlocks; listed below` });
  for (const edge of edges) {
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
  told.push(el("div", { class: "figure", tabindex: "0", role: "group", "aria-label": "Graph", "data-key": `graph ${store}` }, picture));
  told.push(el("ul", {}, ...edges.map((edge) => el("li", {}, sentence(edge)))));
  if (waits > edges.length) told.push(el("p", { class: "soft" }, `${waits - edges.length} more are not drawn.`));
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
