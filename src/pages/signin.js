// The sign-in page: shows a QR code, polls its ticket and redirects to the client with the token.

const page = document.getElementById("signin");
const card = document.getElementById("ticket");
const code = document.getElementById("code");
const number = document.getElementById("number");
const scanner = document.getElementById("scanner");
const status = document.getElementById("status");
const clock = document.getElementById("clock");
const ring = document.getElementById("left");
const renew = document.getElementById("renew");
const redirect = document.getElementById("redirect");
const redirectLabel = document.getElementById("redirect-label");
const problem = document.getElementById("problem");
const simulate = document.getElementById("pretend"); // null unless the platform is simulated
const texts = page.dataset;
const home = texts.home;

/** The longest long poll that the server accepts, in seconds. */
const LONG_POLL = 25;
/** Timeout of a request, in seconds; a long poll adds its own wait. */
const REQUEST_TIMEOUT = 10;
/** Seconds after its end at which the page itself expires a ticket, if the server has not done so by then. */
const EXPIRY_GRACE = 2;
/** The longest pause between retries, in seconds. */
const MAX_BACKOFF = 30;

/** An error response, with the server's message. */
class ErrorResponse extends Error {
  constructor(envelope, response) {
    super(envelope.message);
    const retryAfter = Number(response.headers.get("Retry-After"));
    this.retryable = response.status === 429 || response.status === 408 || response.status >= 500;
    this.retryAfter = retryAfter > 0 ? Math.min(retryAfter, 600) : 0;
  }
}

let round = 0;           // Counts codes. Responses that belong to an older code are dropped.
let ticket = null;       // { id, seen, ends, lifetime, interval }
let inFlight = null;     // The current request: { control, since, restarted }
let paused = null;       // The pause between two requests: { due, eager, end }
let shown = "";          // The name and text that the status shows.
let autoRenewed = false; // Whether an expired code was replaced automatically since the last click.

/** The wall clock, in seconds. Monotonic clocks stop while a laptop sleeps. */
const now = () => Date.now() / 1000;

/** Leaves the mark by which a client on this origin knows that this tab began the sign-in. */
function markBegun() {
  try {
    sessionStorage.setItem("deskgate.sign_in_began", String(Date.now()));
  } catch {
    // Storage is turned off: a client that asks for the mark has none either.
  }
}

/** Fetches JSON and returns the envelope's data. */
async function fetchData(path, control, timeout) {
  const timer = setTimeout(() => control.abort(), timeout * 1000);
  try {
    const response = await fetch(path, {
      headers: { "Accept-Language": document.documentElement.lang },
      cache: "no-store",
      signal: control.signal,
    });
    const envelope = await response.json();
    if (envelope.code !== 0) throw new ErrorResponse(envelope, response);
    return envelope.data;
  } finally {
    clearTimeout(timer);
  }
}

/** Like fetchData, but can be aborted by abortAll() and refresh(). */
async function request(path, timeout = REQUEST_TIMEOUT) {
  const mine = { control: new AbortController(), since: now(), restarted: false };
  inFlight = mine;
  try {
    return await fetchData(path, mine.control, timeout);
  } catch (error) {
    error.restarted = mine.restarted;
    throw error;
  } finally {
    if (inFlight === mine) inFlight = null;
  }
}

/** Waits. An eager pause ends early when the network returns or the page becomes visible. */
function pause(seconds, eager) {
  return new Promise((resolve) => {
    const mine = { due: now() + seconds, eager, end: () => { clearTimeout(timer); paused = null; resolve(); } };
    const timer = setTimeout(mine.end, seconds * 1000);
    paused = mine;
  });
}

/** Retries with backoff until there is a response. Returns null if the page has moved on to another code. */
async function requestWithRetry(mine, path, timeout) {
  for (let failures = 0; mine === round;) {
    try {
      const data = await request(path(), timeout);
      return mine === round ? data : null;
    } catch (error) {
      if (mine !== round) return null;
      if (error.restarted) continue;
      const responded = error instanceof ErrorResponse;
      if (responded && !error.retryable) throw error;
      const backoff = Math.min(MAX_BACKOFF, 2 ** failures++);
      // Jitter: after an outage, many browsers would otherwise retry at the same moment.
      const wait = responded ? pause(error.retryAfter || backoff, false) : pause(backoff * (0.75 + Math.random() / 2), true);
      show(responded ? "held" : "lost", responded ? error.message : texts.lost);
      await wait;
    }
  }
  return null;
}

/** Requests a new code, shows it and polls its ticket. */
async function start() {
  const mine = ++round;
  abortAll();
  ticket = null;
  delete texts.code;
  number.textContent = "--";
  code.hidden = true;
  show("loading", texts.loading);
  try {
    const issued = await requestWithRetry(mine, () => "/api/auth/qrcode?" + new URLSearchParams({ client: texts.client }));
    if (!issued) return;
    ticket = {
      id: issued.ticket,
      seen: "waiting",
      ends: now() + issued.expires_in,
      lifetime: issued.expires_in,
      interval: issued.poll_interval,
    };
    code.src = "data:image/png;base64," + issued.qrcode_png_base64;
    code.hidden = false;
    number.textContent = issued.number;
    if (simulate) simulate.href = issued.qrcode_url;
    texts.code = "valid";
    show("waiting", texts.waiting);
    await poll(mine);
  } catch (error) {
    if (mine === round) end("failed", error instanceof ErrorResponse ? error.message : page.getAttribute("data-error-other"));
  }
}

/** Polls the ticket until it is confirmed or expired. */
async function poll(mine) {
  const path = () => {
    const wait = Math.max(1, Math.min(LONG_POLL, Math.ceil(ticket.ends - now())));
    return "/api/auth/scan/status?" + new URLSearchParams({ ticket: ticket.id, wait, seen: ticket.seen });
  };
  while (mine === round) {
    const started = now();
    const scan = await requestWithRetry(mine, path, LONG_POLL + REQUEST_TIMEOUT);
    if (!scan) return;
    if (scan.status === "expired") {
      const reasons = { cancelled: texts.cancelled, refused: texts.refused };
      return end("expired", reasons[scan.reason] || texts.expired);
    }
    if (scan.status === "confirmed") {
      round++;
      scanner.textContent = scan.name || scanner.textContent;
      show("confirmed", texts.done);
      markBegun();
      location.replace(home + "#token=" + encodeURIComponent(scan.token) + "&token_type=Bearer");
      return;
    }
    const changed = scan.status !== ticket.seen;
    ticket.seen = scan.status;
    if (scan.status === "scanned") {
      scanner.textContent = scan.name || "";
      show("scanned", texts.scanned, scan.name || "");
    } else {
      show("waiting", texts.waiting);
    }
    // The server responds at once when it has too many long polls: keep the poll interval then.
    if (!changed && now() - started < 1) await pause(ticket.interval, true);
  }
}

/** Shows a state. Does not rewrite an unchanged status, because screen readers would repeat it.
    The name is drawn over the code, and is in the status for screen readers only. */
function show(state, text, name = "") {
  texts.state = state;
  if (shown !== name + text) {
    shown = name + text;
    const spoken = document.createElement("span");
    spoken.className = "visually-hidden";
    spoken.textContent = name && name + ": ";
    status.replaceChildren(spoken, text);
  }
  renew.hidden = state !== "expired" && state !== "failed";
  renew.textContent = state === "failed" ? texts.again : texts.renew;
  if (state === "loading" || state === "waiting" || state === "expired") scanner.textContent = "";
  tick();
}

/** Discards the ticket and stops polling. */
function end(state, text) {
  round++;
  abortAll();
  ticket = null;
  delete texts.code;
  show(state, text);
}

/** Aborts the request in flight and ends the pause, so that there are never two polls at once. */
function abortAll() {
  if (inFlight) inFlight.control.abort();
  if (paused) paused.end();
}

/** Updates the countdown, which screen readers do not announce. */
function tick() {
  if (ticket && ticket.ends + EXPIRY_GRACE <= now()) return expire();
  const state = texts.state;
  let text = "";
  if (state === "held" && paused) {
    text = texts.seconds.replace("{seconds}", Math.max(1, Math.ceil(paused.due - now())));
  } else if (ticket && (state === "waiting" || state === "scanned")) {
    const left = Math.max(0, Math.ceil(ticket.ends - now()));
    text = Math.floor(left / 60) + ":" + String(left % 60).padStart(2, "0");
    ring.style.strokeDashoffset = 100 - (100 * left) / ticket.lifetime;
  } else {
    ring.style.strokeDashoffset = "";
  }
  if (clock.textContent !== text) clock.textContent = text;
}

/** Expires the ticket. A code that expired while the page was offline is replaced once without a click; an
    unattended page does not keep requesting codes. */
function expire() {
  if (texts.state === "lost" && !document.hidden && !autoRenewed) {
    autoRenewed = true;
    start();
  } else {
    end("expired", texts.expired);
  }
}

/** Brings the page up to date when it becomes visible or the network returns. */
function refresh() {
  if (document.hidden) return;
  tick();
  if (paused && (paused.eager || paused.due <= now())) paused.end();
  // A request that was in flight while the machine slept may never get a response: restart it.
  if (inFlight && ticket && now() - inFlight.since > 5) {
    inFlight.restarted = true;
    inFlight.control.abort();
  }
}

function showProblem(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

/** Shows the error word that a redirect left in the fragment. Unknown words are never shown as text. */
function readFragment() {
  const word = new URLSearchParams(location.hash.slice(1)).get("error");
  if (word === null) return;
  const known = /^[a-z_]{1,40}$/.test(word) && page.getAttribute("data-error-" + word);
  showProblem(known || page.getAttribute("data-error-other"));
  history.replaceState(null, "", location.pathname + location.search);
}

function setRedirecting(busy) {
  redirect.setAttribute("aria-busy", String(busy));
  redirectLabel.textContent = busy ? texts.redirecting : texts.redirect;
}

redirect.addEventListener("click", async () => {
  if (redirect.getAttribute("aria-busy") === "true") return;
  setRedirecting(true);
  showProblem("");
  try {
    const path = "/api/auth/oauth2/url?" + new URLSearchParams({ redirect_uri: home });
    const { authorize_url } = await fetchData(path, new AbortController(), REQUEST_TIMEOUT);
    markBegun();
    location.assign(authorize_url);
  } catch (error) {
    setRedirecting(false);
    showProblem(error instanceof ErrorResponse ? error.message : texts.offline);
  }
});

renew.addEventListener("click", () => {
  autoRenewed = false;
  // The button disappears: keep the keyboard focus near the code.
  card.focus({ preventScroll: true });
  start();
});

document.addEventListener("visibilitychange", refresh);
window.addEventListener("online", refresh);
// Some browsers keep a long poll pending after the network is gone.
window.addEventListener("offline", () => inFlight && inFlight.control.abort());
window.addEventListener("hashchange", readFragment);
window.addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  setRedirecting(false);
  refresh();
});
setInterval(tick, 1000);
readFragment();
start();
