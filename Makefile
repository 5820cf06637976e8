# outlog. `make` alone lists what can be made; meson.build says how it is built.
#
# Every target sets itself up first: on Debian it installs the packages it needs, elsewhere it
# says what is missing. PREFIX and DESTDIR are honoured by `make install`.

PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
TORTURE_ROWS ?= 100000

.DEFAULT_GOAL := help
.PHONY: help setup build run tour test bench lint install san tsan fuzz torture fresh clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | \
	    awk -F '\t' '{printf "  make %-8s  %s\n", $$1, $$2}'

setup: ## install every package that building, testing and linting need
	@scripts/setup build test lint

build: ## compile into build/: outlog, liboutlog, the SQLite extension
	@scripts/setup build
	@scripts/build build --prefix=$(PREFIX)

run: build ## outlog with a console and a small shop, on SQLite or STORE=postgres://…
	@scripts/run $(if $(STORE),'$(STORE)')

tour: build ## the log from the command line, step by step, on SQLite or STORE=postgres://…
	@scripts/tour $(if $(STORE),'$(STORE)')

test: ## every test, on SQLite and on a PostgreSQL of its own
	@scripts/setup build test
	@scripts/test

bench: ## measure this machine, print ratios; BENCH='--full --save' or '--only relay'
	@scripts/setup build test
	@scripts/setup bench
	@scripts/bench $(BENCH)
	@[ -n "$(BENCH)" ] || scripts/bench-brokers

lint: ## formatting, include directions, static analysis
	@scripts/setup build lint
	@scripts/lint

install: build ## install into PREFIX (/usr/local), below DESTDIR
	@DESTDIR='$(DESTDIR)' meson install -C build --no-rebuild --quiet
	@if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi
	@echo 'installed $(DESTDIR)$(PREFIX)/bin/outlog'

san: ## the tests under AddressSanitizer and UBSan
	@scripts/setup build test
	@scripts/test --sanitize address,undefined

tsan: ## the tests under ThreadSanitizer
	@scripts/setup build test
	@scripts/test --sanitize thread

fuzz: ## each fuzzer for FUZZ_SECONDS (60)
	@scripts/setup build fuzz
	@scripts/fuzz $(FUZZ_SECONDS)

torture: ## the long ones: TORTURE_ROWS (100000) rows and a reader that misses none; 1,000 sockets under fire
	@scripts/setup build test
	@OUTLOG_TORTURE_ROWS=$(TORTURE_ROWS) scripts/test --only torture

fresh: ## make run and make test on an empty Debian, made for it; FRESH=--quick for a part of the tests
	@scripts/setup fresh
	@scripts/fresh $(FRESH)

clean: ## remove what was built
	@rm -rf build build-*
