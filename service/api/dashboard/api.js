// Owns the talk with the service: every answer is kept with its ETag, and asked for again with it. Who asks is known by a cookie.

const SESSION = "/api/v1/session";
const KEPT = 60;
const MOST_PAGES = 10;
let kept = new Map(); // another one when all is forgotten: what is under way then is not kept
let skew = 0, caller = null, isOfBefore = false; // who asks was told before another tab may have logged in

/** An answer that is no success: `status`, the problem's detail as message, its `type`, and after how many seconds to ask again. */
export class Refusal extends Error {
  constructor(status, detail, type = null, retryAfter = 0) {
    super(detail);
    this.status = status;
    this.type = type;
    this.retryAfter = retryAfter;
  }
}

/** There was no answer, or not all of it; every error but these two is a defect of the page. */
export class NoAnswer extends Error {}

/** Tell who asks and what for they may, `{name, scope, csrf_token}`; the last is null where no key is wanted. */
export async function whoAsks() {
  if (caller !== null && !isOfBefore) return caller;
  const mine = kept, found = JSON.parse((await send(SESSION, {})).text);
  if (mine === kept) [caller, isOfBefore] = [found, false];
  return found;
}

/** Log in: the service gives this browser a cookie for a key, which is not kept here. */
export async function logIn(key) {
  forget();
  caller = JSON.parse((await send(SESSION, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ key }) })).text);
}

/** End the session. */
export async function logOut() {
  await change(SESSION, { method: "DELETE" });
  forget();
}

/** Forget all that was answered, and who asked. */
export function forget() {
  caller = null;
  doubt();
}

/** Ask for all anew, also who asks: who was away may come back with another state, whose version, and so its ETag, may be the same. */
export function doubt() {
  kept = new Map();
  isOfBefore = true;
}

/** Tell the service's time in milliseconds: ages are told by its clock, not by the browser's. */
export const now = () => Date.now() + skew;

/** Write a path with its parameters; those that are null or empty are left out. */
export function path(base, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `${base}?${new URLSearchParams(given)}` : base;
}

/** Ask for JSON; the same object comes again while the answer is the same. */
export async function get(url) {
  const mine = kept, known = mine.get(url);
  const { response, text } = await send(url, known ? { headers: { "If-None-Match": known.etag } } : {});
  const etag = response.headers.get("ETag");
  if (response.status === 304 || known?.text === text) {
    known.etag = etag ?? known.etag; // what is the same may have another name by now
    return known.body;
  }
  const entry = { etag, text, body: JSON.parse(text) };
  mine.delete(url);
  if (entry.etag) mine.set(url, entry);
  while (mine.size > KEPT) mine.delete(mine.keys().next().value); // a page left open stays small
  return entry.body;
}

/** Ask for a list, page after page up to a bound; where there are more, the answer has a `next_cursor` still.
 * Where it was found anew between two pages, it is read once more. */
export async function getPages(url) {
  try {
    return await pagesOf(url);
  } catch (error) {
    if (!isFoundAnew(error)) throw error;
    return pagesOf(url);
  }
}

/** Tell whether a page is of a finding behind which there is another. */
export const isFoundAnew = (error) => error.type === "/docs#finding-gone";

async function pagesOf(url) {
  const first = await get(url), items = [...first.items];
  let last = first;
  for (let page = 1; page < MOST_PAGES && last.next_cursor; page += 1) {
    last = await get(`${url}${url.includes("?") ? "&" : "?"}${new URLSearchParams({ cursor: last.next_cursor })}`);
    items.push(...last.items);
  }
  return { ...first, items, next_cursor: last.next_cursor };
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
  const { text } = await change(url, { method: "POST", headers: { "Content-Type": type }, body: body instanceof ArrayBuffer ? body : JSON.stringify(body) });
  return text === "" ? null : JSON.parse(text);
}

/** Take something away. */
export const remove = (url) => change(url, { method: "DELETE" });

/** Send what changes something, with the token that a page of another host cannot have, as the one whom the page shows. */
async function change(url, options) {
  const { name, csrf_token: token } = caller ?? await whoAsks();
  try {
    return await send(url, { ...options, headers: { ...options.headers, ...(token === null ? {} : { "X-CSRF-Token": token }) } });
  } catch (error) {
    const isRefused = error instanceof Refusal && error.type === "/docs#csrf-token-required";
    isOfBefore = true;
    if (!isRefused) throw error;
    const present = await whoAsks();
    if (present.csrf_token === token) throw error;
    if (present.name !== name) throw new Refusal(error.status, `Nothing was done: another tab of this browser has logged in as ${present.name}.`);
    return change(url, options); // another tab has logged in anew
  }
}

async function send(url, options) {
  // What is begun may take long, and is not begun twice; what is asked is asked again.
  const signal = options.method !== undefined ? null : AbortSignal.timeout(30_000);
  let response, text;
  try {
    response = await fetch(url, { ...options, signal, cache: "no-store", redirect: "error" });
    text = await response.text();
  } catch (error) {
    throw new NoAnswer(error.message, { cause: error });
  }
  const date = Date.parse(response.headers.get("Date"));
  if (Number.isFinite(date) && Math.abs(date - now()) > 2000) skew = date - Date.now();
  if (response.ok || response.status === 304) return { response, text };
  throw new Refusal(response.status, ...told(response, text));
}

/** Read what a refusal says; a proxy's may be no JSON. */
function told(response, text) {
  let problem = {};
  try {
    problem = JSON.parse(text);
  } catch {
    // then its status says all that is known
  }
  return [problem.detail ?? `The service answered ${response.status}.`, problem.type, Number(response.headers.get("Retry-After")) || 0];
}
