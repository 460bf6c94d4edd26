//go:build unix

package cli

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// smallService describes a service whose simulation takes milliseconds. What is advised is tested in sim/advise.
var smallService = []string{"advise", "--rate", "3", "--latency", "50ms", "--errors", "5%", "--outage", "5s", "--seeds", "2"}

func TestAdvise(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, append(smallService, "--success", "98%", "--load", "1.5")...)
	policy := advisedPolicy(t, got.Out)
	if p, err := retry.Parse(policy); err != nil || p.Attempts < 2 || got.Code != 0 || withoutProgress(got.Stderr) != "" {
		t.Fatalf("%d %q: %v\n%s", got.Code, got.Stderr, err, got.Out)
	}
	for _, want := range []string{"This policy reaches the goal.\n", "goal: success >= 98 %, load <= 1.50", "Why\n  retries ", "compared with one attempt", "ordinary: better: success 9"} {
		if !strings.Contains(got.Out, want) {
			t.Errorf("nothing about %q in\n%s", want, got.Out)
		}
	}
}

// advisedPolicy returns the policy of the output: the line after the first line, which says whether it
// reaches the goal, and an empty line.
func advisedPolicy(t *testing.T, out string) string {
	t.Helper()
	lines := strings.Split(out, "\n")
	if len(lines) < 3 || lines[1] != "" {
		t.Fatalf("no policy in the third line of\n%s", out)
	}
	return lines[2]
}

// withoutProgress removes the lines that report the progress of a simulation on a slow machine.
func withoutProgress(stderr string) string {
	return regexp.MustCompile(`(?m)^simulated \d+ of about \d+ runs\n`).ReplaceAllString(stderr, "")
}

// A value of 0 says that there is none, and is not the default.
func TestAdviseJSON(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, append(smallService, "--errors", "0", "--black-holes", "0", "--success", "99%", "--seed", "1", "--workers", "1", "--json")...)
	var a advise.Advice
	if err := json.Unmarshal([]byte(got.Out), &a); err != nil || got.Code != 0 || !a.Reached || len(a.Outcomes) != 3 || a.Outcomes[0].Success.Mean != 1 {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestAdviseOfWhatCannotBe(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "advise", scenarioFile(t, quickSim), "--p99", "1ms", "--seeds", "2")
	for _, want := range []string{"policies that were tried reaches the goal. This one does the least harm", "  quick: goal is p99 of at most 0.001 s, got "} {
		if !strings.Contains(got.Out, want) || got.Code != CodeFailed {
			t.Errorf("%d, nothing about %q in\n%s", got.Code, want, got.Out)
		}
	}
}

func TestAdviseOfAScenario(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "advise", scenarioFile(t, quickSim), "--success", "90%", "--seeds", "2")
	if got.Code != 0 || !strings.Contains(got.Out, "quick") {
		t.Errorf("%+v", got)
	}
}

func TestAdviseRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	file := scenarioFile(t, strings.Replace(quickSim, "count: 20, arrivals: open, rate: 40", "count: 20000000, arrivals: herd", 1))
	got := clitest.Run(t, "advise", file, "--success", "99%")
	clitest.WantCode(t, got, CodeOwn)
	clitest.WantIn(t, "stderr", got.Stderr, "clients.count: 20000000 calls at once take ")
}

func TestAdviseMistakes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args string
		want string
	}{
		{"", "no goal: give at least one of"},
		{"--success 99%", "the service is not described: give at least --rate and --latency"},
		{"--rate 10 --latency 1s", "no goal: give at least one of"},
		{"--rate -1 --latency 1s --success 99%", "rate: -1"},
		{"--rate 10 --capacity 5 --latency 1s --success 99%", "capacity: 5 is not above the rate"},
		{"--rate 10 --latency 1s --success 101%", `"101%" is not a share`},
		{"--rate 10 --latency 1s --success 1", "success: 1 is not a share below 1"},
		{"--rate 10 --latency 1s --load 0.5", "amplification: 0.5 is below 1"},
		{"--rate 10 --latency 1s --success 99% --seeds 1", "--seeds: 1"},
		{"--rate 10 --latency 1s --success 99% --workers -1", "--workers: -1 is not between 0 and 1000000"},
		{"--rate 10 --latency 1s --success 99% --policy fixed", `--policy: `},
		{"--rate 10 --latency 1s --success 99% --policy today=http --policy today=default", `--policy: the name "today" is used already`},
		{"--rate 10 --latency 1s --success 99% --policy http --policy own-1=default", `--policy: the name "own-1" is used already`},
		{"--rate 10 --latency 1s --success 99% --policy advised=http", `--policy: the name "advised" is used already`},
		{"--rate 10 --latency 1s --success 99% --policy exponential=http", `--policy: the name "exponential" is used already`},
		{"missing.yaml --success 99%", "missing.yaml: no such file"},
		{"outage --rate 10 --success 99%", "--rate describes a service, and scenario"},
		{"nowhere --success 99%", "nowhere"},
		{"herd hedge --recovery 1s", "has no failure that ends"},
	} {
		got := clitest.Run(t, append([]string{"advise"}, strings.Fields(test.args)...)...)
		if got.Code != CodeOwn || !strings.Contains(got.Stderr, test.want) || got.Out != "" {
			t.Errorf("advise %s: %d\n%s%s\nwant %q", test.args, got.Code, got.Out, got.Stderr, test.want)
		}
	}
}

func TestAdviseShowsItsScenarios(t *testing.T) {
	t.Parallel()
	dir, pages := filepath.Join(t.TempDir(), "show"), t.TempDir()
	got := clitest.Run(t, append(smallService, "--success", "98%", "--shape", "lognormal", "--queue", "20", "--shedding",
		"--policy", "fixed(2s)  attempts=2", "--policy", "today=fixed(1s) attempts=2", "--show", dir, "--html", pages, "--json")...)
	var a advise.Advice
	if err := json.Unmarshal([]byte(got.Out), &a); err != nil || got.Code != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	for _, o := range a.Outcomes {
		shown := clitest.Run(t, "sim", filepath.Join(dir, o.Scenario+".yaml"), "--json")
		var r sim.Report
		if err := json.Unmarshal([]byte(shown.Out), &r); err != nil || shown.Code != 0 {
			t.Fatalf("%v: %+v", err, shown)
		}
		if r.Results[0].Name != "advised" || r.Results[0].Policy != a.Policy || len(r.Results) != 6 {
			t.Errorf("%s: the first policy of %d is %s, want the advised one, %s", o.Scenario, len(r.Results), r.Results[0].Policy, a.Policy)
		}
		// The same scenario gives the same success, but for the noise of five short runs.
		if diff := math.Abs(r.Results[0].Success.Mean - o.Success.Mean); diff > 3*(r.Results[0].Success.Half+o.Success.Half)+0.01 {
			t.Errorf("%s: success %v with sim, %v with advise", o.Scenario, r.Results[0].Success, o.Success)
		}
		if page, err := os.ReadFile(filepath.Join(pages, o.Scenario+".html")); err != nil || !strings.Contains(string(page), "advised") {
			t.Errorf("%s: no page: %v", o.Scenario, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "ordinary.yaml"))
	for _, want := range []string{"distribution: lognormal", "queue: 20", "deadlines: true", "own-1: fixed(2s) attempts=2 total-timeout=30s", "today: fixed(1s) attempts=2 total-timeout=30s"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: nothing about %q in\n%s", err, want, text)
		}
	}
}
