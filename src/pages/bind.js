// The bind page: sends the employee id, and goes on to the client's page with the token.

const page = document.getElementById("bind");
const form = document.getElementById("form");
const employee = document.getElementById("employee_id");
const corporation = document.getElementById("corp_id");
const submit = document.getElementById("submit");
const submitWord = document.getElementById("submit-word");
const problem = document.getElementById("problem");
const status = document.getElementById("status");
const words = page.dataset;

/** Seconds after which the connection counts as dead. */
const PATIENCE = 20;

function tell(sentence) {
  problem.textContent = sentence;
  problem.hidden = !sentence;
}

function busy(on) {
  submit.setAttribute("aria-busy", String(on));
  submitWord.textContent = on ? words.busy : words.submit;
  status.textContent = on ? words.busy : "";
  employee.readOnly = corporation.readOnly = on;
}

function wrong(sentence) {
  tell(sentence);
  employee.setAttribute("aria-invalid", "true");
  employee.focus();
}

/** The answer's envelope; null when there was none. */
async function send(request) {
  const control = new AbortController();
  const limit = setTimeout(() => control.abort(), PATIENCE * 1000);
  try {
    const answer = await fetch("/api/auth/bind", {
      method: "POST",
      headers: { "Content-Type": "application/json", "Accept-Language": document.documentElement.lang },
      body: JSON.stringify(request),
      signal: control.signal,
    });
    return await answer.json();
  } catch {
    return null;
  } finally {
    clearTimeout(limit);
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (submit.getAttribute("aria-busy") === "true") return;
  const request = { employee_id: employee.value.trim() };
  if (!request.employee_id) return wrong(words.empty);
  if (corporation.value.trim()) request.corp_id = corporation.value.trim();
  tell("");
  employee.removeAttribute("aria-invalid");
  busy(true);
  const body = await send(request);
  if (body && body.code === 0) {
    submitWord.textContent = status.textContent = words.done;
    const { token, expires_in } = body.data;
    location.replace(words.home + "#" + new URLSearchParams({ token, expires_in, token_type: "Bearer" }));
    return;
  }
  busy(false);
  // 1003 is about who was named; other refusals are not the field's fault.
  if (body && body.code === 1003) wrong(body.message);
  else tell(body ? body.message : words.lost);
});

employee.addEventListener("input", () => employee.removeAttribute("aria-invalid"));
window.addEventListener("pageshow", (event) => {
  if (event.persisted) busy(false);
});
