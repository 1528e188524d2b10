// Owns the shell: which view is shown, when it is asked again, and what is said when the service does not answer.

import { forget, logIn, logOut, Refusal, whoAsks } from "./api.js";
import { h, patch } from "./dom.js";
import { number, tick } from "./format.js";
import { audits } from "./audits.js";
import { coefficients } from "./coefficients.js";
import { corpora } from "./corpora.js";
import { deadLetters } from "./dead_letters.js";
import { foreignKeys } from "./foreign_keys.js";
import { graph } from "./graph.js";
import { joinable } from "./joinable.js";
import { overview } from "./overview.js";
import { pair } from "./pair.js";
import { isLive, listen, stop } from "./stream.js";
import { timeline } from "./timeline.js";
import { watches } from "./watches.js";

const VIEWS = { "": overview, timeline, graph, coefficients, "foreign-keys": foreignKeys, corpora, joinable, watches, audits, "dead-letters": deadLetters, pair };
const LINKS = Object.keys(VIEWS).filter((name) => VIEWS[name].under === undefined);
const SECONDS = 2, LONGEST = 15;
const LIVE_SECONDS = 6, LEAST_MS = 500; // between two questions: when news come by themselves, and when they come fast
const SCHEME = "subsetd-colours";

const main = document.getElementById("main");
const link = document.getElementById("link");
const dialog = document.getElementById("key-dialog");
const who = document.getElementById("who");
const leave = document.getElementById("leave");
let turn = 0, timer = 0, failures = 0, shown = null, said = null;
let asked = 0, isAsking = false, isStale = false;

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
  try {
    await work();
    said = done && { level: "good", role: "status", text: done };
  } catch (error) {
    if (!(error instanceof Refusal)) console.error(error);
    said = { level: "bad", role: "alert", text: error instanceof Refusal ? error.message : "The service did not answer; whether it was done is not known." };
  }
  refresh();
}

/** Make the place of messages, which is there without any: what stands below is not made anew when one comes or goes. */
const messages = (failure = null) => h("div", { "data-key": "said" }, said && h(`p.notice.${said.level}`, { role: said.role, "data-key": said.role }, said.text), failure);

/** Ask for all that the view shows, show it, and come again; a view that was left meanwhile shows nothing. */
async function refresh() {
  const mine = ++turn;
  clearTimeout(timer);
  if (dialog.open || document.hidden) return stop();
  [asked, isAsking, isStale] = [performance.now(), true, false];
  const { name, parameters } = address();
  const view = VIEWS[name];
  try {
    const answers = await view.load(parameters);
    if (mine !== turn) return;
    failures = 0;
    listen(hear);
    greet(await whoAsks());
    if (mine !== turn) return;
    const version = Object.values(answers).find((one) => one !== null && "version" in one)?.version;
    say("good", version === undefined ? "live" : `live, version ${number(version)}`);
    patch(main, [messages(), view.show(answers, parameters, act)]);
  } catch (error) {
    if (mine !== turn) return;
    if (error instanceof Refusal && error.status === 401) return askForKey();
    failures += 1;
    tell(error);
  }
  isAsking = false;
  const seconds = isLive() && view.isOfVersion ? LIVE_SECONDS : view.seconds ?? SECONDS;
  timer = setTimeout(refresh, isStale ? view.leastMs ?? LEAST_MS : Math.min(seconds * 2 ** failures, LONGEST) * 1000);
}

/** Ask soon, as there is a new version; what is being asked is first waited for, or it would never be shown. */
function hear() {
  if (isAsking) isStale = true;
  else {
    clearTimeout(timer);
    timer = setTimeout(refresh, Math.max(asked + (VIEWS[shown].leastMs ?? LEAST_MS) - performance.now(), 0));
  }
}

function tell(error) {
  const answered = error instanceof Refusal;
  say("bad", answered ? "refused" : "not connected");
  const notice = h("p.notice.bad", { role: "alert", "data-key": "failure" },
    answered ? error.message : "The service does not answer. What is shown is of before; this page goes on by itself when it is back.");
  if (answered && error.status < 500) patch(main, [h("h1", {}, VIEWS[address().name].title), notice]);
  else if (main.firstElementChild?.dataset.key === "said") patch(main.firstElementChild, [...messages(notice).childNodes]);
  else main.prepend(messages(notice));
}

function say(level, text) {
  link.className = `link ${level}`;
  if (link.textContent !== text) link.textContent = text;
}

/** Say who is logged in, and let them leave; where no key is wanted, nobody is. */
function greet({ name, scope, csrf_token: token }) {
  who.hidden = leave.hidden = token === null;
  who.textContent = token === null ? "" : `${name}: ${scope}`;
}

function askForKey() {
  forget();
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
    if (!(error instanceof Refusal)) return tell(error); // who could not be logged out is not told so
  }
  refresh();
};

const scheme = document.getElementById("scheme");
scheme.value = localStorage.getItem(SCHEME) ?? "light dark";
scheme.onchange = () => {
  localStorage.setItem(SCHEME, scheme.value);
  document.documentElement.style.colorScheme = scheme.value;
};
document.documentElement.style.colorScheme = scheme.value;

addEventListener("hashchange", open);
document.addEventListener("visibilitychange", refresh);
addEventListener("pagehide", stop);
document.querySelector(".skip").onclick = (event) => {
  event.preventDefault(); // the address names the view
  main.focus();
};
setInterval(tick, 1000);
open();
