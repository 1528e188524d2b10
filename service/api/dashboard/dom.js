// Owns how the page is built: nodes out of names and texts alone, so that no value of the data is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit", "onwheel", "onpointerdown", "onpointermove", "onpointerup", "ondragstart", "onfocus"];
const PRESSES = ["onclick", "onsubmit"];
const KEPT = ["open", "aria-disabled"]; // who has opened it wants it open, and what goes on is not over with a new view

/** Make an element: `h("a.name", { href }, ...children)`; a child is a node, a text, a list of these, or nothing. */
export const h = (name, attributes = {}, ...children) => make((tag) => document.createElement(tag), name, attributes, children);

/** Make an element of SVG. */
export const s = (name, attributes = {}, ...children) => make((tag) => document.createElementNS(SVG, tag), name, attributes, children);

function make(create, name, attributes, children) {
  const [tag, ...classes] = name.split(".");
  const element = create(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes)) {
    if (PRESSES.includes(key)) element[key] = once(value);
    else if (HANDLERS.includes(key)) element[key] = value;
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  append(element, children);
  return element;
}

/** Begin what a press is for, and not again until that is done. The button is not `disabled` meanwhile: it would lose the focus. */
const once = (begin) => async (event) => {
  const pressed = event.submitter ?? event.currentTarget;
  if (pressed.ariaDisabled === "true") return event.preventDefault();
  const going = begin(event);
  if (!(going instanceof Promise)) return;
  pressed.ariaDisabled = "true";
  await going.finally(() => { pressed.ariaDisabled = null; });
};

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(String(child));
  }
}

/** Make the children of `old` those of a list, changing only what differs: focus, scroll and open details stay. */
export function patch(old, children) {
  const wanted = document.createElement("div"), focused = document.activeElement;
  append(wanted, [children]);
  morphChildren(old, wanted);
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true }); // what is moved loses it
}

/** Name children by what they are: a key, or the how-manieth without one; a list that grows has its items still. */
function named(parent) {
  const counts = new Map();
  return new Map([...parent.childNodes].map((node) => {
    const kind = JSON.stringify([node.nodeName, node.dataset?.key]);
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
    return [`${kind} ${counts.get(kind)}`, node];
  }));
}

function morphChildren(old, wanted) {
  const present = named(old), nodes = named(wanted);
  for (const [name, node] of present) if (!nodes.has(name)) node.remove();
  let place = old.firstChild;
  for (const [name, node] of nodes) {
    const mine = present.get(name);
    if (mine) morph(mine, node);
    if (mine === undefined) old.insertBefore(node, place);
    else if (mine === place) place = mine.nextSibling;
    else if (mine === place.nextSibling) { // one has moved down, and not all others up
      old.append(place);
      place = mine.nextSibling;
    } else old.insertBefore(mine, place);
  }
}

function morph(old, node) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== node.data) old.data = node.data;
  } else {
    for (const { name } of [...old.attributes]) {
      if (!node.hasAttribute(name) && !KEPT.includes(name)) old.removeAttribute(name);
    }
    for (const { name, value } of node.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const name of HANDLERS) old[name] = node[name];
    if (old.type === "checkbox") old.checked = node.checked; // what was clicked is said by the view, too
    const chosen = old.nodeName === "SELECT" ? node.querySelector("option[selected]")?.value : undefined;
    morphChildren(old, node);
    if (chosen !== undefined && old.value !== chosen) old.value = chosen; // where the view says it; else it is who looks that says it
  }
}
