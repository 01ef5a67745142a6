# `make` lists what there is. Settings are given as `make test PKG=./events/...`.

GO        ?= go
PKG       ?= ./...
RUN       ?= .
ARGS      ?=
P         ?= 2
SEED      ?= 1
TIMEOUT   ?= 15m
BENCH     ?= .
BENCHTIME ?= 1s
COUNT     ?= 1
FUZZTIME  ?= 30s
CHECKS    ?= 20000
DIR       ?= .

GOVULN    := golang.org/x/vuln/cmd/govulncheck@v1.8.0
GOLANGCI  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Go stamps the commit into binaries, and gives up where git does not answer (no commit yet, a folder of another user).
ifneq ($(shell git rev-parse --verify -q HEAD >/dev/null 2>&1 && echo yes),yes)
export GOFLAGS := $(shell $(GO) env GOFLAGS) -buildvcs=false
endif

.DEFAULT_GOAL := help
.PHONY: help run test test-clients tested race lint shape vuln bench bench-cluster bench-compare torture properties \
	build fuzz cover clean deps

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## install PostgreSQL if it is missing, build, and start everything on this machine (ARGS="--listen …")
	@sh deploy/deps.sh run
	@exec bin/turnledger dev $(ARGS)

build: ## build bin/turnledger
	@echo "building; the first build of a machine takes some minutes"
	CGO_ENABLED=0 $(GO) build -o bin/turnledger ./cmd/turnledger

deps: ## install what the tests need (PostgreSQL, Redis, a C compiler, Chromium), where that can be done
	@sh deploy/deps.sh test

# Tests of the whole program run a binary, which is built here once for all packages. Only the long forms have the race
# detector in it: a process with it takes three times the processor, and all processes of a test wait for each other.
test test-clients race torture properties bench bench-cluster cover: \
	export TURNLEDGER_TEST_BINARY := $(CURDIR)/bin/tested/turnledger
torture: TESTED_FLAGS := -race
tested:
	$(GO) run ./deploy/testkit/weaviate/build
	$(GO) build $(TESTED_FLAGS) -o $(CURDIR)/bin/tested/turnledger ./cmd/turnledger

# -count=1: a result may rest on a server or on data that Go's test cache knows nothing of.
# A seed for the property tests: what a build says follows from the code alone. Others are drawn by torture.
test: deps tested ## run every test with the race detector, on real PostgreSQL, Redis and NATS
	RAPID_SEED=$(SEED) CGO_ENABLED=1 $(GO) test -race -count=1 -p $(P) -timeout $(TIMEOUT) -run '$(RUN)' $(PKG)

# The packages come by the lock file from npm's registry. TURNLEDGER_TEST_OPENAPI names OpenAI's own document, which
# every answer is then compared with.
test-clients: tested ## run the official JavaScript clients against the binary (Node 20 or newer, npm)
	@node -e 'if (parseInt(process.versions.node) < 20) throw new Error("Node 20 or newer is needed")'
	cd deploy/clients && npm ci --silent --no-audit --no-fund && npm test

race: deps tested ## hunt for a race: the tests of PKG that match RUN, COUNT times (make race PKG=./events/... COUNT=20)
	CGO_ENABLED=1 $(GO) test -race -count=$(COUNT) -failfast -timeout 1h -run '$(RUN)' $(PKG)

# A test with a long form reads TURNLEDGER_TORTURE; all tests run, so that none is missed for its name. Seeds and
# counts go into docs/reliability.md.
torture: deps tested ## run the fault, cut and soak tests in full (hours), the properties, and each fuzz test for 2 min
	TURNLEDGER_TORTURE=1 CGO_ENABLED=1 $(GO) test -race -v -count=1 -p 1 -timeout 4h -run '$(RUN)' $(PKG)
	@$(MAKE) properties
	@$(MAKE) fuzz FUZZTIME=2m PKG='$(PKG)'

# Only packages that import rapid know its flag. There is no race detector, since more histories find more here. A
# property that needs a server lowers CHECKS by itself (viewtest.Checks, viewtest.AtMost). Each run draws new seeds. A
# failure prints its seed, and is kept in testdata/rapid, where every later run tries it first.
properties: deps tested ## draw CHECKS histories for each property test (of rapid) in PKG that matches RUN
	@set -e; imports=$$($(GO) list -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} \
		{{join .XTestImports " "}}' $(PKG)); \
	pkgs=$$(echo "$$imports" | awk '/ pgregory.net\/rapid/ {print $$1}'); \
	if [ -z "$$pkgs" ]; then echo "no property tests in $(PKG)"; exit 0; fi; \
	$(GO) test -v -count=1 -p 1 -timeout 4h -run '$(RUN)' $$pkgs -rapid.checks=$(CHECKS)

bench: deps tested ## run the benchmarks (BENCH=Record BENCHTIME=5s COUNT=3); figures go into docs/benchmarks.md
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) -p 1 -timeout 2h $(PKG)

bench-cluster: tested ## benchmark three NATS nodes that sync: turns, a killed leader, a second context process
	$(GO) test -run '^$$' -bench ClusterRecordTurn -benchtime 30000x -timeout 1h ./services/history
	$(GO) test -run '^$$' -bench ClusterLeaderKill -benchtime 1x -count 3 -timeout 1h ./services/history
	$(GO) test -run '^$$' -bench ClusterContexts -benchtime 1x -timeout 1h ./cmd/turnledger/systemtest/load

bench-compare: tested ## run turnledger beside bare PostgreSQL, Redis and NATS (ARGS="-workloads W -runs 5")
	@$(GO) build -o bin/compare ./deploy/tools/compare
	@bin/compare -bin bin/tested/turnledger $(ARGS)

fuzz: ## run each fuzz test of PKG for FUZZTIME
	@set -e; for pkg in $$($(GO) list $(PKG)); do \
		for name in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "== $$pkg $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

cover: deps tested ## run every test and report which lines they reach, as bin/cover.html
	@mkdir -p bin
	$(GO) test -count=1 -p $(P) -timeout $(TIMEOUT) -coverpkg ./... -coverprofile bin/cover.out $(PKG)
	$(GO) tool cover -html bin/cover.out -o bin/cover.html
	$(GO) tool cover -func bin/cover.out | tail -1

# The rules of the house are run in their folder, where Go also prints what a test that passes has to say.
lint: ## check form, vet, lint, the rules of the house and module files
	@unformatted=$$(gofmt -l $$($(GO) list -f '{{.Dir}}' ./...)); \
		if [ -n "$$unformatted" ]; then echo "run gofmt -w on: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(GOLANGCI) run --allow-parallel-runners ./...
	@cd deploy/tools/house && GOLANGCI='$(GO) run $(GOLANGCI)' $(GO) test -tags linters -count=1
	$(GO) mod verify
	$(GO) mod tidy -diff

shape: ## measure the source: lines, functions, files, what is declared twice (DIR=another checkout, ARGS=-json)
	@$(GO) run ./deploy/tools/shape $(ARGS) $(DIR)

# Exit 3 of govulncheck means that there are findings. A database that can't be reached is no finding, and is reported.
vuln: ## look for known vulnerabilities in what this code calls (asks vuln.go.dev, or GOVULNDB)
	@GOBIN=$(CURDIR)/bin $(GO) install $(GOVULN)
	@code=0; bin/govulncheck ./... 2>bin/vuln.err || code=$$?; cat bin/vuln.err; \
		if [ $$code = 3 ]; then \
			echo "vulnerabilities were found: raise the versions named above (go get MODULE@VERSION)"; exit 3; fi; \
		if grep -q 'fetching vulnerabilities' bin/vuln.err; then \
			echo "not checked: the database of vulnerabilities does not answer from here"; exit 0; fi; \
		exit $$code

clean: ## remove what was built; data/ stays
	rm -rf bin
