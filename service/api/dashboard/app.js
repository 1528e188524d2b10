// Owns the shell: which view is shown, when it is asked again, and what is said when the service does not answer.

import { doubt, forget, logIn, logOut, NoAnswer, Refusal, whoAsks } from "./api.js";
import { h, patch } from "./dom.js";
import { plain, tick } from "./format.js";
import { audits } from "./audits.js";
import { coefficients } from "./coefficients.js";
import { corpora } from "./corpora.js";
import { deadLetters } from "./dead_letters.js";
import { foreignKeys } from "./foreign_keys.js";
import { graph } from "./graph.js";
import { joinable } from "./joinable.js";
import { keep, kept } from "./kept.js";
import { overview } from "./overview.js";
import { pair } from "./pair.js";
import { isLive, listen, stop } from "./stream.js";
import { timeline } from "./timeline.js";
import { watches } from "./watches.js";

const VIEWS = { "": overview, timeline, graph, coefficients, "foreign-keys": foreignKeys, corpora, joinable, watches, audits, "dead-letters": deadLetters, pair };
const LINKS = Object.keys(VIEWS).filter((name) => VIEWS[name].under === undefined);
const SECONDS = 2, LONGEST = 15;
const LIVE_SECONDS = 6, LEAST_MS = 500; // between two questions: when news come by themselves, and when they come fast
const BUSY = [408, 429], LONGEST_REST = 600; // seconds; statuses of a service that may be asked again
const SAID_MS = 60_000;
const SCHEME = "subsetd-colours";

const main = document.getElementById("main");
const link = document.getElementById("link");
const edition = document.getElementById("version");
const pause = document.getElementById("pause");
const dialog = document.getElementById("key-dialog");
const who = document.getElementById("who");
const leave = document.getElementById("leave");
let turn = 0, timer = 0, failures = 0, shown = null, said = null, greeted = null;
let asked = 0, isAsking = false, isStale = false, isPaused = false;
let isUnsure = false; // another state may have come to this address, while it did not answer or nobody looked
let restsUntil = 0; // the service has said when it may be asked again

/** Read the address: `#/view?name=value`. */
function address() {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: Object.hasOwn(VIEWS, name) ? name : "", parameters: Object.fromEntries(new URLSearchParams(query)) };
}

/** Show the view of the address, and go on asking for what it shows. */
function open() {
  const { name } = address();
  const view = VIEWS[name];
  document.title = `${view.title} – subsetd`;
  patch(document.getElementById("nav"), LINKS.map((one) =>
    h("a", { href: `#/${one}`, "aria-current": one === (view.under ?? name) && "page" }, VIEWS[one].title)));
  if (shown !== null && shown !== name) {
    patch(main, [h("p.muted", {}, "Loading …")]);
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  shown = name;
  said = null;
  refresh();
}

/** Do what a button is for, tell what became of it, and show how it is now. */
async function act(work, done = null) {
  const { hash } = location, by = greeted;
  try {
    await work();
    if (location.hash === hash && greeted === by) said = done && message("good", "status", done); // else it would be told of another
  } catch (error) {
    if (greeted === by) said = message("bad", "alert", error instanceof NoAnswer ? "The service did not answer; whether it was done is not known." : worded(error));
  }
  await refresh();
}

const message = (level, role, text) => ({ level, role, text, until: performance.now() + SAID_MS });

/** Make the place of messages, which is there without any: what stands below is not made anew when one comes or goes. */
function messages(failure = null) {
  if (said && performance.now() > said.until) said = null;
  return h("div", { "data-key": "said" }, said && h(`p.notice.${said.level}`, { role: said.role, "data-key": said.role }, said.text), failure);
}

/** Ask for all that the view shows, show it, and come again; a view that was left meanwhile shows nothing. */
async function refresh() {
  const mine = ++turn;
  clearTimeout(timer);
  if (dialog.open || document.hidden) return rest();
  if (isUnsure) doubt();
  isUnsure = isPaused;
  [asked, isAsking, isStale] = [performance.now(), true, false];
  const { name, parameters } = address();
  const view = VIEWS[name];
  try {
    const answers = await view.load(parameters);
    if (mine !== turn) return;
    failures = 0;
    if (!isPaused) listen(hear, () => { isUnsure = true; });
    const caller = await whoAsks();
    if (mine !== turn) return;
    if (greet(caller)) return refresh();
    const version = parameters.corpus ? undefined : Object.values(answers).find(isOfState)?.version; // a corpus has generations
    say(isPaused ? "idle" : "good", isPaused ? "paused" : "live", version === undefined ? "" : `, version ${plain(version)}`);
    patch(main, [messages(), view.show(answers, parameters, act)]);
  } catch (error) {
    if (mine !== turn) return;
    if (error instanceof Refusal && error.status === 401) return askForKey();
    failures += 1;
    isUnsure ||= !(error instanceof Refusal && error.status < 500);
    restsUntil = performance.now() + Math.min(error.retryAfter ?? 0, LONGEST_REST) * 1000;
    tell(error);
  }
  isAsking = false;
  const seconds = isLive() && view.isOfVersion ? LIVE_SECONDS : view.seconds ?? SECONDS;
  if (!isPaused) askIn(isStale ? view.leastMs ?? LEAST_MS : Math.min(seconds * 2 ** failures, LONGEST) * 1000);
}

/** Tell whether an answer's version is the state's: of a finding it is the one that was looked into. */
const isOfState = (answer) => answer?.version !== undefined && answer.refresh_id === undefined;

/** Neither ask nor listen. */
function rest() {
  clearTimeout(timer);
  stop();
  isUnsure = true;
}

function askIn(milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(refresh, Math.max(milliseconds, restsUntil - performance.now()));
}

/** Ask soon, as there is a new version; what is being asked is first waited for, or it would never be shown. */
function hear() {
  if (isAsking) isStale = true;
  else askIn(Math.max(asked + (VIEWS[shown].leastMs ?? LEAST_MS) - performance.now(), 0));
}

/** Put in words what went wrong: who looks must not wait for a service that is there. */
function worded(error) {
  if (error instanceof Refusal) return error.message;
  if (error instanceof NoAnswer) return `The service does not answer. ${ofBefore()}`;
  console.error(error);
  return `The service answers, but this page cannot show it, which is a defect of the page: ${error.message}`;
}

const ofBefore = () => `What is shown is of before${isPaused ? "." : "; this page goes on by itself when it can."}`;

function tell(error) {
  const isRefused = error instanceof Refusal && error.status < 500, isBusy = isRefused && BUSY.includes(error.status);
  say("bad", isBusy ? "busy" : error instanceof Refusal ? "refused" : error instanceof NoAnswer ? "not connected" : "defect");
  const notice = h("p.notice.bad", { role: "alert", "data-key": "failure" }, worded(error), isBusy && ` ${ofBefore()}`);
  if (isRefused && !isBusy) patch(main, [h("h1", {}, VIEWS[address().name].title), notice]);
  else if (main.firstElementChild?.dataset.key === "said") patch(main.firstElementChild, [...messages(notice).childNodes]);
  else main.prepend(messages(notice));
}

/** Say how the page stands; a version, which comes again and again, is not read aloud. */
function say(level, text, version = "") {
  link.className = `link ${level}`;
  patch(document.getElementById("standing"), [text]);
  patch(edition, [version]);
}

/** Say who is logged in, and let them leave; where no key is wanted, nobody is. Tell whether it was another before. */
function greet({ name, scope, csrf_token: token }) {
  const isAnother = greeted !== null && greeted !== name;
  if (isAnother) forgetWhatWasAsked(); // another tab has logged in
  greeted = name;
  who.hidden = leave.hidden = token === null;
  who.textContent = token === null ? "" : `${name}: ${scope}`;
  return isAnother;
}

function forgetWhatWasAsked() {
  forget();
  for (const one of document.querySelectorAll("dialog[open]")) if (one !== dialog) one.close(""); // a question to who was here before
  for (const view of Object.values(VIEWS)) view.forget?.();
}

function askForKey() {
  forgetWhatWasAsked();
  said = greeted = null;
  stop();
  who.hidden = leave.hidden = true;
  say("bad", "key wanted");
  patch(main, [h("p.muted", {}, "Nothing is shown without the key.")]);
  if (!dialog.open) dialog.showModal();
}

document.getElementById("key-form").onsubmit = async (event) => {
  event.preventDefault();
  const field = document.getElementById("key"), fault = document.getElementById("key-fault");
  try {
    await logIn(field.value);
    fault.textContent = "";
    dialog.close();
  } catch (error) {
    fault.textContent = error instanceof Refusal ? error.message : "The service does not answer.";
  }
  field.value = "";
};
dialog.addEventListener("close", refresh);
leave.onclick = async () => {
  try {
    await logOut();
  } catch (error) {
    const text = error instanceof NoAnswer ? "The service did not answer; whether you are logged out is not known." : `You are still logged in: ${worded(error)}`;
    if (error.status !== 401) said = message("bad", "alert", text);
  }
  refresh();
};

/** Change nothing of itself until it is wanted again; what is pressed or opened is still shown. */
pause.onclick = () => {
  isPaused = !isPaused;
  pause.textContent = isPaused ? "Resume updates" : "Pause updates";
  if (!isPaused) return refresh();
  rest();
  say("idle", "paused", edition.textContent);
};

const scheme = document.getElementById("scheme");
scheme.value = kept(SCHEME) ?? "light dark";
scheme.onchange = () => {
  keep(SCHEME, scheme.value);
  document.documentElement.style.colorScheme = scheme.value;
};
document.documentElement.style.colorScheme = scheme.value;

addEventListener("hashchange", open);
document.addEventListener("visibilitychange", () => isPaused || refresh());
addEventListener("pagehide", stop);
document.querySelector(".skip").onclick = (event) => {
  event.preventDefault(); // the address names the view
  main.focus();
};
addEventListener("keydown", (event) => {
  if (event.repeat && event.key === "Enter" && event.target.closest?.("a, button")) event.preventDefault(); // held, it is pressed once
});
setInterval(() => isPaused || tick(), 1000);
open();
