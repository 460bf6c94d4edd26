//go:build linux

package clustertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// attemptKey identifies an attempt of a run.
type attemptKey struct {
	step    string
	attempt int
}

// observation is what the witness file says about an attempt.
type observation struct {
	begin, end int64
	outcome    string
}

// readWitness parses the witness file, by run.
func readWitness(t *testing.T, dir string) map[string]map[attemptKey]observation {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "witness"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]map[attemptKey]observation{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[1] == "sent" {
			continue // an event of a family
		}
		at, err1 := strconv.ParseInt(f[0], 10, 64)
		attempt, err2 := strconv.Atoi(f[4])
		if err1 != nil || err2 != nil {
			t.Fatalf("invalid line of the witness file: %q", line)
		}
		key, d := f[2], attemptKey{f[3], attempt}
		if seen[key] == nil {
			seen[key] = map[attemptKey]observation{}
		}
		s := seen[key][d]
		switch f[1] {
		case "begin":
			if s.begin != 0 {
				t.Errorf("%s: attempt %d of step %s was made twice", key, d.attempt, d.step)
			}
			s.begin = at
		case "end":
			s.end, s.outcome = at, f[5]
		}
		seen[key][d] = s
	}
	return seen
}

// checkRun checks one run, and returns how many of its attempts were lost.
func checkRun(t *testing.T, i *engine.Info, seen map[attemptKey]observation) (lost int) {
	t.Helper()
	if !i.Finished() {
		t.Errorf("%s is %s", i.Key, i.State)
	}
	known, dead := 0, false
	for k, s := range i.Steps {
		p := retry.Must(steps[k].policy).Policy()
		if s.Policy != p.String() {
			t.Errorf("%s: policy of %s is %q, was written %q", i.Key, s.Name, s.Policy, p)
		}
		k, l := checkStep(t, i.Key, &s, p, seen)
		known, lost = known+k, lost+l
		dead = dead || s.Status == "failed"
	}
	if known != len(seen) {
		t.Errorf("%s: the witness saw %d attempts, the history has %d of them", i.Key, len(seen), known)
	}
	if want := map[bool]string{true: "dead", false: "succeeded"}[dead]; i.State != want {
		t.Errorf("%s is %s, its steps say %s", i.Key, i.State, want)
	}
	if want := fmt.Sprintf("%q", i.Key+"d"); !dead && string(i.Output) != want {
		t.Errorf("%s: output %s, want %s", i.Key, i.Output, want)
	}
	return lost
}

// checkStep checks a step, and returns how many attempts of the history are in
// the witness file, and how many were lost.
func checkStep(t *testing.T, key string, s *engine.StepInfo, p retry.Policy, seen map[attemptKey]observation) (known, lost int) {
	t.Helper()
	counted, earliest := 0, int64(0)
	for n, a := range s.Attempts {
		w, there := seen[attemptKey{s.Name, a.Number}]
		if a.Number != n+1 {
			t.Errorf("%s: attempt %d of step %s comes as number %d", key, a.Number, s.Name, n+1)
		}
		if there {
			known++
			if w.begin < earliest {
				t.Errorf("%s: attempt %d of step %s began %v early", key, a.Number, s.Name, time.Duration(earliest-w.begin))
			}
		}
		earliest = 0
		switch a.Outcome {
		case "succeeded", "failed":
			if !there || w.end == 0 || (a.Outcome == "succeeded") != (w.outcome == "ok") {
				t.Errorf("%s: attempt %d of step %s is %s, the witness saw %+v", key, a.Number, s.Name, a.Outcome, w)
			}
			counted++
			// The end in the witness file is before the recorded one.
			if a.Wait != nil {
				earliest = w.end + int64(a.Wait.Delay)
			}
		case "lost":
			lost++ // its result is unknown, and a stopped process may continue it
		case "released":
		default:
			t.Errorf("%s: attempt %d of step %s is %s: %s", key, a.Number, s.Name, a.Outcome, a.Error)
		}
	}
	if counted > p.Attempts || s.Spent > p.Attempts {
		t.Errorf("%s: step %s has %d attempts that count, the policy allows %d", key, s.Name, counted, p.Attempts)
	}
	return known, lost
}

// checkChain checks the runs of a flow, and returns how many attempts were lost.
func checkChain(t *testing.T, key string, chain []*engine.Info, seen map[attemptKey]observation) (lost int) {
	t.Helper()
	known, dead := 0, false
	for n, i := range chain {
		k, l, isDead := checkFlow(t, i, n, seen)
		known, lost, dead = known+k, lost+l, isDead
	}
	last := chain[len(chain)-1]
	if !dead && len(chain) != chainLength(key) {
		t.Errorf("%s: the chain has %d runs, want %d", key, len(chain), chainLength(key))
	}
	if want := fmt.Sprintf("%q", fmt.Sprint(key, "z", len(chain)-1)); !dead && string(last.Output) != want {
		t.Errorf("%s: output %s, want %s", key, last.Output, want)
	}
	if known != len(seen) {
		t.Errorf("%s: the witness saw %d attempts, the history has %d of them", key, len(seen), known)
	}
	return lost
}

// checkFlow checks the n-th run of a chain.
func checkFlow(t *testing.T, i *engine.Info, n int, seen map[attemptKey]observation) (known, lost int, dead bool) {
	t.Helper()
	mapped := int64(0) // end of the last operation before the sleep
	for k := range i.Steps {
		s := &i.Steps[k]
		if s.Kind != "do" && s.Kind != "item" {
			continue
		}
		k, l := checkStep(t, i.Key, s, retry.Must(flowPolicies[s.Name[:1]]).Policy(), seen)
		known, lost = known+k, lost+l
		succeeded := 0
		for _, a := range s.Attempts {
			if a.Outcome != "succeeded" {
				continue
			}
			succeeded++
			if s.Kind == "item" {
				mapped = max(mapped, seen[attemptKey{s.Name, a.Number}].end)
			}
		}
		if want := map[string]int{"succeeded": 1}[s.Status]; succeeded != want || s.Status != "succeeded" && s.Status != "failed" {
			t.Errorf("%s: operation %s is %s, and has succeeded %d times", i.Key, s.Name, s.Status, succeeded)
		}
		dead = dead || s.Status == "failed"
	}
	if z := seen[attemptKey{fmt.Sprint("z", n), 1}]; z.begin != 0 && z.begin < mapped+int64(flowSleep) {
		t.Errorf("%s: the sleep of run %d of the chain was %v too short", i.Key, n, time.Duration(mapped+int64(flowSleep)-z.begin))
	}
	if want := map[bool]string{true: "dead", false: "succeeded"}[dead]; i.State != want {
		t.Errorf("%s is %s, its operations say %s: %s", i.Key, i.State, want, i.Error)
	}
	return known, lost, dead
}
