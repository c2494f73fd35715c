// The bind page: posts the employee ID and redirects to the client with the token.

const page = document.getElementById("bind");
const form = document.getElementById("form");
const employee = document.getElementById("employee_id");
const company = document.getElementById("corp_id");
const submit = document.getElementById("submit");
const submitLabel = document.getElementById("submit-label");
const problem = document.getElementById("problem");
const status = document.getElementById("status");
const texts = page.dataset;

/** Request timeout, in seconds. */
const REQUEST_TIMEOUT = 20;

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

/** Posts the form. Returns the response's envelope, or null if there was no response. */
async function post(request) {
  const control = new AbortController();
  const timer = setTimeout(() => control.abort(), REQUEST_TIMEOUT * 1000);
  try {
    const response = await fetch("/api/auth/bind", {
      method: "POST",
      headers: { "Content-Type": "application/json", "Accept-Language": document.documentElement.lang },
      body: JSON.stringify(request),
      signal: control.signal,
    });
    return await response.json();
  } catch {
    return null;
  } finally {
    clearTimeout(timer);
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (submit.getAttribute("aria-busy") === "true") return;
  const request = { employee_id: employee.value.trim() };
  if (!request.employee_id) return markInvalid(texts.empty);
  if (company.value.trim()) request.corp_id = company.value.trim();
  showProblem("");
  employee.removeAttribute("aria-invalid");
  setBusy(true);
  const envelope = await post(request);
  if (envelope && envelope.code === 0) {
    submitLabel.textContent = status.textContent = texts.done;
    const { token, expires_in } = envelope.data;
    // The mark by which a client on this origin knows that this tab began the sign-in.
    sessionStorage.setItem("deskgate.sign_in_began", String(Date.now()));
    location.replace(texts.home + "#" + new URLSearchParams({ token, expires_in, token_type: "Bearer" }));
    return;
  }
  setBusy(false);
  // 1003 is about the employee ID; other errors do not mark the field.
  if (envelope && envelope.code === 1003) markInvalid(envelope.message);
  else showProblem(envelope ? envelope.message : texts.lost);
});

employee.addEventListener("input", () => employee.removeAttribute("aria-invalid"));
window.addEventListener("pageshow", (event) => {
  if (event.persisted) setBusy(false);
});
