# tideover: `make help` lists the targets.

GO        ?= go
TESTFLAGS ?=
FUZZTIME  ?= 1m
N         ?= 1
RUNS      ?= 10000
KILLS     ?= 100
HARMS     ?= 100
TAKEOVERS ?= 30
FAULTS    ?= 1000
DAMAGES   ?= 1000
SOAK      ?= 10m
SUITES    ?= nethttp h2spec connect grpc
VERSION   ?=
DOCS      ?= dist/docs
BIN       := bin/tideover

# The race detector finds nothing in SQLite, which is translated from C, nor in regexp, and takes most of the time of those
# who use them. The simulator is run with it by itself.
RACE      := -race '-gcflags=modernc.org/...=-race=false -d=checkptr=0' '-gcflags=regexp/...=-race=false' '-gcflags=github.com/tideover/tideover/sim/...=-race=false'
# Tests that are not run with it: pages, and those that repeat one thing so often that they take minutes with it.
UNRACED   := Browser|PageSoak|ADamagedFileIsNoticed|FlowCountsErrors|ReplayJudges|ClusterShowsLargeFlows|TheRecordIsBounded|StrangersAreRefused|ABacklogThatIsTooBig
# Tests of these packages start processes, or share nothing between goroutines. Neither does what imports none of SHARING.
SHARING   := sync|sync/atomic|testing/synctest|context
UNSHARED  := tideover$$|/(cli|clitest/.*|config|detect|plan|doctor|release|simulate|clustertest|natstest|machine|sim)$$
# Comparisons and examples bring much code of others, which takes as long to compile as everything of ours: make test-more.
OTHERS    := /bench(/|$$)|/examples$$|/examples/(anthropic|openai)$$
# What make test leaves to make test-more: pages in a browser and three lists of tests. SERVERS have three servers of NATS, MANY repeat
# one thing by the hundred; both are run with the race detector, as far as UNRACED allows. LONG start many processes.
SERVERS   := TestAChangedStreamIsFound|TestACheckOfAGoodClusterFindsNothing|TestANodeThatIsCutOffDecidesNothing|TestAServerThatIsNotThereIsOneFinding|TestAServerWhoseDiskWasFullIsFound|TestConformanceOfClusters|TestLeasesEndWhenTheQuorumIsAwayTooLong|TestNoLeaseIsLostWhenTheServerThatLeadsTheBucketIsKilled|TestShardsThatNobodyHasAreFound|TestSoak|TestTheLeaderOfALogIsKilled|TestThreeNodesAreCutOffAndKilledAndComeBack|TestWithoutQuorumThereAreClearErrorsAndThenItGoesOn
MANY      := TestClusterCancelOfManyChildren|TestFlowCountsErrors|TestReloadsUnderLoad|TestReplayJudgesAsTheEngine|TestSyncFailures
LONG      := TestAFloodOfConnectionsStopsNothing|TestAKilledServerAnswersEachJobOnce|TestARollingDeploy|TestAStreamWasDeleted|TestMovingHouse|TestNATSServersDie|TestRecipeFlakyTest|TestSecretsOfAClusterAreNowhere|TestServeReadsEveryMessage|TestSessionsInOneFolderNeverCross|TestTheDemoShowsEverythingAndLeavesNothing|TestThreeNodesOnOneLaptop|TestWatchPassesMuchOutputOnWithLittleMemory
SLOW      := Browser|PageSoak|^($(SERVERS)|$(MANY)|$(LONG))
TESTED     = $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' work
OURS       = $(shell $(TESTED) | grep -vE '$(OTHERS)|/sim/advise$$|/clustertest$$')
RACED      = $(shell $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Imports}} {{.TestImports}} {{.XTestImports}}{{end}}' work | \
	grep -E '[[ ]($(SHARING))[] ]' | cut -d' ' -f1 | grep -vE '$(OTHERS)|/sim/advise$$|$(UNSHARED)')
PEERS      = $(shell $(TESTED) | grep -E '$(OTHERS)')
# Without C, as the releases: it links in two thirds of the time. Only the race detector needs C.
# The compiler collects garbage only above 2 GB, uses one core for a package, and writes nothing for debuggers: a third
# less processor time.
GOENV      = CGO_ENABLED=0 GOGC=400 GOFLAGS="$(shell $(GO) env GOFLAGS) '-gcflags=all=-dwarf=false -c=1' '-toolexec=env GOGC=off GOMEMLIMIT=2GiB'"
TESTENV    = TIDEOVER_TEST_COMMAND=$(CURDIR)/$(BIN) $(GOENV)
TEST       = $(TESTENV) $(GO) test -vet=off
RACETEST   = $(TESTENV) CGO_ENABLED=1 $(GO) test -vet=off
export GORACE ?= atexit_sleep_ms=0

.PHONY: help run test test-records test-race test-load test-more test-long test-pages test-others stress check coverage vet apidiff bench bench-durable bench-waiting bench-gateway bench-cluster bench-contend anchors mutate science lint fuzz build clean crash faults damage crash-cluster soak soak-page interop suites man docs pictures recording licenses release release-check advice
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

build: ## build the command into bin/
	$(GOENV) $(GO) build -o $(BIN) ./cmd/tideover

run: build ## the demo: workflows that get through failure, on a page
	@$(BIN) serve --demo

test: build ## all tests but the slow ones; at the end the slowest tests and packages
	$(TESTENV) $(GO) run scripts/test.go $(GO) test -vet=off -p 3 -parallel 4 -skip '$(SLOW)' $(TESTFLAGS) $(OURS)

test-race: build ## what shares memory between goroutines, with the race detector, which needs a C compiler
	$(RACETEST) $(RACE) -p 3 -parallel 4 -timeout 30m $(TESTFLAGS) -skip '$(UNRACED)' $(RACED)
	$(RACETEST) -race $(TESTFLAGS) -run 'SameBytes|TestProgress|StopsWithTheContext|SameAdvice|TestStopping|TestBad' ./sim/...

test-load: build ## a minute of mixed load, reloads and a stop on a command that is built with the race detector
	$(GOENV) CGO_ENABLED=1 $(GO) build $(RACE) -o $(BIN)-race ./cmd/tideover
	$(TESTENV) TIDEOVER_TEST_COMMAND=$(CURDIR)/$(BIN)-race $(GO) test -vet=off $(TESTFLAGS) ./cmd/tideover/internal/clitest/serve -run TestReloadsUnderLoad -reload.for 1m

test-more: test-race test-load test-long test-pages test-others ## what takes long, with -j3: the race detector; statistics, more seeds, processes, clusters; browsers; other libraries, SDKs

test-long: build
	$(TEST) $(TESTFLAGS) ./backoff ./sim/advise ./engine/jetstream/clustertest
	$(TEST) $(TESTFLAGS) -run '^($(LONG))' $(addprefix ./cmd/tideover/internal/clitest/,cluster docs nip90 serve)
	$(TEST) $(TESTFLAGS) -run '^(TestServe|$(LONG))' ./cmd/tideover/internal/clitest/watch -messages.every
	$(TEST) $(TESTFLAGS) -run OfACluster ./cmd/tideover/internal/clitest/secrets -access.every
	$(TEST) $(TESTFLAGS) -run TenThousand ./retryhttp
	$(TEST) $(TESTFLAGS) ./contend -contend.groups 100
	$(TEST) $(TESTFLAGS) ./internal/paxos -paxos.seeds 500
	$(TEST) $(TESTFLAGS) -run 'TestCluster|CrashAtEachPoint|TestBranchFails|TestEditsOfAFlow|TestFlowCountsErrors|TestReplayJudges' ./engine \
		-cluster.seeds 12 -family.size 1000 -crash.every 100ms -branches.pairs -edits.seeds 2 -edits.runs 40 -replay.seeds 2
	$(TEST) $(TESTFLAGS) -run TestConformance ./engine/jetstream -conformance.nodes 3
	$(TEST) $(TESTFLAGS) ./engine/internal/machine -seeds 10

test-pages: build
	$(TEST) $(TESTFLAGS) -run Browser $(addprefix ./cmd/tideover/internal/,web docsite simulate clitest/serve) -layouts all
	$(TEST) $(TESTFLAGS) -run TestPageSoak ./cmd/tideover/internal/web -soak 8s

test-others: build
	$(TEST) $(TESTFLAGS) $(PEERS)
	cd suites/sdk && GOWORK=off $(TEST) $(TESTFLAGS) .

stress: ## make test N times while busy loops, two for each core, take the processor away
	@bash scripts/stress.sh $(N)

check: ## fast: gofmt, go vet, the structure, and unit tests of what differs from the branch BASE, which is main
	@$(GOENV) bash scripts/check.sh

coverage: ## statement coverage of each package by all tests together; BEFORE: a file of an earlier run, to list what is lost
	@PACKAGES='$(OURS) ./sim/advise ./engine/jetstream/clustertest' bash scripts/coverage.sh $(BEFORE)

vet: ## gofmt and go vet
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi
	$(GOENV) $(GO) vet work
	cd suites/sdk && GOWORK=off $(GOENV) $(GO) vet .

apidiff: ## compare the Go API with that of the release, in packaging/api: an incompatible change is an error
	@$(GOENV) bash scripts/apidiff.sh

bench: ## ours beside the peers; writes the tables of docs/benchmarks.md
	bash bench/run.sh

bench-durable: ## the engine beside River and Asynq; writes the tables of docs/durable-benchmarks.md
	bash bench/durable/run.sh

bench-waiting: ## the engine with a million runs that wait; writes the tables of docs/durable-benchmarks.md
	bash bench/durable/waiting.sh

bench-gateway: ## the gateway beside proxies; ROUNDS, SECONDS; writes the tables of docs/gateway-benchmarks.md
	ROUNDS='$(ROUNDS)' SECONDS_EACH='$(SECONDS)' bash bench/gateway/run.sh

bench-cluster: ## the engine on three servers that sync each message
	$(GO) test ./engine/jetstream/clustertest -run '^$$' -bench ThreeNodes -benchtime 100000x -count 3 -timeout 1h

bench-contend: ## writers that collide on PostgreSQL, SQLite and JetStream, beside a loop that waits 10 ms
	@bash bench/durable/contend.sh

crash: ## thousands of runs, the process killed again and again, on a good disk and on one with slow and failing syncs
	$(GO) test ./engine -run TestKilledAgainAndAgain -v -timeout 2h -crash.runs $(RUNS) -crash.kills $(KILLS)
	$(GO) test ./examples/flows -run TestProgramsSurviveKills -v -timeout 20m -kills 30

faults: ## syncs that fail at random points, each followed by a power cut; FAULTS
	$(GO) test ./engine -run TestSyncFailuresAndPowerCuts -v -timeout 2h -faults.rounds $(FAULTS)

damage: ## 1 000 damages of one file each of a data folder with 2 000 runs: opened whole, or refused with a remedy; DAMAGES
	$(GO) test ./engine -run TestADamagedFileIsNoticed -v -timeout 2h -damage.count $(DAMAGES) -damage.runs 2000

crash-cluster: ## the same on a cluster: workers and servers killed, stopped, cut off; HARMS; ten runs that kill workers; and clocks that differ; TAKEOVERS
	$(GO) test ./engine/jetstream/clustertest -run TestClusterKilledAgainAndAgain -v -timeout 2h -crash.runs $(RUNS) -crash.harms $(HARMS)
	$(GO) test ./engine/jetstream/clustertest -run TestClusterFindsKillers -v -timeout 1h -killers 10
	$(GO) test ./engine/jetstream/clustertest -run TestClocksDiffer -v -timeout 1h -clocks.takeovers $(TAKEOVERS)

anchors: ## the simulator shows published results again, at full size
	$(GO) test ./sim -run TestAnchor -v -timeout 1h -anchors

mutate: ## anchors must fail when the library's delays are doubled
	@bash scripts/mutate.sh

advice: ## compare the advice for random services with naive policies; SERVICES and SEED select the services
	$(GO) test ./sim/advise -run TestTheAdviceIsNeverWorse -v -timeout 4h -law $(or $(SERVICES),60) -law-seed $(or $(SEED),1)

science: ## measure what docs/science.md says; writes its tables
	$(GO) test ./sim -run TestScience -timeout 2h -science -update

soak: ## a steady load for SOAK; disk and memory must stay flat
	$(GO) test ./engine -run TestSoak -v -timeout 2h -soak $(SOAK)

soak-page: ## pages in chromium for SOAK, over a million runs of which 10 000 are retried; memory must stay flat
	$(GO) test ./cmd/tideover/internal/web -run TestPageSoak -v -timeout 2h -soak $(SOAK) -soak.runs 1000000

fuzz: ## every fuzz target for FUZZTIME
	@bash scripts/fuzz.sh $(FUZZTIME)

interop: ## a job over a relay and for a customer that are not ours; needs node and npm
	@bash scripts/interop.sh

suites: ## test suites of others, against retryhttp and through the gateway; see CONTRIBUTING.md; SUITES
	@bash suites/run.sh $(SUITES)

test-records: ## what claude, codex and opencode record at a limit, which sessions adopt reads; they are programs in the folder ASSISTANTS
	TIDEOVER_TEST_ASSISTANTS='$(ASSISTANTS)' $(GO) test -tags published ./cmd/tideover/internal/adopt -run Published -v

lint: ## the full lint; installs the pinned linter when it is missing
	@bash scripts/lint.sh

man: build ## the manual pages, into dist/man
	@$(BIN) man dist/man

docs: build ## the documentation as HTML that works without a server, into DOCS
	@$(BIN) docs $(DOCS)

pictures: build ## make docs/run.png anew, in chromium
	$(TEST) -v ./cmd/tideover/internal/clitest/serve -run TestPicturesInABrowser -pictures

recording: build ## make docs/recording.gif anew: exec in a terminal, then a run on the page
	$(TEST) -v ./cmd/tideover/internal/clitest/serve -run TestRecordingInABrowser -pictures

licenses: ## write THIRD_PARTY_LICENSES anew, from what the command links
	@$(GO) run ./cmd/tideover/internal/release licenses cmd/tideover > THIRD_PARTY_LICENSES.new
	@mv THIRD_PARTY_LICENSES.new THIRD_PARTY_LICENSES

release: ## VERSION=v0.1.0: archives, packages, images, an SBOM and a formula of HEAD, with checksums, into dist/
	@bash scripts/release.sh $(VERSION)

release-check: ## try HEAD as a release: modules from a proxy on this disk, files installed in empty roots and removed
	@bash scripts/release-check.sh $(VERSION)

clean: ## remove what was built
	rm -rf bin dist
