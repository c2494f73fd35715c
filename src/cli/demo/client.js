// A client of the demo: keeps its token, shows who is signed in, opens a socket, logs out.
const client = location.pathname.split("/")[1];
const show = (id, text) => { document.getElementById(id).textContent = text; };
show("client", "· " + client);

// Back from the platform: the code goes to the gateway, which answers with the token in the fragment.
const query = new URLSearchParams(location.search);
if (query.has("state")) location.replace("/api/auth/oauth2/callback" + location.search);

const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("token")) {
  sessionStorage.setItem("token", fragment.get("token"));
  history.replaceState(null, "", location.pathname);
}
const token = sessionStorage.getItem("token");

async function call(path, options = {}) {
  const headers = { Authorization: "Bearer " + token, "Content-Type": "application/json" };
  const answer = await fetch(path, { ...options, headers });
  return answer.json();
}

async function who() {
  if (fragment.has("error")) return show("who", fragment.get("error_description") || fragment.get("error"));
  if (!token) return location.replace("/api/auth/signin?client=" + client);
  const me = await call("/api/auth/me");
  if (me.code !== 0) {
    sessionStorage.removeItem("token");
    return show("who", me.message);
  }
  show("who", me.data.name + " (" + me.data.employee_id + "), acting as " + me.data.current_role);
  const roles = document.getElementById("roles");
  roles.replaceChildren(...me.data.roles.map((role) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Act as " + role;
    button.disabled = role === me.data.current_role;
    button.addEventListener("click", async () => {
      await call("/api/auth/switch-role", { method: "POST", body: JSON.stringify({ role }) });
      who();
    });
    return button;
  }));
}

document.getElementById("open").addEventListener("click", () => {
  const path = client === "h5" ? "/ws/employee" : "/ws/agent";
  const socket = new WebSocket(location.origin.replace("http", "ws") + path, ["bearer." + token]);
  socket.addEventListener("open", () => { show("socket", "open, protocol echoed"); socket.send("hello"); });
  socket.addEventListener("message", (event) => show("socket", "received " + event.data.slice(0, 80)));
  socket.addEventListener("close", (event) => show("socket", "closed with " + event.code + " " + event.reason));
});
document.getElementById("logout").addEventListener("click", async () => {
  const answer = await call("/api/auth/logout", { method: "POST" });
  show("who", answer.message === "ok" ? answer.data.message : answer.message);
});
if (!query.has("state")) who();
