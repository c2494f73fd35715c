// The sign-in page: shows a code, polls its ticket, and goes on to the client's page with the token.
const page = document.getElementById("signin");
const code = document.getElementById("code");
const number = document.getElementById("number");
const status = document.getElementById("status");
const renew = document.getElementById("renew");
const home = page.dataset.home;
let round = 0;

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

async function ask(path) {
  const answer = await fetch(path, { headers: { "Accept-Language": document.documentElement.lang } });
  const body = await answer.json();
  if (body.code !== 0) throw Object.assign(new Error(body.message), { told: true });
  return body.data;
}

function over(text) {
  status.textContent = text;
  code.classList.add("over");
  renew.hidden = false;
}

async function start() {
  const mine = ++round;
  renew.hidden = true;
  let ticket;
  try {
    ticket = await ask("/api/auth/qrcode");
  } catch (error) {
    return over(error.told ? error.message : page.dataset.lost);
  }
  code.src = "data:image/png;base64," + ticket.qrcode_png_base64;
  code.classList.remove("over");
  code.hidden = false;
  number.textContent = ticket.number;
  status.textContent = page.dataset.waiting;
  let seen = "waiting";
  while (mine === round) {
    let state;
    try {
      const query = new URLSearchParams({ ticket: ticket.ticket, wait: "25", seen });
      state = await ask("/api/auth/scan/status?" + query);
    } catch (error) {
      status.textContent = error.told ? error.message : page.dataset.lost;
      await pause(ticket.poll_interval);
      continue;
    }
    if (mine !== round) return;
    if (state.status === "confirmed") {
      status.textContent = page.dataset.done;
      location.replace(home + "#token=" + encodeURIComponent(state.token) + "&token_type=Bearer");
      return;
    }
    if (state.status === "expired") return over(page.dataset.expired);
    if (state.status === "scanned") status.textContent = page.dataset.scanned + " (" + state.name + ")";
    seen = state.status;
  }
}

renew.addEventListener("click", start);
document.getElementById("redirect").addEventListener("click", async () => {
  try {
    const flow = await ask("/api/auth/oauth2/url?" + new URLSearchParams({ redirect_uri: home }));
    location.assign(flow.authorize_url);
  } catch (error) {
    status.textContent = error.told ? error.message : page.dataset.lost;
  }
});
start();
