-- nginx with Lua doing what deskgate does with a token: the signature is checked once, what the token says is kept in a
-- cache, and each request is checked for expiry, revocation and role. The upstream gets the identity headers. Invalid tokens
-- have a cache of their own, so that they cannot empty the other one. There are no sessions behind the tokens and no
-- assertions: the token itself goes to the upstream.

local base64 = require "ngx.base64"
local cjson = require "cjson.safe"
local ffi = require "ffi"
local lrucache = require "resty.lrucache"
-- Slower to read, but fast when keys come and go.
local changing_cache = require "resty.lrucache.pureffi"

ffi.cdef [[
void *BIO_new_mem_buf(const void *text, int size);
void *PEM_read_bio_PUBKEY(void *bio, void *key, void *callback, void *argument);
void *EVP_MD_CTX_new(void);
int EVP_MD_CTX_reset(void *context);
const void *EVP_sha256(void);
int EVP_DigestVerifyInit(void *context, void *key_context, const void *digest, void *engine, void *key);
int EVP_DigestVerify(void *context, const char *signature, size_t size, const char *data, size_t data_size);
unsigned char *HMAC(const void *digest, const void *key, int key_size, const char *data, size_t size,
                    unsigned char *result, unsigned int *result_size);
int CRYPTO_memcmp(const void *one, const void *other, size_t size);
]]

local CACHED, REJECTED = 20000, 4096
local ALLOWED = { user = true }

local crypto = ffi.load("libcrypto.so.3")
local callers, rejected = lrucache.new(CACHED), changing_cache.new(REJECTED)
local check = {}

-- A number of an ECDSA signature as DER has it: without leading zeros, and with one before a high bit.
local function der_number(bytes)
	bytes = bytes:gsub("^%z+", "")
	if bytes == "" or bytes:byte() > 127 then
		bytes = "\0" .. bytes
	end
	return "\2" .. string.char(#bytes) .. bytes
end

local function es256(pem)
	local key = crypto.PEM_read_bio_PUBKEY(crypto.BIO_new_mem_buf(pem, #pem), nil, nil, nil)
	local context = crypto.EVP_MD_CTX_new()
	return function(signed, signature)
		if #signature ~= 64 then
			return false
		end
		local numbers = der_number(signature:sub(1, 32)) .. der_number(signature:sub(33))
		local der = "\48" .. string.char(#numbers) .. numbers
		crypto.EVP_MD_CTX_reset(context)
		crypto.EVP_DigestVerifyInit(context, nil, crypto.EVP_sha256(), nil, key)
		return crypto.EVP_DigestVerify(context, der, #der, signed, #signed) == 1
	end
end

local function hs256(secret)
	local expected = ffi.new("unsigned char[32]")
	return function(signed, signature)
		crypto.HMAC(crypto.EVP_sha256(), secret, #secret, signed, #signed, expected, nil)
		return #signature == 32 and crypto.CRYPTO_memcmp(expected, signature, 32) == 0
	end
end

-- Reads the key file. Called once, before nginx answers.
function check.init(algorithm, key_file)
	local file = assert(io.open(key_file))
	local key = file:read("*a")
	file:close()
	check.algorithm = algorithm
	check.is_signed = (algorithm == "ES256" and es256 or hs256)(key)
end

local function json(part)
	local decoded = base64.decode_base64url(part)
	return decoded and cjson.decode(decoded)
end

-- The claims of a token with a good signature.
local function verify(token)
	local head, body, signature = token:match("^([%w_-]+)%.([%w_-]+)%.([%w_-]+)$")
	local header = head and json(head)
	signature = signature and base64.decode_base64url(signature)
	if not header or header.alg ~= check.algorithm or not signature then
		return nil
	end
	return check.is_signed(head .. "." .. body, signature) and json(body) or nil
end

local function refuse(status, code, message)
	ngx.status = status
	ngx.header["Content-Type"] = "application/json"
	ngx.header["WWW-Authenticate"] = 'Bearer error="invalid_token"'
	ngx.print('{"code":', code, ',"message":"', message, '","data":null,"request_id":"', ngx.var.request_id, '"}')
	return ngx.exit(status)
end

-- Runs for every request: refuses it, or sets the variables of the identity headers.
function check.access()
	local authorization = ngx.var.http_authorization
	local token = authorization and authorization:match("^[Bb]earer (.+)$")
	if not token then
		return refuse(401, 1001, "sign in")
	end
	local caller = callers:get(token)
	if not caller then
		caller = not rejected:get(token) and verify(token)
		if not caller then
			rejected:set(token, true)
			return refuse(401, 1001, "the token is invalid")
		end
		caller.list = table.concat(caller.roles, ",")
		caller.escaped_name = ngx.escape_uri(caller.name)
		callers:set(token, caller)
	end
	if caller.exp <= ngx.time() or ngx.shared.revoked:get(caller.jti) then
		return refuse(401, 1001, "the token is invalid")
	end
	if not ALLOWED[caller.current_role] then
		return refuse(403, 1003, "forbidden")
	end
	local variables = ngx.var
	variables.employee, variables.session, variables.corp = caller.sub, caller.jti, caller.corp_id
	variables.name, variables.role, variables.roles = caller.escaped_name, caller.current_role, caller.list
	variables.source, variables.scope = caller.login_source, "own"
end

return check
