# Everything a contributor runs. `make help` lists it.
SHELL := /bin/bash
GO    ?= go
SEEDS ?= 100000
FIRST ?= 1
SEED  ?= 0
FAULTS ?= 50

# Packages of Debian that the tests need, and a file of each that tells that it
# is there already.
APT_postgresql := $(wildcard /usr/lib/postgresql/*/bin/initdb)
APT_gcc        := $(shell command -v gcc)
APT_systemd    := $(shell command -v systemd-analyze)
APT_prometheus := $(shell command -v promtool)
APT_nodejs     := $(shell command -v node)
APT_npm        := $(shell command -v npm)

# The parsers for Oracle's SQL. LOBSINK_SKIP_ORACLE_SYNTAX=1 leaves their test out.
ORACLE_PARSERS := deploy/oracle/check/node_modules/.package-lock.json

.DEFAULT_GOAL := help
.PHONY: help build test sim explore sabotage e2e corpus chaos bench scaling lint ci tools-test tools-deploy test-deploy test-oracle

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/lobsink
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/lobsink ./cmd/lobsink

tools-test:
	@missing="$(if $(APT_postgresql),,postgresql) $(if $(APT_gcc),,gcc libc6-dev) \
	  $(if $(LOBSINK_SKIP_ORACLE_SYNTAX),,$(if $(APT_nodejs),,nodejs) $(if $(APT_npm),,npm))"; \
	if [ -n "$${missing// /}" ]; then \
	  if [ "$$(id -u)" != 0 ]; then echo "the tests need: $$missing (run as root, or: sudo apt-get install $$missing)" >&2; exit 1; fi; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	fi
	@$(if $(LOBSINK_SKIP_ORACLE_SYNTAX),true,$(MAKE) -s --no-print-directory $(ORACLE_PARSERS))

$(ORACLE_PARSERS): deploy/oracle/check/package-lock.json
	@cd $(dir $<) && npm ci --silent --no-audit --no-fund --ignore-scripts || \
	  { echo "the parsers for Oracle's SQL could not be installed: npm ci needs an npm registry (LOBSINK_SKIP_ORACLE_SYNTAX=1 leaves their test out)" >&2; exit 1; }
	@touch $@

test: tools-test ## install what the tests need and run them all, with the race detector
	CGO_ENABLED=0 $(GO) build ./...
	$(GO) vet ./...
	CGO_ENABLED=1 $(GO) test -race -timeout 20m ./...

sim: ## run SEEDS seeded worlds from FIRST on (make sim SEEDS=50000)
	$(GO) test ./consumer -run TestWorld -count=1 -timeout 0 -v -args -seeds=$(SEEDS) -first=$(FIRST)

explore: ## walk every interleaving of the small cases of the protocol
	$(GO) test ./consumer -run TestExplore -count=1 -timeout 0 -v -args -explore=long

sabotage: tools-test ## leave out each rule of the protocol once, and see that the tests notice
	$(GO) test ./consumer ./lobwriter/sqlite ./lobwriter/postgres -run TestSabotage -count=1 -timeout 0 -v -args -sabotage

test-oracle: ## run the tests that need a real Oracle: LOBSINK_TEST_ORACLE=USER@CONNECT and LOBSINK_ORACLE_PASSWORD
	CGO_ENABLED=1 $(GO) test -count=1 -timeout 60m -v ./lobwriter/oracle/realtest

e2e: tools-test ## the long form of the end-to-end tests: 20 kills per store
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 60m ./e2e -args -long

corpus: tools-test ## run real XML through the binary into both stores and compare every file
	CGO_ENABLED=1 $(GO) test -count=1 -timeout 60m -v -run Corpus ./e2e -args -corpus=full

# Its stdout is the report alone. exec: what is sent to make's child reaches it.
chaos: ## many members under FAULTS random faults, every document compared (make chaos SEED=7 FAULTS=50; SEED=0: any)
	@$(MAKE) --no-print-directory tools-test >&2
	@CGO_ENABLED=0 $(GO) build -o bin/chaos ./e2e/chaos
	@exec bin/chaos -seed=$(SEED) -faults=$(FAULTS)

bench: ## run the Go benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

scaling: tools-test ## measure 1, 2 and 3 members on PostgreSQL side by side (docs/scaling.md)
	CGO_ENABLED=0 $(GO) test -count=1 -timeout 60m -run TestScaling ./e2e -args -scaling

lint: ## vet, staticcheck and the arrows between packages
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	$(GO) test -count=1 ./internal/arrows

tools-deploy:
	@missing="$(if $(APT_systemd),,systemd) $(if $(APT_prometheus),,prometheus) $(if $(APT_gcc),,gcc libc6-dev)"; \
	if [ -n "$${missing// /}" ]; then \
	  if [ "$$(id -u)" != 0 ]; then echo "test-deploy needs: $$missing (run as root, or: sudo apt-get install $$missing)" >&2; exit 1; fi; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	fi

test-deploy: tools-deploy ## hold what is under deploy against the formats that it is written in
	cd deploy/test && $(GO) vet ./... && CGO_ENABLED=0 $(GO) test -count=1 -timeout 30m ./...
	$(GO) test -count=1 -run '^TestDeploy' ./cmd/lobsink

ci: test test-deploy ## what continuous integration runs
