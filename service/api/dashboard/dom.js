// Owns how the page is built: nodes out of names and texts alone, so that no value of the data is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit", "onwheel", "onpointerdown", "onpointermove", "onpointerup", "ondragstart", "onfocus"];

/** Make an element: `h("a.name", { href }, ...children)`; a child is a node, a text, a list of these, or nothing. */
export const h = (name, attributes = {}, ...children) => make((tag) => document.createElement(tag), name, attributes, children);

/** Make an element of SVG. */
export const s = (name, attributes = {}, ...children) => make((tag) => document.createElementNS(SVG, tag), name, attributes, children);

function make(create, name, attributes, children) {
  const [tag, ...classes] = name.split(".");
  const element = create(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes)) {
    if (HANDLERS.includes(key)) element[key] = value;
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(String(child));
  }
}

/** Make the children of `old` those of a list, changing only what differs: focus, scroll and open details stay. */
export function patch(old, children) {
  const wanted = document.createElement("div");
  append(wanted, [children]);
  morphChildren(old, wanted);
}

function morphChildren(old, wanted) {
  const nodes = [...wanted.childNodes];
  while (old.childNodes.length > nodes.length) old.lastChild.remove();
  nodes.forEach((node, i) => {
    const present = old.childNodes[i];
    if (!present) old.append(node);
    else morph(present, node);
  });
}

function morph(old, node) {
  if (old.nodeName !== node.nodeName || old.dataset?.key !== node.dataset?.key) {
    old.replaceWith(node);
  } else if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== node.data) old.data = node.data;
  } else {
    for (const { name } of [...old.attributes]) {
      if (!node.hasAttribute(name) && name !== "open") old.removeAttribute(name); // who has opened it wants it open
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
