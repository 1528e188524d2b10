// Owns the talk with the service: every answer is kept with its ETag, and asked for again with it.

const KEY = "subsetd-key";
const KEPT = 60;
const kept = new Map();
let skew = 0;

/** An answer that is no success: `status`, and the problem's detail as message. */
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const setKey = (key) => sessionStorage.setItem(KEY, key);
export const forgetKey = () => {
  sessionStorage.removeItem(KEY);
  kept.clear();
};

/** Tell the service's time in milliseconds: ages are told by its clock, not by the browser's. */
export const now = () => Date.now() + skew;

/** Write a path with its parameters; those that are null or empty are left out. */
export function path(base, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `${base}?${new URLSearchParams(given)}` : base;
}

/** Ask for JSON; the same object comes again while the answer is the same. */
export async function get(url) {
  const known = kept.get(url);
  const response = await send(url, known ? { headers: { "If-None-Match": known.etag } } : {});
  if (response.status === 304) return known.body;
  const text = await response.text();
  if (known?.text === text) return known.body;
  const entry = { etag: response.headers.get("ETag"), text, body: JSON.parse(text) };
  kept.delete(url);
  if (entry.etag) kept.set(url, entry);
  while (kept.size > KEPT) kept.delete(kept.keys().next().value); // a page left open stays small
  return entry.body;
}

/** Ask for several at once: give an object of answers for one of addresses. */
export async function getAll(urls) {
  return Object.fromEntries(await Promise.all(Object.entries(urls).map(async ([name, url]) => [name, await get(url)])));
}

/** Ask for what may not be there: it is null then. */
export async function getIfThere(url) {
  try {
    return await get(url);
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) return null;
    throw error;
  }
}

/** Send JSON, or bytes of another type, and give what is answered. */
export async function post(url, body, type = "application/json") {
  const response = await send(url, { method: "POST", headers: { "Content-Type": type }, body: body instanceof ArrayBuffer ? body : JSON.stringify(body) });
  return response.status === 204 ? null : response.json();
}

async function send(url, options) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key === null ? {} : { Authorization: `Bearer ${key}` }) };
  // What is begun may take long, and is not begun twice; what is asked is asked again.
  const signal = options.method === "POST" ? null : AbortSignal.timeout(30_000);
  const response = await fetch(url, { ...options, headers, signal, cache: "no-store", redirect: "error" });
  const date = Date.parse(response.headers.get("Date"));
  if (Number.isFinite(date) && Math.abs(date - now()) > 2000) skew = date - Date.now();
  if (response.ok || response.status === 304) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Refusal(response.status, problem.detail ?? `The service answered ${response.status}.`);
}
