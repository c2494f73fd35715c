// The demo client. One file serves all three clients; the first path segment names the client.

const CLIENTS = ["h5", "itagent", "itadmin"];
const client = CLIENTS.find((name) => location.pathname.startsWith("/" + name + "/")) || "h5";
const socketPath = client === "h5" ? "/ws/employee" : "/ws/agent";
const element = (id) => document.getElementById(id);

const WORDS = {
  en: {
    title_h5: "Employee help desk", title_itagent: "Agent workspace", title_itadmin: "Administration",
    hello_h5: "Hello, %", hello_itagent: "On duty: %", hello_itadmin: "Hello, %",
    other: "中文", logout: "Sign out", acting_as: "Acting as",
    role_user: "Employee", role_agent: "Agent", role_supervisor: "Supervisor", role_security: "Security", role_admin: "Administrator",
    channel: "Live channel", connect: "Connect", disconnect: "Disconnect", message: "Write a message", send: "Send",
    idle: "Not connected", connecting: "Connecting …", opened: "Connected", quiet: "No messages yet",
    closed: "Closed with %", refused: "Connection refused or lost (%)", session_ended: "Your session ended (%)",
    role_lost: "Your role no longer has access to this channel (%). Switch roles and connect again.",
    draining: "The gateway is restarting (%). Connect again.",
    upstream: "What the upstream receives", upstream_hint: "Send a request through the gateway. The upstream returns what it received.",
    path: "Request path", ask: "Send request", identity: "Identity added by the gateway", rest: "Other headers",
    claims: "Signed claims", refused_by: "Request % · status &", answered: "Request %",
    you: "You", name: "Name", employee_id: "Employee ID", department: "Department", roles: "Roles", login_source: "Signed in from",
    sessions: "Your sessions", sessions_hint: "All devices where you are signed in.", here: "This device", end: "Sign out", end_this: "Sign out on %",
    end_others: "Sign out everywhere else", since: "signed in %", seen: "active %", unknown_device: "Unknown device", none: "—",
    device: "One-time password", device_none: "No device is set up.", device_bound: "Your device is set up. Enter its code to confirm it's you.",
    device_stepped_up: "Confirmed until %", device_set_up: "Set up a device", device_replace: "Replace the device",
    device_scan: "Scan this code with your authenticator app, then enter the code that the app shows.", device_code: "6-digit code", device_confirm: "Confirm",
    ended: "Your session has ended", ended_text: "It expired, or you signed out on another device.",
    left: "You are signed out", left_text: "This session has ended in all its tabs. Your other sessions stay signed in.",
    again: "Sign in again", lost: "No connection. Try again in a moment.",
    source_qrcode: "QR code", source_h5: "Employee client", source_itagent: "Agent client", source_itadmin: "Administration client",
    source_agent: "Agent sign-in", source_dev: "Development sign-in", method_oauth2: "WeCom", method_qrcode: "QR code", method_bind: "linked account",
    method_password: "password", method_dev: "development",
  },
  "zh-CN": {
    title_h5: "员工服务台", title_itagent: "坐席工作台", title_itadmin: "管理后台",
    hello_h5: "您好，%", hello_itagent: "当班坐席：%", hello_itadmin: "您好，%",
    other: "English", logout: "退出登录", acting_as: "当前角色",
    role_user: "员工", role_agent: "坐席", role_supervisor: "主管", role_security: "安全管理员", role_admin: "管理员",
    channel: "实时通道", connect: "连接", disconnect: "断开", message: "输入消息", send: "发送",
    idle: "未连接", connecting: "正在连接…", opened: "已连接", quiet: "暂无消息",
    closed: "已关闭（%）", refused: "连接被拒绝或已中断（%）", session_ended: "会话已结束（%）",
    role_lost: "当前角色已无权使用此通道（%）。请切换角色后重新连接。",
    draining: "网关正在重启（%），请重新连接。",
    upstream: "后端收到的请求", upstream_hint: "经网关发出请求，后端会原样返回收到的内容。",
    path: "请求路径", ask: "发送请求", identity: "网关附加的身份信息", rest: "其他请求头",
    claims: "已签名的声明", refused_by: "请求 % · 状态 &", answered: "请求 %",
    you: "我的信息", name: "姓名", employee_id: "员工编号", department: "部门", roles: "角色", login_source: "登录来源",
    sessions: "我的会话", sessions_hint: "您已登录的所有设备。", here: "本设备", end: "退出登录", end_this: "退出登录：%",
    end_others: "退出其他所有设备", since: "%登录", seen: "%活跃", unknown_device: "未知设备", none: "—",
    device: "动态口令", device_none: "尚未绑定设备。", device_bound: "设备已绑定。请输入口令，确认是您本人。",
    device_stepped_up: "已验证，有效期至 %", device_set_up: "绑定设备", device_replace: "更换设备",
    device_scan: "请用身份验证器应用扫描二维码，然后输入应用显示的口令。", device_code: "6 位口令", device_confirm: "确认",
    ended: "会话已结束", ended_text: "会话已过期，或已在其他设备上退出。",
    left: "您已退出登录", left_text: "本次会话在所有标签页中均已退出，其他会话不受影响。",
    again: "重新登录", lost: "网络已断开，请稍后重试。",
    source_qrcode: "扫码", source_h5: "员工端", source_itagent: "坐席端", source_itadmin: "管理端",
    source_agent: "坐席登录", source_dev: "开发登录", method_oauth2: "企业微信", method_qrcode: "扫码", method_bind: "绑定账号",
    method_password: "密码", method_dev: "开发",
  },
};

// The token is per tab, so that tabs can be signed in as different people; the language is per browser.
const chosen = () => Object.keys(WORDS).find((tag) => tag === localStorage.getItem("language"));
let language = chosen() || (navigator.language.toLowerCase().startsWith("zh") ? "zh-CN" : "en");
let token = null;
let me = null;
let socket = null;
let socketState = ["idle"];
let sessions = [];
let device = null;
let offer = null;
let endedBecause = null;

const word = (key, ...values) => {
  const text = WORDS[language][key] ?? key;
  return text.replace("%", () => values[0] ?? "").replace("&", () => values[1] ?? "");
};
/** The text for a value of a closed set; an unknown value is shown as it is. */
const named = (set, member) => WORDS[language][set + "_" + member] ?? member;

function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// The page's address.

function signInAddress() {
  const query = new URLSearchParams({ client });
  if (chosen()) query.set("lang", language);
  return "/api/auth/signin?" + query;
}

/** Set before this tab leaves to sign in, here and on the sign-in page, which shares this page's origin. */
const BEGAN = "deskgate.sign_in_began";
/** How long a sign-in may take, in milliseconds; as long as the gateway's flow cookie lives. */
const SIGN_IN_TIME = 600_000;

function goToSignIn(reason = "") {
  sessionStorage.setItem(BEGAN, String(Date.now()));
  location.replace(signInAddress() + reason);
}

/** Whether this tab began a sign-in. The answer uses the mark up, so that it admits one token. */
function tookBegun() {
  const began = Number(sessionStorage.getItem(BEGAN));
  sessionStorage.removeItem(BEGAN);
  return began > 0 && Date.now() - began < SIGN_IN_TIME;
}

/** Reads token, error or code from the address. Returns false if the page navigates away. */
function readAddress() {
  const query = new URLSearchParams(location.search);
  const fragment = new URLSearchParams(location.hash.slice(1));
  if (fragment.has("token")) {
    // A token that this tab did not ask for is another person's: a planted link would sign the user in as its sender.
    if (tookBegun()) sessionStorage.setItem("token", fragment.get("token"));
    // A token in the address would end up in bookmarks and in the history.
    history.replaceState(null, "", location.pathname);
  } else if (fragment.has("error")) {
    const reason = fragment.get("error");
    const plain = /^[a-z_]{1,40}$/.test(reason) ? reason : "other";
    goToSignIn("#error=" + plain);
    return false;
  } else if (query.has("code") || query.has("state")) {
    location.replace("/api/auth/oauth2/callback" + location.search);
    return false;
  }
  token = sessionStorage.getItem("token");
  if (!token) goToSignIn();
  return token !== null;
}

// Requests.

/** Whether the gateway wants a more recent sign-in for this request (RFC 9470). */
function needsNewSignIn(answer) {
  return answer.status === 401 && /\bmax_age=/.test(answer.headers.get("WWW-Authenticate") || "");
}

/** Returns the response, or null if there was none, the session has ended or the employee has to sign in again. */
async function call(path, method = "GET", body) {
  const headers = { Authorization: "Bearer " + token, "Accept-Language": language };
  if (body) headers["Content-Type"] = "application/json";
  try {
    const answer = await fetch(path, { method, headers, cache: "no-store", body: body && JSON.stringify(body) });
    const json = await answer.json();
    showProblem("");
    if (answer.status === 401 && json.code === 1001) {
      leave("ended");
      return null;
    }
    if (needsNewSignIn(answer)) {
      goToSignIn();
      return null;
    }
    return { status: answer.status, json, id: answer.headers.get("X-Request-Id") || json.request_id || "" };
  } catch {
    showProblem(word("lost"));
    return null;
  }
}

/** Returns the data of a gateway endpoint; shows an error. */
async function data(path, method, body) {
  const answer = await call(path, method, body);
  if (answer && answer.json.code !== 0) showProblem(answer.json.message + " (" + answer.json.code + " · " + answer.id + ")");
  return answer && answer.json.code === 0 ? answer.json.data : null;
}

function showProblem(text) {
  element("problem").textContent = text;
  element("problem").hidden = !text;
}

/** Drops the token, shows why the session ended and offers to sign in again. */
function leave(how) {
  if (endedBecause) return;
  sessionStorage.removeItem("token");
  token = null;
  endedBecause = how;
  element("loading").hidden = true;
  if (socket) socket.close();
  element("desk").hidden = true;
  element("logout").hidden = true;
  element("ended").hidden = false;
  drawEnded();
  element("ended").focus();
}

function drawEnded() {
  if (!endedBecause) return;
  element("ended-title").textContent = word(endedBecause);
  element("ended-text").textContent = word(endedBecause + "_text");
}

// The signed-in employee.

async function loadMe() {
  const loaded = await data("/api/auth/me");
  if (!loaded) return;
  me = loaded;
  drawMe();
}

/** The first character of a Chinese name, two initials of any other. */
function initials(name) {
  const parts = name.trim().split(/\s+/);
  if (/^\p{Script=Han}/u.test(name)) return [...name][0];
  return parts.slice(0, 2).map((part) => [...part][0] || "").join("").toUpperCase();
}

function drawMe() {
  if (!me) return;
  element("initials").textContent = initials(me.name);
  element("greeting").textContent = word("hello_" + client, me.name);
  element("who").textContent = [me.employee_id, me.department, named("role", me.current_role)].filter(Boolean).join(" · ");
  const focused = document.activeElement && document.activeElement.dataset.role;
  element("roles").replaceChildren(...me.roles.map((role) => {
    const button = make("button", { type: "button", textContent: named("role", role) });
    button.dataset.role = role;
    button.setAttribute("aria-pressed", String(role === me.current_role));
    button.addEventListener("click", () => switchRole(role));
    return button;
  }));
  const again = focused && [...element("roles").children].find((button) => button.dataset.role === focused);
  if (again) again.focus();
  const facts = {
    name: me.name, employee_id: me.employee_id, department: me.department || word("none"),
    roles: me.roles.map((role) => named("role", role)).join(language === "en" ? ", " : "、"),
    login_source: named("source", me.login_source),
  };
  element("facts").replaceChildren(...Object.entries(facts).map(([key, value]) =>
    make("div", {}, make("dt", { textContent: word(key) }), make("dd", { textContent: value }))));
}

async function switchRole(role) {
  if (role === me.current_role) return;
  if (await data("/api/auth/switch-role", "POST", { role })) await loadMe();
}

// The live channel.

function drawSocket() {
  const open = socket && socket.readyState <= WebSocket.OPEN;
  const [key, value] = socketState;
  const state = key === "opened" ? "open" : key === "connecting" || key === "idle" ? key : "closed";
  element("socket").dataset.state = state;
  element("socket").textContent = word(key, value);
  element("open").textContent = word(open ? "disconnect" : "connect");
  element("open").classList.toggle("main", !open);
  element("send").disabled = state !== "open";
  element("log").dataset.empty = word("quiet");
  element("channel-hint").textContent = socketPath;
}

function log(kind, ...content) {
  const list = element("log");
  const entry = make("div", { className: kind }, ...content);
  if (kind !== "event") entry.append(make("time", { textContent: clockTime(new Date()) }));
  list.append(entry);
  while (list.children.length > 200) list.firstChild.remove();
  list.scrollTop = list.scrollHeight;
}

/** Shows text as it is, and an object with `msg_type` by its type, with the whole object below. */
function received(text) {
  try {
    const message = JSON.parse(text);
    if (message && typeof message.msg_type === "string") {
      const all = make("pre", { textContent: JSON.stringify(message, null, 2) });
      return make("details", {}, make("summary", { textContent: message.msg_type }), all);
    }
  } catch {
    // Not JSON: shown as text.
  }
  return text.length > 2000 ? text.slice(0, 2000) + " …" : text;
}

function connect() {
  const mine = new WebSocket(location.origin.replace(/^http/, "ws") + socketPath, ["bearer." + token]);
  let opened = false;
  socket = mine;
  show("connecting");
  mine.addEventListener("open", () => { opened = true; show("opened"); });
  mine.addEventListener("message", (event) => log("from-desk", received(String(event.data))));
  mine.addEventListener("close", (event) => {
    const how = event.reason ? event.code + ", " + event.reason : event.code;
    if (socket === mine) socket = null;
    const key = { 1001: "draining", 1006: "refused", 4401: "session_ended", 4403: "role_lost" }[event.code] || "closed";
    show(key, how, "closed");
    if (!token) return;
    if (event.code === 4401) leave("ended");
    // The browser does not say why a handshake failed. If the token is invalid, this request finds out.
    else if (!opened || event.code === 4403) loadMe();
  });
  function show(key, value, short = key) {
    socketState = [key, value];
    drawSocket();
    log("event", word(short, value));
  }
}

// What the upstream receives.

const IDENTITY_PREFIX = "x-deskgate-";
/** The display order of the identity headers. */
const IDENTITY = ["employee-id", "name", "department", "corp-id", "roles", "current-role", "scope", "login-source", "session-id", "assertion"];

function decoded(value) {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

/** The claims of an assertion, or null if it cannot be parsed. */
function claims(assertion) {
  try {
    const middle = assertion.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(middle), (letter) => letter.charCodeAt(0));
    return JSON.stringify(JSON.parse(new TextDecoder().decode(bytes)), null, 2);
  } catch {
    return null;
  }
}

function headerRow([name, value]) {
  const cell = make("td");
  const claimed = name === IDENTITY_PREFIX + "assertion" && claims(value);
  if (claimed) {
    const raw = make("pre", { className: "small", textContent: value });
    cell.append(make("details", {}, make("summary", { textContent: word("claims") }), make("pre", { textContent: claimed }), raw));
  } else if (/^x-deskgate-(name|department)$/.test(name) && decoded(value) !== value) {
    cell.append(decoded(value), " ", make("code", { className: "small", textContent: value }));
  } else {
    cell.textContent = value;
  }
  const title = make("th", { scope: "row" }, make("code", { textContent: name }));
  return make("tr", {}, title, cell);
}

function headerTable(caption, headers) {
  return make("table", {}, make("caption", { textContent: caption }), make("tbody", {}, ...headers.map(headerRow)));
}

async function ask() {
  element("ask").disabled = true;
  const answer = await call(element("path").value);
  element("ask").disabled = false;
  if (!answer) return;
  const { status, json, id } = answer;
  // A short text for screen readers; the table has the details.
  element("answered").textContent = json.code ? json.code + " " + json.message : String(status);
  if (typeof json.code === "number" && json.code !== 0) {
    element("answer").replaceChildren(make("div", { className: "refusal" },
      make("div", { className: "line" }, make("span", { className: "badge", textContent: json.code })),
      make("p", { textContent: json.message }),
      make("p", { className: "small mono", textContent: word("refused_by", id, status) })));
    return;
  }
  const headers = Object.entries(json.headers || {}).sort(([one], [other]) => one.localeCompare(other));
  const place = ([name]) => (IDENTITY.indexOf(name.slice(IDENTITY_PREFIX.length)) + 1) || IDENTITY.length + 1;
  const identity = headers.filter(([name]) => name.startsWith(IDENTITY_PREFIX)).sort((one, other) => place(one) - place(other));
  const rest = headers.filter(([name]) => !name.startsWith(IDENTITY_PREFIX));
  element("answer").replaceChildren(
    make("div", { className: "line" },
      make("span", { className: "badge", textContent: status }),
      make("code", { textContent: [json.method, json.target].filter(Boolean).join(" ") }),
      make("span", { className: "small mono", textContent: word("answered", id) })),
    headerTable(word("identity"), identity),
    make("details", {}, make("summary", { textContent: word("rest") + " (" + rest.length + ")" }), headerTable("", rest)));
}

// The one-time-password device.

async function loadDevice() {
  const loaded = await data("/api/auth/otp-status");
  if (!loaded) return;
  device = loaded;
  drawDevice();
}

function drawDevice() {
  if (!device) return;
  const until = device.stepped_up_until && moment(device.stepped_up_until);
  const confirmed = until > new Date();
  const state = confirmed ? word("device_stepped_up", clockTime(until)) : word(device.bound ? "device_bound" : "device_none");
  element("device-state").textContent = state;
  element("set-up").textContent = word(device.bound ? "device_replace" : "device_set_up");
  element("set-up").hidden = offer !== null || (device.bound && !confirmed);
  element("offer").hidden = offer === null;
  element("confirm").hidden = offer === null && (!device.bound || confirmed);
  element("device-code").alt = word("device_scan");
  if (offer) {
    element("device-code").src = "data:image/png;base64," + offer.qrcode_png_base64;
    element("device-secret").textContent = offer.secret;
  }
}

async function setUpDevice() {
  offer = await data("/api/auth/otp-setup", "POST");
  drawDevice();
  if (offer) element("code").focus();
}

/** Binds the offered device with its first code, or confirms the employee with a later one. */
async function confirmCode() {
  const code = element("code").value;
  element("code").value = "";
  if (!await data(offer ? "/api/auth/otp-bind" : "/api/auth/otp-verify", "POST", { code })) return;
  offer = null;
  await loadDevice();
}

// Sessions.

async function loadSessions() {
  const loaded = await data("/api/auth/sessions");
  if (!loaded) return;
  sessions = loaded.items;
  drawSessions();
}

/** Parses a time in seconds or as text. */
const moment = (time) => new Date(typeof time === "number" ? time * 1000 : time);
const clockTime = (at) => at.toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

function ago(time) {
  const seconds = (moment(time) - Date.now()) / 1000;
  if (Number.isNaN(seconds)) return word("none");
  const steps = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const [unit, length] = steps.find(([, length]) => Math.abs(seconds) >= length) || ["second", 1];
  return new Intl.RelativeTimeFormat(language, { numeric: "auto" }).format(Math.round(seconds / length), unit);
}

function drawSessions() {
  element("sessions").replaceChildren(...sessions.map((session) => {
    const name = session.device === "?" ? word("unknown_device") : session.device;
    const title = make("p", { className: "device", textContent: name });
    if (session.current) title.append(make("span", { className: "badge", textContent: word("here") }));
    const where = [session.address, named("method", session.login_method)].filter(Boolean).join(" · ");
    const when = [word("since", ago(session.since)), word("seen", ago(session.last_seen))].join(" · ");
    const entry = make("li", {}, make("div", {}, title,
      make("p", { className: "small", textContent: where }), make("p", { className: "small", textContent: when })));
    if (!session.current) {
      const end = make("button", { type: "button", className: "button", textContent: word("end") });
      end.setAttribute("aria-label", word("end_this", name));
      end.addEventListener("click", async () => {
        end.disabled = true;
        await data("/api/auth/sessions/" + encodeURIComponent(session.id), "DELETE");
        if (token) await loadSessions();
      });
      entry.append(end);
    }
    return entry;
  }));
  element("end-others").hidden = !sessions.some((session) => !session.current);
}

// The page.

function draw() {
  document.documentElement.lang = language;
  document.documentElement.dataset.client = client;
  document.title = word("title_" + client);
  for (const place of document.querySelectorAll("[data-word]")) {
    place.textContent = word(place.dataset.word === "title" ? "title_" + client : place.dataset.word);
  }
  for (const place of document.querySelectorAll("[data-placeholder]")) place.placeholder = word(place.dataset.placeholder);
  element("language").textContent = word("other");
  element("language").lang = language === "en" ? "zh-CN" : "en";
  drawMe();
  drawSocket();
  drawDevice();
  drawSessions();
  drawEnded();
}

element("language").addEventListener("click", () => {
  language = language === "en" ? "zh-CN" : "en";
  localStorage.setItem("language", language);
  element("answer").replaceChildren();
  draw();
});
element("logout").addEventListener("click", async () => {
  if (await data("/api/auth/logout", "POST")) leave("left");
});
element("again").addEventListener("click", () => goToSignIn());
element("open").addEventListener("click", () => {
  if (socket && socket.readyState <= WebSocket.OPEN) socket.close(1000);
  else connect();
});
element("say").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = element("text").value.trim();
  if (!text || !socket || socket.readyState !== WebSocket.OPEN) return;
  socket.send(text);
  log("from-me", text);
  element("text").value = "";
});
element("asking").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
element("set-up").addEventListener("click", setUpDevice);
element("confirm").addEventListener("submit", (event) => {
  event.preventDefault();
  confirmCode();
});
element("end-others").addEventListener("click", async () => {
  await data("/api/auth/sessions", "DELETE");
  if (token) await loadSessions();
});
// Changing only the fragment loads nothing, but it may carry a token.
window.addEventListener("hashchange", () => location.reload());
document.addEventListener("visibilitychange", () => {
  // Shows an ended session when the tab becomes visible, not at the next click.
  if (!document.hidden && token) loadMe();
});

draw();
if (readAddress()) {
  // Shown when complete, so that nothing moves under the pointer.
  Promise.all([loadMe(), loadDevice(), loadSessions()]).then(() => {
    element("loading").hidden = true;
    element("desk").hidden = element("logout").hidden = !token;
  });
}
