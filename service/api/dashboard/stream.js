// Owns the stream of transitions: while it is open the page hears of a new version at once, and asks less often.

const URL = "/api/v1/stream";
let source = null;

/** Tell whether news come by themselves. */
export const isLive = () => source !== null && source.readyState === EventSource.OPEN;

/** Open the stream where it is allowed, unless it is open; `hear` is called for each event, `lose` when it was open and is cut. */
export function listen(hear, lose) {
  if (source !== null && source.readyState !== EventSource.CLOSED) return;
  source = new EventSource(URL); // it comes back by itself, with the id of the last event
  let wasOpen = false;
  source.addEventListener("open", () => { wasOpen = true; });
  source.addEventListener("error", () => {
    if (wasOpen) lose();
    wasOpen = false;
  });
  source.addEventListener("version", hear);
  source.addEventListener("transitions", hear);
}

/** Close it: who does not look needs no line of their own, of which a browser has six. */
export function stop() {
  source?.close();
  source = null;
}
