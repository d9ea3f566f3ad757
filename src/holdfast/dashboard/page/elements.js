// Elements, and words in them. What comes from a store reaches the page as text only (textContent, setAttribute of harmless
// attributes), never as HTML.

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((one) => one !== null && one !== undefined));
  return made;
}

export function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function ago(seconds) {
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

// What a person can read of any name: control characters and marks that turn the direction are shown, not obeyed; so are blanks
// that a page would leave out, or that are none of the keyboard's.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}]|[^\S ]|^ | $|(?<= ) /gu;
export const plain = (text) => String(text).replace(HIDDEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

export function short(text, most) {
  text = plain(text);
  return text.length > most ? `${text.slice(0, most / 2 - 1)}…${text.slice(-most / 2)}` : text;
}

const keyed = (place) => [...place.querySelectorAll("[data-key]")];

// In the place of what was there: whoever had the focus, or had scrolled, goes on where they were, by the key.
export function refill(place, ...children) {
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const scrolled = new Map(keyed(place).filter((one) => one.scrollLeft).map((one) => [one.dataset.key, one.scrollLeft]));
  place.replaceChildren(...children);
  for (const one of keyed(place)) {
    if (scrolled.has(one.dataset.key)) one.scrollLeft = scrolled.get(one.dataset.key);
    if (focused !== undefined && one.dataset.key === focused) one.focus({ preventScroll: true });
  }
}

// Only what is not where it belongs is moved.
export function arrange(body, rows) {
  const wanted = new Set(rows);
  for (const old of [...body.children]) if (!wanted.has(old)) old.remove();
  rows.forEach((one, at) => { if (body.children[at] !== one) body.insertBefore(one, body.children[at] || null); });
}

export function set(place, text) {
  if (place.told !== text) { place.told = text; place.textContent = text; }
}
