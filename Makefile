# `make` lists what there is. Settings are given as `make test PKG=./events/...`.

GO        ?= go
PKG       ?= ./...
RUN       ?= .
ARGS      ?=
P         ?= 4
PARALLEL  ?= 6
SEED      ?= 1
TIMEOUT   ?= 30m
BENCH     ?= .
BENCHTIME ?= 1s
COUNT     ?= 1
FUZZTIME  ?= 30s
CHECKS    ?= 20000

GOVULN    := golang.org/x/vuln/cmd/govulncheck@v1.8.0
GOLANGCI  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Without the folder's path in what is compiled, one clone finds in Go's cache what another has compiled.
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath
# Go stamps the commit into binaries, and gives up where git does not answer (no commit yet, a folder of another user).
ifneq ($(shell git rev-parse --verify -q HEAD >/dev/null 2>&1 && echo yes),yes)
export GOFLAGS += -buildvcs=false
endif

.DEFAULT_GOAL := help
.PHONY: help run test race e2e alone test-clients tested weaviate lint vuln bench bench-cluster bench-compare torture properties \
	build dist fuzz cover clean deps

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## install PostgreSQL if it is missing, build, and start everything on this machine (ARGS="--listen …")
	@sh deploy/deps.sh run
	@exec bin/turnledger dev $(ARGS)

build: ## build bin/turnledger
	@echo "building; the first build of a machine takes some minutes"
	CGO_ENABLED=0 $(GO) build -o bin/turnledger ./cmd/turnledger

# What is released. Nothing of the machine or of the folder goes into a binary, so that every clean clone of a commit
# gives the same sums.
VERSION  ?= $(shell sed -n 's/^\#\# \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md | head -1)
DIST     := bin/dist
STAMPED  := -buildvcs=$(shell git rev-parse --verify -q HEAD >/dev/null 2>&1 && echo true || echo false)
dist: export CGO_ENABLED := 0
dist: export GOAMD64 := v1
dist: export GOARM64 := v8.0
dist: ## build what is released into bin/dist: static binaries for Linux and macOS, and their checksums
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@set -e; for target in linux/amd64 linux/arm64 darwin/arm64; do \
		file=$(DIST)/turnledger-$${target%/*}-$${target#*/}; echo "building $$file"; \
		GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build $(STAMPED) -ldflags '-s -w -buildid= -X main.version=$(VERSION)' \
			-o $$file ./cmd/turnledger; \
		[ $$(wc -c <$$file) -le 94371840 ] || { echo "$$file is larger than 90 MB" >&2; exit 1; }; \
	done
	@cd $(DIST) && { sha256sum turnledger-* 2>/dev/null || shasum -a 256 turnledger-*; } >checksums.txt && cat checksums.txt

deps: ## install what all tests need (PostgreSQL, Redis, a C compiler, Chromium, npm), where that can be done
	@sh deploy/deps.sh e2e

# The lanes. Tests of the whole program run a binary that is built here once, and share one PostgreSQL; each has a
# database of its own there.
LANES := test race e2e alone torture properties bench bench-cluster cover
$(LANES) test-clients: export TURNLEDGER_TEST_BINARY := $(CURDIR)/bin/tested/turnledger
$(LANES): SHARED := $(CURDIR)/bin/tested/postgres
# Only the long forms have the race detector in the binary: a process with it takes three times the processor, and all
# processes of a test wait for each other.
torture: TESTED_FLAGS := -race
tested:
	@$(GO) build -o $(CURDIR)/bin/tested/postgres ./deploy/testkit/pg/shared
	$(GO) build $(TESTED_FLAGS) -o $(CURDIR)/bin/tested/turnledger ./cmd/turnledger

weaviate:
	@$(GO) run ./deploy/testkit/weaviate/build

# -count=1: a result may rest on a server or on data that Go's test cache knows nothing of. Every run links the tests of
# all packages anew; without DWARF (-w) that takes half as long.
LINK := -ldflags=-w
# P packages at once, and PARALLEL tests of each: they wait for disks, elections and clocks more than they compute.
# A seed for the property tests: what a build says follows from the code alone. Others are drawn by torture.
test: tested ## run the tests of every package on real NATS, PostgreSQL and Redis, and the program as a black box
	@sh deploy/deps.sh test
	RAPID_SEED=$(SEED) $(SHARED) $(GO) test $(LINK) -count=1 -p $(P) -parallel $(PARALLEL) -timeout $(TIMEOUT) -run '$(RUN)' $(PKG)

# The packages in whose own code something runs beside something else.
CONCURRENT = $$(grep -rlE --include='*.go' --exclude='*_test.go' '\bgo (func|[a-zA-Z_.]+)\(|"sync(/atomic)?"|/errgroup"' \
	events projections services cmd docs deploy/testkit | xargs -n1 dirname | sort -u | sed 's,^,./,')
race: tested ## run packages with goroutines under the race detector (hunt: PKG=./events/... RUN=Append COUNT=20)
	@sh deploy/deps.sh race
	RAPID_SEED=$(SEED) CGO_ENABLED=1 $(SHARED) $(GO) test $(LINK) -race -count=$(COUNT) -failfast -p $(P) -timeout 1h \
		-run '$(RUN)' $(if $(filter ./...,$(PKG)),$(CONCURRENT),$(PKG))

# One package after the other: a page of statistics does not answer in its two seconds beside a deployment that fails and
# is filled again. The view in Weaviate has its tests here, so they have the race detector here.
e2e: tested weaviate ## run a browser, a cluster, the deployments, Weaviate, S3, OpenAI's clients, and what measures memory
	@sh deploy/deps.sh e2e
	$(SHARED) $(GO) test -C deploy/e2e -count=1 -p 1 -timeout 30m -run '$(RUN)' ./browser ./deployment ./mutate
	RAPID_SEED=$(SEED) CGO_ENABLED=1 $(SHARED) $(GO) test -C deploy/e2e -race -count=1 -timeout 30m -run '$(RUN)' ./weaviate
	@if command -v node >/dev/null; then $(MAKE) test-clients; \
		else echo "no node on this machine: the tests of the official JavaScript clients were not run" >&2; fi
	@$(MAKE) alone

# Tests that measure memory have the build tag alone: nothing runs beside them, and no race detector in them.
alone: tested
	@set -e; for file in $$(grep -rl --include='*_test.go' '^//go:build.*\balone\b' events projections services cmd); do \
		names=$$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' $$file | paste -sd'|' -); \
		$(SHARED) $(GO) test -tags alone -count=1 -parallel 1 -timeout $(TIMEOUT) -run "^($$names)$$" ./$$(dirname $$file); \
	done

# The packages come by the lock file from npm's registry. TURNLEDGER_TEST_OPENAPI names OpenAI's own document, which
# every answer is then compared with.
test-clients: tested ## run the official JavaScript clients and our npm package against the binary (Node 20 or newer)
	@node -e 'if (parseInt(process.versions.node) < 20) throw new Error("Node 20 or newer is needed")'
	cd deploy/clients && npm ci --silent --no-audit --no-fund && npm test
	cd services/client/typescript && npm ci --silent --no-audit --no-fund && npm test

# A test with a long form reads TURNLEDGER_TORTURE; all tests run, so that none is missed for its name. Seeds and
# counts go into docs/reliability.md.
torture: deps tested weaviate ## run the fault, cut and soak tests in full (hours), the properties, each fuzz test for 2 min
	TURNLEDGER_TORTURE=1 CGO_ENABLED=1 $(GO) test -race -v -count=1 -p 1 -timeout 4h -run '$(RUN)' $(PKG)
	TURNLEDGER_TORTURE=1 CGO_ENABLED=1 $(GO) test -C deploy/e2e -race -v -count=1 -p 1 -timeout 4h -run '$(RUN)' \
		./browser ./deployment ./weaviate
	@TURNLEDGER_TORTURE=1 $(MAKE) alone
	@$(MAKE) properties
	@$(MAKE) fuzz FUZZTIME=2m PKG='$(PKG)'

# Only packages that import rapid know its flag. There is no race detector, since more histories find more here. A
# property that needs a server lowers CHECKS by itself (viewtest.Checks, viewtest.Draws). Each run draws new seeds. A
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
	$(GO) test -run '^$$' -bench ClusterRecordTurn -benchtime 30000x -timeout 1h ./services/write
	$(GO) test -run '^$$' -bench ClusterLeaderKill -benchtime 1x -count 3 -timeout 1h ./services/write
	$(GO) test -run '^$$' -bench ClusterContexts -benchtime 1x -timeout 1h ./cmd/turnledger/systemtest

bench-compare: tested ## run turnledger beside bare PostgreSQL, Redis and NATS (ARGS="-workloads W -runs 5")
	@$(GO) build -C deploy/e2e -o $(CURDIR)/bin/compare ./compare
	@bin/compare -bin bin/tested/turnledger $(ARGS)

fuzz: ## run each fuzz test of PKG that matches RUN for FUZZTIME
	@set -e; for pkg in $$($(GO) list $(PKG)); do \
		for name in $$($(GO) test -list '$(RUN)' $$pkg | grep '^Fuzz' || true); do \
			echo "== $$pkg $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

cover: deps tested weaviate ## run the tests of every package and of Weaviate, and report which lines they reach, as bin/cover.html
	@mkdir -p bin
	$(SHARED) $(GO) test -count=1 -p $(P) -timeout $(TIMEOUT) -coverpkg ./... -coverprofile bin/cover.out $(PKG)
	$(SHARED) $(GO) test -C deploy/e2e -count=1 -timeout 30m -coverpkg github.com/turnledger/turnledger/... \
		-coverprofile $(CURDIR)/bin/cover.e2e.out ./weaviate
	@tail -n +2 bin/cover.e2e.out >>bin/cover.out
	$(GO) tool cover -html bin/cover.out -o bin/cover.html
	$(GO) tool cover -func bin/cover.out | tail -1

# The rules of the house are run in their folder, where Go also prints what a test that passes has to say.
lint: ## check form, vet, lint and module files of both modules, and the rules of the house
	@unformatted=$$(gofmt -l cmd deploy docs events projections services); \
		if [ -n "$$unformatted" ]; then echo "run gofmt -w on: $$unformatted"; exit 1; fi
	@set -e; for module in . deploy/e2e; do cd $(CURDIR)/$$module; \
		$(GO) vet -tags alone ./...; \
		$(GO) run $(GOLANGCI) run --allow-parallel-runners ./...; \
		$(GO) mod verify; $(GO) mod tidy -diff; done
	@cd deploy/e2e/house && $(GO) test -count=1

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
