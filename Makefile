SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN       := bin/routerd
TOOL      := go tool -modfile=tools/go.mod
VERSION    = $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PKG       ?= ./...
RUN       ?= .
FUZZTIME  ?= 20s
FUZZ      ?= .
BENCH     ?= .
BENCHTIME ?= 1s
COUNT     ?= 1

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z0-9-]*:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## Install what the build needs and this machine lacks, or say what it is
	@scripts/deps.sh build

# The go command decides what is stale, so the binary is never a file target.
.PHONY: build
build: deps ## Build bin/routerd
	go build -ldflags '-X main.version=$(VERSION)' -o $(BIN) ./cmd/routerd

.PHONY: run
run: plugins ## Start the demo: simulated engines, the router, a Wasm policy
	$(BIN) demo

.PHONY: plugins
plugins: build ## Build every Go plugin of plugins/examples into dist/plugins
	scripts/plugins.sh

.PHONY: test
test: deps ## Run the tests (PKG=./core/... RUN=TestName); budget 5 minutes
	scripts/test.sh -run '$(RUN)' $(PKG)

.PHONY: race
race: deps ## Run the tests under the race detector
	go test -race -timeout 15m -run '$(RUN)' $(PKG)

.PHONY: bits
bits: deps ## Run the tests of equal bits under GOAMD64=v1 and v3
	scripts/bits.sh

.PHONY: invariants
invariants: deps ## Run the index's tests with its invariants checked at each step, and with short runs
	go test -timeout 10m -tags indexcheck ./indexer/approx ./indexer/exact ./indexer/predicted ./indexer/runtrie
	go test -timeout 10m -tags indexcheck,shortruns ./indexer/approx ./indexer/exact ./indexer/predicted ./indexer/runtrie
	go test -timeout 10m -tags shortruns -run 'Model' ./indexer/approx ./indexer/exact ./indexer/predicted ./indexer/runtrie

.PHONY: soak-index
soak-index: deps ## Compare the index with its models by ever new sequences for SOAK_TIME (10m) each, runs of 4 and 128 blocks
	SOAK_TIME=$${SOAK_TIME:-10m} go test -timeout 0 -count 1 -v -run '^TestSoak' -tags soak,indexcheck,shortruns ./indexer/exact ./indexer/runtrie
	SOAK_TIME=$${SOAK_TIME:-10m} go test -timeout 0 -count 1 -v -run '^TestSoak' -tags soak,indexcheck ./indexer/exact ./indexer/runtrie

.PHONY: fuzz
fuzz: deps ## Run each fuzz test (FUZZ=PATTERN) for FUZZTIME (20s)
	scripts/fuzz.sh $(FUZZTIME) '$(FUZZ)'

.PHONY: e2e
e2e: plugins ## Run the tests tagged e2e: small sizes, official Python clients
	scripts/e2e.sh e2e

.PHONY: soak
soak: plugins ## Run the tests that have a full size (tag soak) in it: about an hour
	E2E_TIMEOUT=$${E2E_TIMEOUT:-120m} scripts/e2e.sh e2e,soak

.PHONY: bench
bench: deps ## Run the benchmarks (PKG, BENCH, BENCHTIME, COUNT)
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(COUNT) -timeout 60m $(PKG)

.PHONY: bench-policy
bench-policy: deps ## Measure a decision in all its forms, Extism's too; writes docs/benchmarks/policy.*
	scripts/bench-policy.sh

.PHONY: bench-index
bench-index: deps ## Measure the exact index and Dynamo's trees (FLEETS, DEPTHS, OUT); writes docs/benchmarks/index.*
	FLEETS='$(FLEETS)' DEPTHS='$(DEPTHS)' OUT='$(OUT)' scripts/bench-index.sh

.PHONY: bench-ingest
bench-ingest: deps ## Measure KV events from the socket to the index (OUT); writes docs/benchmarks/ingest.md
	OUT='$(OUT)' scripts/bench-ingest.sh

.PHONY: bench-core
bench-core: deps ## Measure a whole booking and the native default policy (BENCH_DYNAMO=FILE: in turns with that rig)
	go test -run '^$$' -bench '^Benchmark(Core|SelectReserveFree|KVAware)$$' -timeout 30m ./bench ./core ./core/policy

.PHONY: bench-selection
bench-selection: deps ## Measure the selection service in a process of its own: CPU and time of a call
	go test -run '^$$' -bench '^BenchmarkSelection$$' -benchtime $(BENCHTIME) -timeout 30m ./bench

.PHONY: schemathesis
schemathesis: build ## Send requests made from our OpenAPI to the selection service (EXAMPLES, SEED)
	scripts/schemathesis.sh

.PHONY: oracle
oracle: build ## Compare the selection service with Dynamo's: N random fleets (1000) from SEED
	scripts/oracle.sh

.PHONY: benchstat
benchstat: ## Compare two outputs of make bench (OLD=file NEW=file)
	$(TOOL) benchstat $(OLD) $(NEW)

.PHONY: fmt
fmt: ## Format the Go files and sort their imports
	scripts/fmt.sh

.PHONY: lint
lint: deps ## Run golangci-lint with .golangci.yml
	scripts/lint.sh $(PKG)

.PHONY: arch
arch: deps ## Check layers, package names and file sizes
	go test -count=1 ./internal/archtest

.PHONY: deadcode
deadcode: deps ## List functions that neither a command nor a test reaches
	$(TOOL) deadcode -test ./...

.PHONY: generate
generate: deps ## Run go generate
	go generate ./...

.PHONY: check-fast
check-fast: deps ## Before each commit: format, vet, lint of what changed, short tests
	scripts/fmt.sh --check
	go vet ./...
	$(TOOL) golangci-lint run --allow-serial-runners --new-from-rev=HEAD ./...
	go test -short -timeout 5m ./...

.PHONY: check
check: deps ## Before a change is proposed: generate, tidy, format, lint, layers, race
	scripts/check.sh

.PHONY: clean
clean: ## Remove bin, dist and .cache
	rm -rf bin dist .cache
