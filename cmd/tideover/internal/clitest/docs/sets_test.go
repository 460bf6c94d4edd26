//go:build unix

package docs_test

import (
	"os"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
	"github.com/tideover/tideover/internal/testfile"
)

// testedElsewhere has the commands of the pages that TestTheCommandsOfThePagesRun does not run. The
// key is a page and the beginning of a command. The value is the test of this package that runs the
// command or a similar one, or the reason why no test can run it.
var testedElsewhere = map[string]string{
	"workflows-howto.md: tideover signal":                       "TestSignalsAndAnswers",
	"workflows-howto.md: tideover callback":                     "TestCallbackOfTheCommand",
	"workflows-howto.md: tideover show":                         "TestShowHistory",
	"advise.md: tideover advise":                                "TestAdvise",
	"chaos.md: tideover chaos --quiet 503":                      "TestRecipeTwoRetries",
	"chaos.md: tideover exec --policy 'fixed(100ms)":            "TestRecipeTwoRetries",
	"chaos.md: tideover chaos --quiet 'rate=5/s":                "TestRecipeClientsAndALimit",
	"chaos.md: tideover chaos --quiet --file":                   "TestRecipeOutage",
	"chaos.md: tideover exec --policy 'exponential(200ms":       "TestRecipeOutage",
	"cluster-howto.md: tideover doctor":                         "TestNATSServersDie",
	"cluster-howto.md: tideover serve":                          "TestNATSServersDie",
	"cluster-howto.md: tideover cluster":                        "TestTwoServersShareACluster",
	"cluster.md: tideover cluster":                              "TestTwoServersShareACluster",
	"cluster.md: TIDEOVER_ENGINE_MEMBER":                        "TestThreeNodesOnOneLaptop",
	"cluster.md: tideover runs --watch":                         "TestThreeNodesOnOneLaptop",
	"cluster-howto.md: tideover backup --without-shard":         "TestAStreamWasDeleted",
	"cluster-howto.md: tideover move --without-shard":           "TestAStreamWasDeleted",
	"cluster-howto.md: tideover move --dry-run --without-shard": "TestAStreamWasDeleted",
	"cluster-howto.md: tideover move":                           "TestMovingHouse",
	"detect.md: tideover detect --explain --pack":               "TestDetectWithAPackOfOnesOwn",
	"detect.md: tideover detect --explain --config":             "TestDetectWithAPackOfOnesOwn",
	"gateway.md: OPENAI_API_KEY":                                "TestThePagesOfTheGatewayWork",
	"gateway.md: tideover":                                      "TestTheTutorialOfTheGatewayWorks",
	"engine.md: tideover serve --config":                        "TestRunsOfAStoppedProgram",
	"gateway-howto.md: tideover providers":                      "TestThePagesOfTheGatewayWork",
	"gateway-howto.md: tideover requests":                       "TestThePagesOfTheGatewayWork",
	"install.md: tideover status":                               "needs the container of the page",
	"nip90.md: tideover nip90 request --relay":                  "TestARequestIsAnswered",
	"nip90.md: tideover nip90 request --key-file":               "TestATaskFromAPipeWithAKeyAndDetached",
	"nip90.md: tideover nip90 watch":                            "TestWatchShowsWhatPasses",
	"operations.md: tideover doctor":                            "TestTheDoctorLooksAtAFolder", // its findings depend on the file system of the temporary folder
	"operations.md: tideover retry --latest":                    "TestADeadRunIsRepairedByFixingTheFile",
	"recipes.md: tideover exec --attempts 3 --attempt":          "TestRecipeFlakyTest",
	"recipes.md: tideover exec --policy 'fixed(1s)":             "TestRecipeDatabase",
	"recipes.md: tideover watch --name prices":                  "TestRecipeRetryAfter",
	"recipes.md: tideover watch --name todo":                    "TestRecipeOverNight",
	"recipes.md: tideover sessions":                             "TestRecipeOverNight",
	"recipes.md: tideover config check":                         "TestRecipeSystemdUnit",
	"recipes.md: tideover notify test":                          "TestRecipePhone",
	"recipes.md: tideover exec --attempts 2 --notify phone":     "TestRecipePhone",
	"yaml-recipes.md: tideover run":                             "TestRecipeDeploy",
	"yaml-recipes.md: tideover approve":                         "TestRecipeDeploy",
	"yaml-recipes.md: tideover signal":                          "TestRecipeSignal",
	"yaml-recipes.md: tideover answer":                          "TestRecipeChoice",
	"serve-file.md: tideover show order-4711 --output":          "TestOutputOfAFailedStep",
	"serve.md: tideover serve --demo":                           "TestTheDemoShowsEverythingAndLeavesNothing",
	"page.md: tideover serve --demo":                            "TestTheDemoShowsEverythingAndLeavesNothing",
	"serve.md: tideover config check":                           "TestTheTutorialWorks",
	"serve.md: tideover serve":                                  "TestTheTutorialWorks",
	"serve.md: tideover run":                                    "TestTheTutorialWorks",
	"serve.md: tideover dead":                                   "TestTheTutorialWorks",
	"serve.md: tideover show":                                   "TestTheTutorialWorks",
	"serve.md: tideover retry":                                  "TestTheTutorialWorks",
	"commands.md: tideover run":                                 "TestTheTutorialWorks",
	"tls.md: tideover status":                                   "TestServeSpeaksTLS",
	"sessions.md: tideover":                                     "TestTheTutorialOfSessions",
	"sessions-howto.md: tideover sessions":                      "TestTheCommandsForSessionsOnARealWatch",
	"sim.md: tideover sim metastable":                           "TestSimRuns",
}

// laterToday returns the time of day in about two hours, such as 3pm. It is never 11am or 12pm:
// docs/detect.md uses noon.
func laterToday() string {
	at := time.Now().UTC().Add(2 * time.Hour)
	for at.Hour() == 11 || at.Hour() == 12 {
		at = at.Add(time.Hour)
	}
	return at.Format("3pm")
}

// pageSetups maps a page to a function that creates the files and programs that its commands need.
var pageSetups = map[string]func(*clitest.Recipe){
	"../README.md": func(k *clitest.Recipe) {
		flaky, err := os.ReadFile(testfile.Repository(k.T, "examples", "flaky.sh"))
		if err != nil {
			k.T.Fatal(err)
		}
		k.Write(k.Path("examples/flaky.sh"), string(flaky), 0o700)
		k.Fake("claude", `echo "5-hour limit reached · resets `+laterToday()+`"; exit 1`)
		k.Env = append(k.Env, "OPENAI_API_KEY=x")
	},
	"detect.md": func(k *clitest.Recipe) {
		k.Write(k.Path("session.log"), "Working.\nThe test covers \"5-hour limit reached · resets 3am\" too.\n"+
			"529 Overloaded · Retrying in 4s · attempt 6/10\n5-hour limit reached · resets "+laterToday()+"\n", 0o600)
	},
	"exec.md": func(k *clitest.Recipe) {
		for _, name := range []string{"curl", "go", "nc"} {
			k.Fake(name, "")
		}
		k.Write(k.Path("fetch"), "#!/bin/sh\ntest \"$TIDEOVER_ATTEMPT\" -ge 2 || exit 75\necho '{}'\n", 0o700)
		k.Write(k.Path("job"), "#!/bin/sh\necho status: done\n", 0o700)
	},
	"operations.md": func(k *clitest.Recipe) {
		k.Configured(clitest.Blocks(k.T, "operations.md", "yaml")[0])
		k.Write(k.Path("charge.sh"), "#!/bin/sh\n", 0o700)
		k.Env = append(k.Env, "TIDEOVER_SERVER=unix:./data/tideover.sock")
	},
}
