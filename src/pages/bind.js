// The bind page: posts the employee ID, waits until an administrator has approved the link, and redirects to the client
// with the token.

const page = document.getElementById("bind");
const lead = document.getElementById("lead");
const form = document.getElementById("form");
const employee = document.getElementById("employee_id");
const company = document.getElementById("corp_id");
const submit = document.getElementById("submit");
const submitLabel = document.getElementById("submit-label");
const problem = document.getElementById("problem");
const waiting = document.getElementById("waiting");
const waitingTitle = document.getElementById("waiting-title");
const waitingText = document.getElementById("waiting-text");
const status = document.getElementById("status");
const texts = page.dataset;

/** Request timeout, in seconds. */
const REQUEST_TIMEOUT = 20;

/** Seconds between two questions whether the link is approved. */
const POLL_INTERVAL = 3;

/** The timer of the next poll; null while the page does not wait. */
let poll = null;

function showProblem(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

function setBusy(busy) {
  submit.setAttribute("aria-busy", String(busy));
  submitLabel.textContent = busy ? texts.busy : texts.submit;
  status.textContent = busy ? texts.busy : "";
  employee.readOnly = company.readOnly = busy;
}

function markInvalid(text) {
  showProblem(text);
  employee.setAttribute("aria-invalid", "true");
  employee.focus();
}

/** Leaves the mark by which a client on this origin knows that this tab began the sign-in. */
function markBegun() {
  try {
    sessionStorage.setItem("deskgate.sign_in_began", String(Date.now()));
  } catch {
    // Storage is turned off: a client that asks for the mark has none either.
  }
}

/** Sends a request. Returns the response's envelope, or null if there was no response. */
async function call(method, path, body) {
  const control = new AbortController();
  const timer = setTimeout(() => control.abort(), REQUEST_TIMEOUT * 1000);
  try {
    const headers = { "Accept-Language": document.documentElement.lang };
    if (body) headers["Content-Type"] = "application/json";
    const response = await fetch(path, {
      method, headers, body: body && JSON.stringify(body), signal: control.signal,
    });
    return await response.json();
  } catch {
    return null;
  } finally {
    clearTimeout(timer);
  }
}

const linkStatus = () => call("GET", "/api/auth/bind/status");

/** The employee that the form names. */
function entered() {
  const request = { employee_id: employee.value.trim() };
  if (company.value.trim()) request.corp_id = company.value.trim();
  return request;
}

/** Asks to be signed in as an employee. Returns the refusal's envelope, or null without a response. */
async function bind(request) {
  const envelope = await call("POST", "/api/auth/bind", request);
  if (envelope && envelope.code === 0) {
    submitLabel.textContent = status.textContent = texts.done;
    const { token, expires_in } = envelope.data;
    markBegun();
    location.replace(texts.home + "#" + new URLSearchParams({ token, expires_in, token_type: "Bearer" }));
    return new Promise(() => {});
  }
  return envelope;
}

function showForm(text) {
  clearTimeout(poll);
  poll = null;
  waiting.hidden = true;
  form.hidden = lead.hidden = false;
  setBusy(false);
  if (text) markInvalid(text);
  else employee.focus();
}

/** Shows that the link to this employee waits for approval, and polls until that changes. */
function wait(request) {
  document.getElementById("asked").textContent = request.employee_id;
  form.hidden = lead.hidden = true;
  waiting.hidden = false;
  waiting.setAttribute("aria-busy", "true");
  waitingTitle.focus();
  status.textContent = texts.waitStatus;
  poll = setTimeout(() => ask(request), POLL_INTERVAL * 1000);
}

async function ask(request) {
  const current = poll;
  const envelope = await linkStatus();
  if (poll !== current) return;
  const state = envelope && envelope.code === 0 ? envelope.data.state : null;
  // 1003: the proof has expired. Anything else may pass.
  if (envelope && envelope.code === 1003) return expire();
  if (state === "none") return showForm(texts.refused);
  if (state === "approved") {
    const refusal = await bind(request);
    return showForm(refusal ? refusal.message : texts.lost);
  }
  poll = setTimeout(() => ask(request), POLL_INTERVAL * 1000);
}

function expire() {
  poll = null;
  waiting.setAttribute("aria-busy", "false");
  waitingText.textContent = status.textContent = texts.expired;
  document.getElementById("change").hidden = document.getElementById("back").hidden = true;
  document.getElementById("again").hidden = false;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (submit.getAttribute("aria-busy") === "true") return;
  const request = entered();
  if (!request.employee_id) return markInvalid(texts.empty);
  showProblem("");
  employee.removeAttribute("aria-invalid");
  setBusy(true);
  const refusal = await bind(request);
  // 1003 is about the employee ID, or says that the link waits for approval; other errors do not mark the field.
  const link = refusal && refusal.code === 1003 ? await linkStatus() : null;
  setBusy(false);
  if (link && link.code === 0 && link.data.state === "pending" && link.data.employee_id === request.employee_id) {
    return wait(request);
  }
  if (refusal && refusal.code === 1003) markInvalid(refusal.message);
  else showProblem(refusal ? refusal.message : texts.lost);
});

document.getElementById("change").addEventListener("click", () => showForm(""));
employee.addEventListener("input", () => employee.removeAttribute("aria-invalid"));
window.addEventListener("pageshow", (event) => {
  if (event.persisted) setBusy(false);
});

if (texts.requested) {
  employee.value = texts.requested;
  wait({ employee_id: texts.requested, corp_id: texts.requestedCorp });
}
