// Chooses a run, asks for it, shows it.
import { asked, fresh, goTo, note, read } from "./address.js";
import { byId, el, plain } from "./elements.js";
import { build, draw } from "./lanes.js";
import { Player } from "./player.js";

const SECONDS = 2; // a pause or a cut by a click
const CLOCK = 30;
const LAG = 0.5;
let table, words, tape, before = null, drawnEvents = -1, loads = 0;

const player = new Player(moved, stepBack);

async function question(path) {
  const answer = await fetch(path);
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error || answer.statusText);
  return said;
}

// ---- choosing

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, told]) => el("option", { value, selected: value === chosen }, told)));
}

function showChoices() {
  const scenario = table.scenarios[words.scenario];
  fill(byId("scenario"), Object.entries(table.scenarios).map(([key, one]) => [key, one.title]), words.scenario);
  fill(byId("store"), scenario.stores.map((key) => [key, table.stores[key].title]), words.store);
  fill(byId("fence"), [["none", "never"], ["writes", "on writes only"], ["all", "on reads and writes"]], words.fence);
  for (const one of ["checks", "fair", "bells"]) byId(one).checked = words[one] === "yes";
  for (const label of document.querySelectorAll("[data-setting]")) label.hidden = !scenario.asks.includes(label.dataset.setting);
  byId("seed").value = words.seed;
  byId("what").textContent = scenario.what;
  const helped = scenario.asks.every((one) => words[one] === scenario.helps[one]);
  byId("helps").textContent = helped && before ? "As it was" : "What would have helped?";
  byId("helps").disabled = helped && !before;
  byId("why").textContent = helped ? scenario.why : "";
}

function choose(changes, at) {
  before = changes.keep ? before : null;
  delete changes.keep;
  goTo({ ...words, ...changes }, at === undefined ? player.at : at);
}

byId("choices").addEventListener("submit", (event) => event.preventDefault());
byId("scenario").addEventListener("change", (event) => { before = null; goTo(fresh(table, event.target.value), 0); });
byId("store").addEventListener("change", (event) => choose({ store: event.target.value }, 0));
byId("fence").addEventListener("change", (event) => choose({ fence: event.target.value }));
for (const one of ["checks", "fair", "bells"]) {
  byId(one).addEventListener("change", (event) => choose({ [one]: event.target.checked ? "yes" : "no" }));
}
byId("seed").addEventListener("change", (event) => choose({ seed: String(Math.max(0, Math.floor(Number(event.target.value) || 0))) }));
byId("helps").addEventListener("click", help);

function help() {
  const scenario = table.scenarios[words.scenario];
  if (before) { const back = before; before = null; goTo({ ...words, ...back }, player.at); return; }
  if (byId("helps").disabled) return;
  before = Object.fromEntries(scenario.asks.map((one) => [one, words[one]]));
  choose({ ...Object.fromEntries(scenario.asks.map((one) => [one, scenario.helps[one]])), keep: true }, tape.length);
}

// ---- striking

function strike(kind, who, seconds) {
  player.stop();
  choose({ do: [words.do, `${kind}:${who}:${player.at.toFixed(3)}:${seconds}`].filter(Boolean).join(",") });
}

function doing(lane) {
  const can = table.stores[words.store].can, found = [];
  if (lane === "storage") return [];
  if (can.includes("down") && lane === "store") {
    return [["down", `Take node3 down for ${SECONDS} s now`, () => strike("down", "node3", SECONDS)],
      ["forget", "Let node2 forget everything now", () => strike("forget", "node2", 0)]];
  }
  found.push(["pause", `Pause ${lane} for ${SECONDS} s now`, () => strike("pause", lane, SECONDS)]);
  if (lane === "store") {
    if (can.includes("clock")) found.push(["clock", `Set the store's clock forward by ${CLOCK} s now`, () => strike("clock", lane, CLOCK)]);
    if (can.includes("forget")) found.push(["forget", "Let the store forget everything now", () => strike("forget", lane, 0)]);
    if (can.includes("failover")) found.push(["fail", `Fail over to a replica that is ${LAG} s behind now`, () => strike("failover", lane, LAG)]);
    if (can.includes("depose")) found.push(["depose", `Cut the store's leader off from the other members for ${SECONDS} s now`, () => strike("depose", lane, SECONDS)]);
    return found;
  }
  if (can.includes("cut")) found.push(["cut", `Cut ${lane} off from the store for ${SECONDS} s now`, () => strike("cut", `${lane}-store`, SECONDS)]);
  found.push(["kill", `Kill ${lane} now`, () => strike("kill", lane, 0)]);
  return found;
}

function showStrikes() {
  byId("strikes").replaceChildren(...tape.strikes.map((one) => el("li", {}, `${one.at.toFixed(2)} s: ${one.told}`,
    el("button", { type: "button", "aria-label": `Without this: ${one.told}`, title: "Without this", on: { click: () => without(one.word) } }, "×"))));
}

function without(word) {
  const left = tape.strikes.map((one) => one.word);
  left.splice(left.indexOf(word), 1);
  choose({ do: left.join(",") });
}

// ---- showing

function moved(at, playing) {
  draw(tape, at);
  const seen = tape.events.filter((one) => one.at <= at);
  if (seen.length !== drawnEvents) { drawnEvents = seen.length; story(seen); showBalance(seen); }
  if (!playing && words) note(words, at);
}

function story(seen) {
  byId("story").replaceChildren(...seen.slice(-200).reverse().map((one) => el("li", { class: one.kind.replace(/\W/g, "-") },
    el("button", { type: "button", on: { click: () => player.go(one.at) } },
      el("span", {}, `${one.at.toFixed(3)} s`), el("span", {}, plain(one.text))))));
}

function showBalance(seen) {
  const last = seen.findLast((one) => one.balance !== null);
  const out = tape.outcome;
  const rows = [...(words ? [["Balance now", last ? last.balance : 0]] : []), ["At the end", out.balance], ["Acknowledged", out.acknowledged],
    ["Refused by the storage", out.refused], ["Two believed to hold it for", `${out.both.toFixed(2)} s`]];
  if (out.longest_wait !== undefined) rows.push(["Longest wait", `${out.longest_wait.toFixed(2)} s`], ["Times that the store was asked", out.questions]);
  byId("outcome").replaceChildren(...rows.flatMap(([what, value]) => [el("dt", {}, what), el("dd", {}, String(value))]));
  const verdict = byId("verdict");
  verdict.className = out.lost ? "lost" : "kept";
  verdict.textContent = out.lost ? `${out.lost} was acknowledged, and is gone.` : "Nothing that was acknowledged is lost.";
}

async function stepBack(to) {
  if (!words) { player.show(to); return; }
  try {
    const again = await question(`api/run?${asked(words, to)}`);
    const same = JSON.stringify(again.events) === JSON.stringify(tape.events.slice(0, again.events.length));
    byId("status").textContent = same
      ? `Run again from seed ${words.seed} up to ${to.toFixed(3)} s: the same ${again.events.length} events.`
      : "Run again, it was not the same: that is a defect of holdfast. Please report the address of this page.";
    player.show(to);
  } catch (error) {
    byId("trouble").textContent = error.message;
  }
}

async function load() {
  const asking = read(table), number = ++loads;
  try {
    const told = await question(`api/run?${asked(asking.words)}`);
    if (number !== loads) return; // another one was chosen meanwhile
    const sameLanes = tape && words && JSON.stringify([words.scenario, words.store]) === JSON.stringify([asking.words.scenario, asking.words.store]);
    words = asking.words;
    tape = told;
    drawnEvents = -1;
    byId("trouble").textContent = "";
    byId("status").textContent = `Seed ${words.seed}: ${told.events.length} events, ${told.digest}.`;
    showChoices();
    if (!sameLanes) build(tape, doing);
    showStrikes();
    player.take(tape, asking.at);
    byId("main").dataset.run = asked(words);
  } catch (error) {
    byId("trouble").textContent = error.message;
    if (!tape) { words = fresh(table, asking.words.scenario); showChoices(); byId("helps").disabled = true; } // something to choose from
  }
}

async function open() {
  table = await question("api/table");
  if (table.record && location.hash.length < 2) return openRecord();
  addEventListener("hashchange", load);
  return load();
}

async function openRecord() {
  tape = await question("api/record");
  byId("choices").hidden = true;
  byId("helps").hidden = true;
  byId("what").textContent = `A record of holdfast verify, of the lock that was written to most, ${plain(tape.name)}: ` +
    Object.entries(tape.about).map(([key, value]) => `${key} ${plain(value)}`).join(", ");
  build(tape, null);
  player.take(tape, 0);
}

addEventListener("resize", () => { if (tape) draw(tape, player.at); });
addEventListener("keydown", (event) => {
  if (!tape || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const onButton = event.target.matches("button");
  const act = { ArrowLeft: () => player.back(), ArrowRight: () => player.forward(), Home: () => player.go(0), End: () => player.go(tape.length),
    " ": onButton ? null : () => player.toggle(), h: help }[event.key];
  if (act) { event.preventDefault(); act(); }
});

open().catch((error) => { byId("trouble").textContent = error.message; });
