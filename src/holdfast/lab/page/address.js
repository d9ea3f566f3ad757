// The run that is looked at is the address of the page: scenario, store, settings, seed, strikes, moment.
const SETTINGS = ["fence", "checks", "fair", "bells"];

export function read(table) {
  const said = new URLSearchParams(location.hash.slice(1));
  const key = Object.hasOwn(table.scenarios, said.get("scenario")) ? said.get("scenario") : Object.keys(table.scenarios)[0];
  const scenario = table.scenarios[key];
  const words = { scenario: key, store: said.get("store") || scenario.stores[0], seed: said.get("seed") || "1" };
  for (const one of SETTINGS) words[one] = said.get(one) || scenario.start[one];
  words.do = said.has("do") ? said.get("do") : scenario.strikes.join(",");
  const at = Number.parseFloat(said.get("at"));
  return { words, at: Number.isFinite(at) ? at : 0 };
}

export const asked = (words, to) => new URLSearchParams(to === undefined ? words : { ...words, to: String(to) }).toString();

// Commas and colons need no escape in a fragment, and a person may want to read it.
const written = (words, at) =>
  `#${new URLSearchParams({ ...words, at: at.toFixed(3) }).toString().replaceAll("%2C", ",").replaceAll("%3A", ":")}`;

export const goTo = (words, at) => { location.hash = written(words, at); };
export const note = (words, at) => history.replaceState(null, "", written(words, at));
export const fresh = (table, key) => {
  const scenario = table.scenarios[key];
  return { scenario: key, store: scenario.stores[0], seed: "1", ...scenario.start, do: scenario.strikes.join(",") };
};
