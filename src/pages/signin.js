// The sign-in page: shows a code, follows its ticket, and goes on to the client's page with the token.

const page = document.getElementById("signin");
const pass = document.getElementById("pass");
const code = document.getElementById("code");
const number = document.getElementById("number");
const scanner = document.getElementById("scanner");
const status = document.getElementById("status");
const clock = document.getElementById("clock");
const ring = document.getElementById("left");
const renew = document.getElementById("renew");
const redirect = document.getElementById("redirect");
const redirectWord = document.getElementById("redirect-word");
const problem = document.getElementById("problem");
const pretend = document.getElementById("pretend");
const words = page.dataset;
const home = words.home;

/** How long the server may hold a poll, in seconds; it refuses more. */
const LONGEST_WAIT = 25;
/** What a request may take beyond that before the connection counts as dead. */
const PATIENCE = 10;
/** The server's clock decides when a ticket is over: it gets this long to say so itself. */
const GRACE = 2;
const LONGEST_PAUSE = 30;

/** An answer that says no, with the server's own sentence. */
class Refusal extends Error {
  constructor(body, answer) {
    super(body.message);
    const after = Number(answer.headers.get("Retry-After"));
    this.again = answer.status === 429 || answer.status === 408 || answer.status >= 500;
    this.after = after > 0 ? Math.min(after, 600) : 0;
  }
}

let round = 0;        // One code, from its request to its end; what an older round still hears is dropped.
let ticket = null;    // { id, seen, ends, lifetime, interval }
let asking = null;    // The request in flight: { control, since, nudged }
let paused = null;    // The pause between two requests: { due, eager, end }
let said = "";        // What the status says, name and sentence.
let tookOver = false; // Whether a code was already replaced without being asked for since the last click.

/** Wall clock, in seconds: the only one that goes on while a laptop sleeps. */
const now = () => Date.now() / 1000;

async function call(path, control, patience) {
  const limit = setTimeout(() => control.abort(), patience * 1000);
  try {
    const answer = await fetch(path, {
      headers: { "Accept-Language": document.documentElement.lang },
      cache: "no-store",
      signal: control.signal,
    });
    const body = await answer.json();
    if (body.code !== 0) throw new Refusal(body, answer);
    return body.data;
  } finally {
    clearTimeout(limit);
  }
}

async function ask(path, patience = PATIENCE) {
  const mine = { control: new AbortController(), since: now(), nudged: false };
  asking = mine;
  try {
    return await call(path, mine.control, patience);
  } catch (fault) {
    fault.nudged = mine.nudged;
    throw fault;
  } finally {
    if (asking === mine) asking = null;
  }
}

/** Waits. An eager pause ends early when there is reason to hope. */
function pause(seconds, eager) {
  return new Promise((resolve) => {
    const mine = { due: now() + seconds, eager, end: () => { clearTimeout(timer); paused = null; resolve(); } };
    const timer = setTimeout(mine.end, seconds * 1000);
    paused = mine;
  });
}

/** Asks until there is an answer. Null: nobody needs it any more. */
async function insist(mine, path, patience) {
  for (let failures = 0; mine === round;) {
    try {
      const data = await ask(path(), patience);
      return mine === round ? data : null;
    } catch (fault) {
      if (mine !== round) return null;
      if (fault.nudged) continue;
      if (fault instanceof Refusal && !fault.again) throw fault;
      const growing = Math.min(LONGEST_PAUSE, 2 ** failures++);
      const refused = fault instanceof Refusal;
      // Many browsers come back at the same moment; not all of them ask in it.
      const rest = refused ? pause(fault.after || growing, false) : pause(growing * (0.75 + Math.random() / 2), true);
      show(refused ? "held" : "lost", refused ? fault.message : words.lost);
      await rest;
    }
  }
  return null;
}

async function start() {
  const mine = ++round;
  quiet();
  ticket = null;
  delete words.code;
  number.textContent = "--";
  code.hidden = true;
  show("loading", words.loading);
  try {
    const issued = await insist(mine, () => "/api/auth/qrcode?" + new URLSearchParams({ client: words.client }));
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
    // Where the platform is simulated there is no phone that could scan.
    if (words.simulated === "yes") pretend.href = issued.qrcode_url;
    words.code = "good";
    show("waiting", words.waiting);
    await follow(mine);
  } catch (fault) {
    if (mine === round) stuck(fault instanceof Refusal ? fault.message : page.getAttribute("data-error-other"));
  }
}

async function follow(mine) {
  const poll = () => {
    const wait = Math.max(1, Math.min(LONGEST_WAIT, Math.ceil(ticket.ends - now())));
    return "/api/auth/scan/status?" + new URLSearchParams({ ticket: ticket.id, wait, seen: ticket.seen });
  };
  while (mine === round) {
    const asked = now();
    const answer = await insist(mine, poll, LONGEST_WAIT + PATIENCE);
    if (!answer) return;
    if (answer.status === "expired") return over();
    if (answer.status === "confirmed") {
      round++;
      scanner.textContent = answer.name || scanner.textContent;
      show("confirmed", words.done);
      location.replace(home + "#token=" + encodeURIComponent(answer.token) + "&token_type=Bearer");
      return;
    }
    const moved = answer.status !== ticket.seen;
    ticket.seen = answer.status;
    if (answer.status === "scanned") {
      scanner.textContent = answer.name || "";
      show("scanned", words.scanned, answer.name || "");
    } else {
      show("waiting", words.waiting);
    }
    // A server that does not hold polls would otherwise be asked without end.
    if (!moved && now() - asked < 1) await pause(ticket.interval, true);
  }
}

/** Puts a state on the screen. The same sentence is not said twice: screen readers would repeat it.
    The name lies over the code for the eye, and goes into the sentence for the ear. */
function show(state, sentence, name = "") {
  words.state = state;
  if (said !== name + sentence) {
    said = name + sentence;
    const spoken = document.createElement("span");
    spoken.className = "unseen";
    spoken.textContent = name && name + ": ";
    status.replaceChildren(spoken, sentence);
  }
  renew.hidden = state !== "expired" && state !== "stuck";
  renew.textContent = state === "stuck" ? words.again : words.renew;
  if (state === "loading" || state === "waiting" || state === "expired") scanner.textContent = "";
  tick();
}

function over() {
  round++;
  quiet();
  ticket = null;
  delete words.code;
  show("expired", words.expired);
}

function stuck(sentence) {
  round++;
  quiet();
  ticket = null;
  delete words.code;
  show("stuck", sentence);
}

/** Ends what is in flight and what waits, so that there is never a second poll. */
function quiet() {
  if (asking) asking.control.abort();
  if (paused) paused.end();
}

/** Time is drawn and never spoken. */
function tick() {
  if (ticket && ticket.ends + GRACE <= now()) return ended();
  const state = words.state;
  let text = "";
  if (state === "held" && paused) {
    text = words.seconds.replace("%", Math.max(1, Math.ceil(paused.due - now())));
  } else if (ticket && (state === "waiting" || state === "scanned")) {
    const left = Math.max(0, Math.ceil(ticket.ends - now()));
    text = Math.floor(left / 60) + ":" + String(left % 60).padStart(2, "0");
    ring.style.strokeDashoffset = 100 - (100 * left) / ticket.lifetime;
  } else {
    ring.style.strokeDashoffset = "";
  }
  if (clock.textContent !== text) clock.textContent = text;
}

/** An unattended page asks for no new code. One that ended while there was no connection is replaced, once: that was not the person's doing. */
function ended() {
  if (words.state === "lost" && !document.hidden && !tookOver) {
    tookOver = true;
    start();
  } else {
    over();
  }
}

/** The page is looked at again, or the network is back: what is shown must be true now. */
function nudge() {
  if (document.hidden) return;
  tick();
  if (paused && (paused.eager || paused.due <= now())) paused.end();
  // A request that slept with the machine may never be answered.
  if (asking && ticket && now() - asking.since > 5) {
    asking.nudged = true;
    asking.control.abort();
  }
}

function tell(sentence) {
  problem.textContent = sentence;
  problem.hidden = !sentence;
}

/** Another page may have left a word in the fragment. Only words that this page knows become text. */
function readFragment() {
  const word = new URLSearchParams(location.hash.slice(1)).get("error");
  if (word === null) return;
  const known = /^[a-z_]{1,40}$/.test(word) && page.getAttribute("data-error-" + word);
  tell(known || page.getAttribute("data-error-other"));
  history.replaceState(null, "", location.pathname + location.search);
}

function redirecting(busy) {
  redirect.setAttribute("aria-busy", String(busy));
  redirectWord.textContent = busy ? words.redirecting : words.redirect;
}

redirect.addEventListener("click", async () => {
  if (redirect.getAttribute("aria-busy") === "true") return;
  redirecting(true);
  tell("");
  try {
    const path = "/api/auth/oauth2/url?" + new URLSearchParams({ redirect_uri: home });
    location.assign((await call(path, new AbortController(), PATIENCE)).authorize_url);
  } catch (fault) {
    redirecting(false);
    tell(fault instanceof Refusal ? fault.message : words.offline);
  }
});

renew.addEventListener("click", () => {
  tookOver = false;
  // The button goes; whoever used the keyboard stays with the code.
  pass.focus({ preventScroll: true });
  start();
});

document.addEventListener("visibilitychange", nudge);
window.addEventListener("online", nudge);
// A held request would be waited for, and the person with it.
window.addEventListener("offline", () => asking && asking.control.abort());
window.addEventListener("hashchange", readFragment);
window.addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  redirecting(false);
  nudge();
});
setInterval(tick, 1000);
readFragment();
start();
