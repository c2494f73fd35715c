# Each target installs the packages that it needs on Debian, and names them on other systems.

.PHONY: run fleet fleet-drill test test-extra test-postgres test-pingora-lane fuzz bench bench-fleet faults release pgo deb deb-trial sbom deny msrv deploy-check alert-drill tools

run: tools
	cargo run --locked -- demo

fleet: tools
	@.ci/need python3 python3 redis-server redis-server pg_ctlcluster postgresql nginx nginx-light
	cargo build --locked
	python3 deploy/fleet/run.py

fleet-drill: tools
	@.ci/need python3 python3 redis-server redis-server pg_ctlcluster postgresql nginx nginx-light
	cargo build --locked
	python3 deploy/fleet/run.py --drill

# clippy as the compiler lints and compiles in one build; `cargo clippy` would have everything compiled twice, and so would a test target
# without these flags.
CLIPPY := $(shell clippy-driver --version 2>/dev/null)
# Many tests wait for a server or a timer rather than for a core.
TEST_THREADS := $(shell echo $$(($$(nproc) * 2)))
LINTING := $(if $(CLIPPY),RUSTC_WORKSPACE_WRAPPER=clippy-driver RUSTFLAGS="-D warnings")

test: tools
	@.ci/need curl curl python3 python3 chromium chromium chromedriver chromium-driver nginx nginx-light faketime faketime pg_ctlcluster postgresql redis-server redis-server redis-sentinel redis-sentinel objcopy binutils dpkg-shlibdeps dpkg-dev promtool prometheus systemd-analyze systemd
	@if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; else echo "rustfmt is not installed: skipping the format check"; fi
	@if [ -z "$(CLIPPY)" ]; then echo "clippy is not installed: skipping the lints"; fi
	$(LINTING) cargo build --locked --all-targets
	@if cargo nextest --version >/dev/null 2>&1; then $(LINTING) cargo nextest run --locked --no-fail-fast --test-threads $(TEST_THREADS); else $(LINTING) cargo test --locked; fi

test-extra: tools
	@.ci/need python3 python3 pip3 python3-venv
	cargo build --locked
	python3 tests/extra/run.py

test-postgres: tools
	@.ci/need curl curl python3 python3 chromium chromium chromedriver chromium-driver nginx nginx-light faketime faketime pg_ctlcluster postgresql redis-server redis-server
	@if cargo nextest --version >/dev/null 2>&1; then $(LINTING) DESKGATE_TEST_DIRECTORY=postgres cargo nextest run --locked --no-fail-fast -E 'binary(gateway)'; else $(LINTING) DESKGATE_TEST_DIRECTORY=postgres cargo test --locked --test gateway; fi

# The tests of the gateway with the fast lane off.
test-pingora-lane: tools
	@.ci/need curl curl python3 python3 chromium chromium chromedriver chromium-driver nginx nginx-light faketime faketime pg_ctlcluster postgresql redis-server redis-server
	@if cargo nextest --version >/dev/null 2>&1; then $(LINTING) DESKGATE_TEST_FAST_LANE=false cargo nextest run --locked --no-fail-fast --test-threads $(TEST_THREADS) -E 'binary(gateway)'; else $(LINTING) DESKGATE_TEST_FAST_LANE=false cargo test --locked --test gateway; fi

# Fuzzes FUZZ for SECONDS, guided by which code the inputs reach: FUZZ is lanes, path, look_alike, subprotocol or frame. Needs no
# nightly compiler. Naming the host keeps the flags from build scripts and macros.
FUZZ := lanes
SECONDS := 3600
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
COVERAGE := --cfg fuzzing -C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=4 -C llvm-args=-sanitizer-coverage-inline-8bit-counters -C llvm-args=-sanitizer-coverage-pc-table
fuzz: tools
	@.ci/need g++ g++
	RUSTFLAGS="$(COVERAGE)" cargo build --locked --manifest-path fuzz/Cargo.toml --target $(HOST) --bin $(FUZZ)
	mkdir -p fuzz/corpus/$(FUZZ) fuzz/artifacts
	$(or $(CARGO_TARGET_DIR),fuzz/target)/$(HOST)/debug/$(FUZZ) -max_total_time=$(SECONDS) -artifact_prefix=fuzz/artifacts/$(FUZZ)- fuzz/corpus/$(FUZZ) $(wildcard fuzz/seeds/$(FUZZ))

# Measures what is shipped, or PROGRAM. BENCH has options, such as BENCH="--only one,nginx,deskgate" or BENCH=--help.
bench: $(if $(PROGRAM),tools,release)
	@.ci/need nginx nginx-light /usr/lib/nginx/modules/ngx_http_lua_module.so libnginx-mod-http-lua /usr/share/lua/5.1/cjson lua-cjson haproxy haproxy wrk wrk h2load nghttp2-client openssl openssl python3 python3 pip3 python3-pip
	python3 benches/compare.py --program $(or $(PROGRAM),$(DIST)/deskgate) $(BENCH)

bench-fleet: tools
	@.ci/need python3 python3 redis-server redis-server pg_ctlcluster postgresql nginx nginx-light
	cargo build --release --locked
	python3 benches/fleet.py

faults: tools
	@.ci/need python3 python3 faketime faketime prlimit util-linux openssl openssl nginx nginx-light wrk wrk
	python3 tests/faults/run.py

# Where cargo builds, and what is shipped lies below it.
TARGET := $(or $(CARGO_TARGET_DIR),target)
DIST := $(TARGET)/dist
# What is shipped, with its symbols.
BUILT := $(TARGET)/$(HOST)/release/deskgate
# FEATURES=demo adds the simulated platform and the demo help desk.
FEATURES :=

# The program that is shipped, built with profile-guided optimization, and its symbols beside it. It must start. A failure above 25 MB,
# unless it has further features.
release: tools
	@.ci/need python3 python3 objcopy binutils
	python3 deploy/release.py $(TARGET) --features "$(FEATURES)"
	$(DIST)/deskgate --version

# Records a new profile for profile-guided optimization during a short run of `make bench`, then builds the release with it. The profile
# is kept in deploy/profiles, where `make release` finds it, so a release does not require this target.
pgo: tools
	@.ci/need nginx nginx-light /usr/lib/nginx/modules/ngx_http_lua_module.so libnginx-mod-http-lua wrk wrk h2load nghttp2-client openssl openssl python3 python3 objcopy binutils
	python3 deploy/pgo.py $(TARGET)
	$(MAKE) release

deb: release
	@.ci/need dpkg-deb dpkg dpkg-shlibdeps dpkg-dev
	python3 deploy/debian/build.py --program $(BUILT) --output $(DIST)

deb-trial: release
	@.ci/need dpkg-deb dpkg dpkg-shlibdeps dpkg-dev openssl openssl curl curl man man-db logrotate logrotate systemctl systemd ip iproute2
	python3 deploy/debian/trial.py --program $(BUILT)
	python3 deploy/debian/systemd_trial.py --program $(BUILT)

sbom:
	@.ci/need python3 python3
	python3 deploy/sbom.py --output $(DIST)/deskgate.cdx.json
	@echo $(DIST)/deskgate.cdx.json

# The whole of deny.toml, with the advisory database in $$ADVISORY_DB or target/advisory-db, which is downloaded unless DENY=--offline.
deny: tools
	@cargo deny --version >/dev/null 2>&1 || { echo "cargo-deny is not installed: cargo install --locked cargo-deny"; exit 1; }
	cargo deny --locked $(DENY) check

# All targets with exactly the oldest Rust that Cargo.toml names, through rustup.
msrv: tools
	cargo +$(shell sed -n 's/^rust-version = "\(.*\)"/\1.0/p' Cargo.toml) check --locked --all-targets

deploy-check:
	@.ci/need python3 python3 pip3 python3-venv node nodejs npm npm
	python3 tests/deployment/run.py

alert-drill: tools
	@.ci/need python3 python3 prometheus prometheus redis-server redis-server faketime faketime openssl openssl
	cargo build --locked
	python3 tests/deployment/alert_drill.py

tools:
	@.ci/need cmake cmake cc gcc
