//! Error responses: what is wrong, and what to do about it.

messages! {
    // 1001: no valid token.
    NO_CREDENTIALS
        "Sign in first: the request has no bearer token."
        "请先登录：请求未携带令牌。"
    INVALID_TOKEN
        "This token is invalid, expired or revoked. Sign in again."
        "令牌无效、已过期或已吊销，请重新登录。"

    // 1003: not allowed.
    ROLE_NOT_HELD
        "You don't have the role '{role}'."
        "您没有“{role}”角色。"
    ROLE_REQUIRED
        "Your active role must be one of: {roles}. Switch roles, or ask your administrator."
        "需要以下角色之一：{roles}。请切换角色或联系管理员。"
    NOT_GRANTED
        "Your active role doesn't have this permission: {access}. Switch roles, or ask your administrator."
        "当前角色没有 {access} 权限，请切换角色或联系管理员。"
    EMPLOYEE_UNKNOWN
        "No employee has this ID. Check it and try again. If it's correct, ask your administrator to add you."
        "没有该编号的员工，请核对后重试。如编号无误，请联系管理员添加。"
    NO_SUCH_EMPLOYEE
        "No employee has this ID. Check it and try again."
        "没有该编号的员工，请核对后重试。"
    NOT_AN_EMPLOYEE
        "This WeCom account doesn't belong to an employee. Ask your administrator for access."
        "该企业微信账号未关联员工，请联系管理员开通权限。"
    NO_ROLE
        "This employee has no role. Ask your administrator for one."
        "该员工没有角色，请联系管理员分配。"
    DISABLED
        "This account is disabled. Contact your administrator."
        "该账号已停用，请联系管理员。"
    NETWORK
        "This isn't available from your network. Ask your administrator."
        "当前网络不允许访问，请更换网络或联系管理员。"
    CONDITION
        "A rule denies this request. Ask your administrator."
        "不满足访问条件，请联系管理员。"
    OTP_BINDING_ONLY
        "Set up a one-time password device first."
        "请先绑定动态口令设备。"
    NOT_VISIBLE
        "You're outside this WeCom app's visible range. Ask your administrator to add you."
        "您不在该企业微信应用的可见范围内，请联系管理员添加。"
    LAST_ADMIN
        "This is the last administrator. Make someone else an administrator first."
        "这是最后一位管理员，请先将其他员工设为管理员。"
    READ_ONLY_EMPLOYEES
        "Employees and roles are managed in the help desk. Make this change there."
        "员工和角色由服务台系统管理，请在那里修改。"
    TOO_MANY_ROLES
        "This employee has the maximum number of roles. Remove one first."
        "该员工的角色数量已达上限，请先移除一个。"
    NOT_AN_AGENT
        "This employee isn't an agent. Ask your administrator."
        "该员工不是坐席，请联系管理员。"
    OTP_NOT_BOUND
        "No one-time password device is set up. Set one up first."
        "尚未绑定动态口令设备，请先绑定。"
    OTP_NOT_OFFERED
        "Start the device setup first, then enter a code from the device."
        "请先发起动态口令设备绑定，再输入设备上显示的口令。"
    OTP_BOUND
        "A one-time password device is already set up. Ask your administrator to reset it."
        "已绑定动态口令设备，如需更换请联系管理员重置。"
    BIND_PROOF
        "Sign in with WeCom in this browser, then link your account."
        "请先在此浏览器中用企业微信登录，再绑定账号。"
    LINK_PENDING
        "An administrator must approve the link between your WeCom account and this employee. Ask them to, then sign in again."
        "您的企业微信账号与该员工的绑定需要管理员批准，请联系管理员，批准后重新登录。"
    LINKED_TO_ANOTHER
        "This WeCom account is linked to another employee. An administrator must remove that link first."
        "该企业微信账号已绑定其他员工，需由管理员先解除绑定。"
    LINK_REPLACED
        "This account is linked to another employee by now, so nothing was removed. Check the list of links and try again."
        "该账号现已绑定其他员工，未作任何更改。请查看绑定列表后重试。"
    TOO_MANY_LINK_REQUESTS
        "Too many link requests from your company are waiting for approval. Ask your administrator to process them, then try again."
        "贵企业等待批准的绑定申请过多，请联系管理员处理后重试。"
    LINKED_SESSION
        "You're signed in through a linked account, which can't set up a device or password. Ask your administrator to do it."
        "当前通过绑定的账号登录，不能设置动态口令设备或密码，请联系管理员设置。"
    UNPROVEN_SESSION
        "This session was started with an employee ID alone and can't be used here. Sign in with WeCom and try again."
        "当前会话仅凭员工编号建立，不能执行此操作，请用企业微信登录后重试。"
    ORIGIN
        "This page isn't allowed to open a WebSocket here. Ask your administrator to allow its origin."
        "不允许从该页面建立 WebSocket 连接，请联系管理员将其来源加入白名单。"
    NOT_THIS_MACHINE
        "This is available on the gateway's own machine only. Open it there, as localhost or 127.0.0.1."
        "仅限在网关所在的机器上访问，请在本机通过 localhost 或 127.0.0.1 打开。"
    CROSS_ORIGIN
        "Pages of this origin may not call this service. Ask your administrator to allow the origin."
        "不允许该来源的页面调用本服务，请联系管理员将其来源加入白名单。"
    DEVELOPMENT
        "This is available in development mode only."
        "仅在开发模式下可用。"

    // 1005: unexpected failure. Begins with the operation that failed.
    UNEXPECTED
        "{operation}: {part} error. Try again later."
        "{operation}：{part}故障，请稍后重试。"
    PLATFORM_REFUSES
        "{operation}: WeCom rejected the gateway. Ask your administrator to check its configuration."
        "{operation}：企业微信拒绝了网关的请求，请联系管理员检查配置。"

    // 1011 to 1022: passwords.
    PASSWORD_WRONG
        "Incorrect employee ID or password. Try again."
        "员工编号或密码错误，请重试。"
    PASSWORD_NOT_SET
        "No password is set yet. Sign in with WeCom and set one."
        "尚未设置密码，请先用企业微信登录后设置。"
    OLD_PASSWORD_MISSING
        "Enter the old password as well."
        "请同时输入旧密码。"
    OLD_PASSWORD_WRONG
        "The old password is incorrect. Try again."
        "旧密码错误，请重试。"
    STEP_UP_REQUIRED
        "Enter a one-time password, then try again. If you have no one-time password device, set one up first."
        "请先验证动态口令，然后重试。如尚未绑定动态口令设备，请先绑定。"
    SIGN_IN_TOO_OLD
        "Sign in with WeCom again, then try again. If you can't, ask your administrator to set it up."
        "请用企业微信重新登录，然后重试。如果无法登录，请联系管理员代为设置。"
    OTP_WRONG
        "This one-time password is incorrect or was already used. Wait for the next one."
        "动态口令错误或已使用，请等待下一个口令。"

    // 1400: the request.
    REPEATED_HEADER
        "Send this header only once: {header}."
        "请求头 {header} 只能出现一次。"
    HEADER
        "This header is missing or invalid: {header}."
        "请求头 {header} 缺失或无效。"
    FORWARDED_FOR_ENTRY
        "{header} has an entry that can't be read as an address. Check what your proxy sends."
        "{header} 中有无法识别为地址的条目，请检查代理发送的内容。"
    FORWARDED_FOR_LENGTH
        "{header} has too many addresses. Check what your proxy sends."
        "{header} 中的地址过多，请检查代理发送的内容。"
    PLAIN_HTTP
        "This port expects HTTPS, and the request came over plain HTTP. Use https:// instead of http://."
        "此端口需要使用 HTTPS，但收到的是明文 HTTP 请求，请将 http:// 改为 https://。"
    BODY
        "The body isn't the expected JSON: {detail}."
        "请求体不是预期的 JSON：{detail}。"
    MISSING_PARAMETER
        "This parameter is required: {parameter}."
        "缺少参数 {parameter}。"
    PARAMETER
        "This parameter has an invalid value: {parameter}."
        "参数 {parameter} 的值无效。"
    HEAD
        "The request isn't valid HTTP. Check its request line and headers."
        "请求不是有效的 HTTP，请检查请求行和请求头。"
    HTTP_VERSION
        "This version of HTTP isn't supported. Use HTTP/1.1."
        "不支持该 HTTP 版本，请使用 HTTP/1.1。"
    EXPECTATION
        "The gateway can't meet this expectation. Expect must be 100-continue."
        "网关无法满足该要求，请求头 Expect 的值只能是 100-continue。"
    PATH
        "The path is ambiguous. Remove dot segments, double or encoded slashes, semicolons, blanks around segments, and invalid escapes."
        "路径有歧义，请去掉“.”或“..”路径段、重复或经过编码的斜杠、分号、路径段首尾的空白，以及无效的转义。"
    FRAMING
        "The body length is ambiguous. Send one Content-Length or Transfer-Encoding header."
        "请求体长度有歧义，请只发送一个 Content-Length 或 Transfer-Encoding 请求头。"
    UPGRADE
        "Invalid WebSocket handshake. Check the Upgrade, Connection and Sec-WebSocket-Key headers."
        "WebSocket 握手无效，请检查 Upgrade、Connection 和 Sec-WebSocket-Key 请求头。"
    TWO_TOKENS
        "The request has two different tokens. Send one."
        "请求携带了两个不同的令牌，请只发送一个。"
    UNKNOWN_CLIENT
        "There is no such client. Use client=h5, client=itagent or client=itadmin."
        "没有这个客户端，请使用 client=h5、client=itagent 或 client=itadmin。"
    REDIRECT_URI
        "redirect_uri must be under the URL of a configured client."
        "redirect_uri 必须位于已配置的客户端地址之下。"
    SCRIPT_ONLY
        "Call this from a script on the client's own page. It can't be opened as a page."
        "该接口只能由客户端页面的脚本调用，不能在浏览器中直接打开。"

    // 1400: signing in.
    SIGN_IN_FAILED
        "WeCom reported an error. Sign in again."
        "企业微信返回错误，请重新登录。"
    SIGN_IN_DECLINED
        "The sign-in was cancelled in WeCom. Sign in again to continue."
        "登录已在企业微信中取消，如需继续请重新登录。"
    SCAN_DECLINED
        "The sign-in was cancelled in WeCom. To try again, show a new code on your computer and scan it."
        "登录已在企业微信中取消。如需登录，请在电脑上刷新二维码后重新扫码。"
    SIGN_IN_CODE
        "This sign-in has expired or was already used. Sign in again."
        "本次登录已过期或已使用，请重新登录。"
    SIGN_IN_FLOW
        "This sign-in was started in another browser or has expired. Sign in again."
        "本次登录不是在此浏览器中发起的，或已过期，请重新登录。"
    TICKET_ENDED
        "This code has expired. Show a new one on your computer and scan it."
        "二维码已失效，请在电脑上刷新后重新扫码。"

    // 1404 to 1431: the HTTP meaning.
    NOT_FOUND
        "Page not found."
        "页面不存在。"
    NO_SESSION
        "None of your active sessions has this ID. Refresh the list."
        "该会话不存在或已结束，请刷新会话列表。"
    METHOD_NOT_ALLOWED
        "Method not allowed. The Allow header lists the methods you can use."
        "不支持该请求方法，可用的方法见 Allow 响应头。"
    REQUEST_TIMEOUT
        "The request took too long to arrive. Try again."
        "请求发送超时，请重试。"
    BODY_TOO_LARGE
        "The request body is too large. Send a smaller one."
        "请求体过大，请减小后重试。"
    TARGET_TOO_LONG
        "The URL is too long. Use a shorter one."
        "请求地址过长，请缩短后重试。"
    UNSUPPORTED_MEDIA_TYPE
        "Send JSON with Content-Type: application/json."
        "请以 Content-Type: application/json 发送 JSON。"
    UNKNOWN_HOST
        "The gateway doesn't answer under this host name. Use its own address, or ask your administrator to add the host to server.hosts."
        "网关不通过该主机名提供服务，请使用网关自己的地址，或联系管理员将该主机名加入 server.hosts。"
    WEBSOCKET_VERSION
        "Unsupported WebSocket version. Use version 13."
        "不支持该 WebSocket 版本，请使用版本 13。"
    RATE_LIMITED
        "Too many requests. Try again in {wait}."
        "请求过于频繁，请 {wait}后重试。"
    LOCKED
        "Too many failed attempts. Try again in {wait}."
        "尝试次数过多，请 {wait}后重试。"
    TOO_MANY_SOCKETS
        "Too many open connections. Close one first."
        "打开的连接过多，请先关闭一个。"
    TOO_MANY_STREAMS
        "Too many requests at the same time. Wait until one has finished."
        "同时进行的请求过多，请等其中一个完成后重试。"
    HEAD_TOO_LARGE
        "The request headers are too large. Send fewer or shorter ones."
        "请求头过多或过大，请精简后重试。"

    // 1502 to 1504: something is down.
    UPSTREAM_FAILED
        "The service behind the gateway didn't respond properly. Check whether your request took effect before you try again."
        "后端服务未能正常响应。请先确认操作是否已生效，再重试。"
    UPSTREAM_TIMEOUT
        "The service behind the gateway didn't respond in time. Check whether your request took effect before you try again."
        "后端服务响应超时。请先确认操作是否已生效，再重试。"
    UNAVAILABLE
        "Temporarily unavailable ({part}). Try again in a moment."
        "{part}暂时不可用，请稍后重试。"
    PLATFORM_CIRCUIT_OPEN
        "WeCom isn't responding. Try again in {wait}."
        "企业微信暂时没有响应，请 {wait}后重试。"
    OVERLOADED
        "Too many people are signing in right now. Try again in {wait}."
        "当前登录人数过多，请 {wait}后重试。"
    SATURATED
        "The service is very busy right now. Try again in {wait}."
        "当前服务繁忙，请 {wait}后重试。"

    // Operations, for 1005.
    OPERATION_REQUEST
        "Request failed"
        "请求失败"
    OPERATION_QRCODE
        "Couldn't create the QR code"
        "二维码生成失败"
    OPERATION_SCAN_STATUS
        "Couldn't check the QR code"
        "扫码状态查询失败"
    OPERATION_AUTHORIZE_URL
        "Couldn't start the sign-in"
        "无法发起登录"
    OPERATION_CALLBACK
        "Sign-in failed"
        "登录失败"
    OPERATION_VERIFY
        "Couldn't verify the token"
        "令牌校验失败"
    OPERATION_LOGOUT
        "Logout failed"
        "退出登录失败"
    OPERATION_SWITCH_ROLE
        "Couldn't switch roles"
        "角色切换失败"
    OPERATION_BIND
        "Couldn't link the account"
        "账号绑定失败"
    OPERATION_SESSIONS
        "Session request failed"
        "会话操作失败"
    OPERATION_ADMIN
        "Administration request failed"
        "管理操作失败"
    OPERATION_AGENT
        "Agent sign-in failed"
        "坐席登录失败"
    OPERATION_OTP
        "One-time password request failed"
        "动态口令操作失败"

    // Parts of the service, for 1005 and 1503.
    PART_STORE
        "session store"
        "会话存储"
    PART_DIRECTORY
        "employee directory"
        "员工目录"
    PART_PLATFORM
        "WeCom"
        "企业微信"
    PART_GATEWAY
        "gateway"
        "网关"
}
