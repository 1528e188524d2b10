// Owns what the browser keeps of who looks: where it keeps nothing, the page does for as long as it is open.

const here = new Map();

/** Give what was kept under a name, or null. */
export function kept(name) {
  if (here.has(name)) return here.get(name);
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // it may be forbidden to ask for it
  }
}

export function keep(name, text) {
  try {
    localStorage.setItem(name, text);
  } catch {
    here.set(name, text);
  }
}
