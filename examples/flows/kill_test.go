//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testwait"
)

// The test of this file runs the program in a process, kills it with SIGKILL again and again, and
// lets it finish. Then it compares what the engine has recorded with evidence that does not come
// from the engine: the file to which every execution of an operation appends two lines.

var (
	kills = flag.Int("kills", 3, "how often the test kills each program")
	seed  = flag.Uint64("seed", 1, "of the moments at which it does")
)

// asProgram is set for a process of this test binary that runs the program.
const asProgram = "FLOWS_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestProgramsSurviveKills(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]victim{
		"loop":    {runs: 1, operations: 41, sideBySide: 1},
		"branch":  {runs: 3, operations: 0, sideBySide: 1, wait: 40 * time.Millisecond},
		"fanout":  {runs: 1, operations: 1001, sideBySide: 16},
		"parcel":  {runs: 3, operations: 6, sideBySide: 4, wait: 300 * time.Millisecond},
		"sleep":   {runs: 3, operations: 2, sideBySide: 1, wait: 1200 * time.Millisecond, sleeps: true},
		"named":   {runs: 1, operations: 100, sideBySide: 1},
		"endless": {runs: 1, operations: 60, sideBySide: 1, wait: 20 * time.Millisecond, sleeps: true},

		"approval": {runs: 3, operations: 13, sideBySide: 1, wait: 300 * time.Millisecond, checkMore: checkApproval},
	} {
		v.name, v.dir = name, t.TempDir()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v.killOften(t)
			v.check(t)
		})
	}
}

// victim is a program that the test kills.
type victim struct {
	name       string
	runs       int           // how many it starts
	operations int           // how many executions a run has, or a chain of runs; 0 means that it depends on the input
	sideBySide int           // how many operations of a run execute at once, at most
	wait       time.Duration // replaces the waits of the workflow
	sleeps     bool          // there is a sleep between two operations of a run

	checkMore func(t *testing.T, run *engine.Info) // further checks of a run; nil means none

	dir     string
	batches int // how many times all runs were started
	read    int // bytes of the file of calls that were counted
	lines   int
}

func (v *victim) file() string { return filepath.Join(v.dir, "calls") }

// start starts the program. Its standard error goes to a file, which is shown if it fails.
func (v *victim) start(t *testing.T) (cmd *exec.Cmd, ended chan error) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-dir", filepath.Join(v.dir, "data"), "-key", strconv.Itoa(v.batches), "-runs", strconv.Itoa(v.runs),
		"-wait", v.wait.String(), "-max-lost", "1000", "-calls", v.file(), v.name)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := os.Create(filepath.Join(v.dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = out.Close()
		ended <- err
	}()
	return cmd, ended
}

// killOften kills the program when it has written a random number of further lines, as often as the
// flag says. If it ends before, it is started again with other runs.
func (v *victim) killOften(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(*seed, uint64(len(v.name))<<32|uint64(v.name[0])))
	most := max(6, 4*v.runs*v.operations/(*kills+1)) // with fewer, the same operations are lost in a row, and wait for long
	for done := 0; done < *kills; {
		target := v.countLines(t) + 1 + random.IntN(most)
		cmd, ended := v.start(t)
		var err error
		isOver := false
		testwait.Until(t, v.name+" goes on", func() bool {
			select {
			case err = <-ended:
				isOver = true
			default:
			}
			return isOver || v.countLines(t) >= target
		})
		if !isOver {
			_ = cmd.Process.Kill() // it may have ended meanwhile
			err = <-ended
		}
		if v.wasKilled(t, cmd, err) {
			v.appendKill(t)
			done++
		} else {
			v.batches++
		}
	}
	cmd, ended := v.start(t)
	if v.wasKilled(t, cmd, testwait.Receive(t, v.name+" ends", ended)) {
		t.Fatal("it was killed, but not by the test")
	}
	v.batches++
}

// wasKilled reports whether the process was killed. It must have succeeded otherwise.
func (v *victim) wasKilled(t *testing.T, cmd *exec.Cmd, err error) bool {
	t.Helper()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		out, _ := os.ReadFile(filepath.Join(v.dir, "output"))
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// countLines returns how many lines are in the file of calls.
func (v *victim) countLines(t *testing.T) int {
	t.Helper()
	f, err := os.Open(v.file())
	if os.IsNotExist(err) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 1<<16)
	for {
		n, _ := f.ReadAt(buf, int64(v.read))
		if n == 0 {
			return v.lines
		}
		v.read += n
		v.lines += bytes.Count(buf[:n], []byte("\n"))
	}
}

// appendKill appends a line that stands for a kill. The process is gone.
func (v *victim) appendKill(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(v.file(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(f, "0\tkill\t\t0\t\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// execution is one execution of an operation, according to the file of calls.
type execution struct {
	run, operation string
	life           int // number of the process, from 0
	attempt        int
	began, ended   int64 // ended is 0 if the process was killed before
	answer         string
	isLast         bool // no other operation of the run began later in the same process
}

// executions returns what the file says, in the order in which the executions began.
func (v *victim) executions(t *testing.T) (list []*execution) {
	t.Helper()
	text, err := os.ReadFile(v.file())
	if err != nil {
		t.Fatal(err)
	}
	life := 0
	open, last := map[string]*execution{}, map[string]*execution{}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 5)
		if len(fields) != 5 {
			t.Fatalf("line %q", line)
		}
		at, err1 := strconv.ParseInt(fields[0], 10, 64)
		attempt, err2 := strconv.Atoi(fields[3])
		run, operation, _ := strings.Cut(fields[2], "/")
		if err1 != nil || err2 != nil {
			t.Fatalf("line %q", line)
		}
		switch fields[1] {
		case "kill":
			life++
			clear(open)
			clear(last)
		case "begin":
			e := &execution{run: run, operation: operation, life: life, attempt: attempt, began: at, isLast: true}
			if open[fields[2]] != nil {
				t.Errorf("%s is executed twice in one process", fields[2])
			}
			if before := last[run]; before != nil {
				before.isLast = false
			}
			open[fields[2]], last[run] = e, e
			list = append(list, e)
		case "end":
			open[fields[2]].ended, open[fields[2]].answer = at, fields[4]
		}
	}
	if life != *kills {
		t.Errorf("%d kills, want %d", life, *kills)
	}
	return list
}

// check compares the executions with the runs that the engine has stored.
func (v *victim) check(t *testing.T) {
	t.Helper()
	list := v.executions(t)
	byOperation := map[string]map[string][]*execution{} // by run and operation
	for _, e := range list {
		if byOperation[e.run] == nil {
			byOperation[e.run] = map[string][]*execution{}
		}
		byOperation[e.run][e.operation] = append(byOperation[e.run][e.operation], e)
	}
	eng, err := engine.Open(t.Context(), engine.Config{Dir: filepath.Join(v.dir, "data"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = eng.Close(testwait.Context(t)) }()
	perKey := map[string]int{}
	operations := 0
	for id, executed := range byOperation {
		run, err := eng.Get(t.Context(), id)
		if err != nil || run.State != engine.StateSucceeded {
			t.Fatalf("run %s: %+v, %v", id, run, err)
		}
		v.checkRepeats(t, run, executed)
		v.checkRecords(t, run, executed)
		v.checkWaits(t, run)
		if v.checkMore != nil {
			v.checkMore(t, run)
		}
		perKey[run.Key] += len(executed)
		operations += len(executed)
	}
	if v.sleeps {
		v.checkSleeps(t, list)
	}
	if len(perKey) != v.runs*v.batches {
		t.Errorf("%d keys of runs, want %d in each of %d batches", len(perKey), v.runs, v.batches)
	}
	for key, n := range perKey {
		if v.operations != 0 && n != v.operations {
			t.Errorf("%s has %d operations, want %d", key, n, v.operations)
		}
	}
	t.Logf("%d kills, %d operations, %d executions, %d times %d runs", *kills, operations, len(list), v.batches, v.runs)
}

// checkRepeats checks that a kill repeats only operations that were running.
func (v *victim) checkRepeats(t *testing.T, run *engine.Info, executed map[string][]*execution) {
	t.Helper()
	repeated := map[int]int{} // number of operations that were executed again, by process
	for name, list := range executed {
		for _, e := range list[:len(list)-1] {
			repeated[e.life]++
			if v.sideBySide == 1 && !e.isLast {
				t.Errorf("%s of %s is executed again, although another operation had begun after it", name, run.Key)
			}
		}
	}
	for life, n := range repeated {
		if n > v.sideBySide {
			t.Errorf("%s: kill %d repeats %d operations, but %d run at once", run.Key, life, n, v.sideBySide)
		}
	}
}

// checkRecords checks that the result of each operation is recorded once, and is that of its last
// execution.
func (v *victim) checkRecords(t *testing.T, run *engine.Info, executed map[string][]*execution) {
	t.Helper()
	recorded, others := map[string]bool{}, 0
	for _, s := range run.Steps[1:] { // without the function
		if s.Kind != "do" && s.Kind != "item" {
			others++ // it has no executions
			continue
		}
		name := run.Key + ", " + s.Name
		list := executed[s.Name]
		if recorded[s.Name] || len(list) == 0 {
			t.Errorf("%s: recorded twice: %v; %d executions", name, recorded[s.Name], len(list))
			continue
		}
		recorded[s.Name] = true
		last, ends, lost := list[len(list)-1], 0, 0
		for i, a := range s.Attempts {
			switch {
			case a.Outcome == "lost":
				lost++
			case a.Outcome == "failed" && a.Wait != nil: // its policy has it executed again
			case a.Outcome == "succeeded" || a.Outcome == "failed" && a.Reason != "":
				ends++
				if i != len(s.Attempts)-1 || a.Number != last.attempt || last.ended == 0 {
					t.Errorf("%s: the result is that of attempt %d, the last execution is %+v", name, a.Number, last)
				}
			default:
				t.Errorf("%s: attempt %+v", name, a)
			}
		}
		if s.Omitted == 0 && (ends != 1 || lost > *kills || len(list) > 1+lost) {
			t.Errorf("%s: %d results, %d lost attempts, %d executions", name, ends, lost, len(list))
		}
		if answer := ""; json.Unmarshal(s.Output, &answer) == nil && answer != last.answer {
			t.Errorf("%s: recorded %q, executed %q", name, answer, last.answer)
		}
	}
	// A run has at most 1000 operations in Steps; their number includes the rest.
	if n := run.Operations; n.Total != len(executed)+others || len(recorded) != len(executed)-n.Omitted {
		t.Errorf("%s: %+v, %d of them listed, %d without executions, %d executed", run.Key, n, len(recorded), others, len(executed))
	}
}

// checkWaits checks by the recorded times that no wait was shortened.
func (v *victim) checkWaits(t *testing.T, run *engine.Info) {
	t.Helper()
	for _, s := range run.Steps {
		if s.Kind == "sleep" && s.Omitted == 0 {
			if n := len(s.Attempts); n != 1 || s.Called == nil || s.Attempts[0].Ended.Sub(*s.Called) < v.wait {
				t.Errorf("%s: the sleep %s: %+v", run.Key, s.Name, s)
			}
		}
		for i, a := range s.Attempts {
			if a.Wait == nil || i+1 == len(s.Attempts) {
				continue
			}
			if a.Outcome == "failed" && a.Wait.Delay < v.wait || a.Wait.Until.Sub(*a.Ended) < a.Wait.Delay || s.Attempts[i+1].Started.Before(a.Wait.Until) {
				t.Errorf("%s: %s waits %+v after attempt %d, and the next one began at %v", run.Key, s.Name, a.Wait, a.Number, s.Attempts[i+1].Started)
			}
		}
	}
}

// checkApproval checks that a run of the workflow approval has got every signal once, in their order,
// and one answer.
func checkApproval(t *testing.T, run *engine.Info) {
	t.Helper()
	next := 0
	var answer engine.Answer
	for _, s := range run.Steps {
		switch s.Kind {
		case "await":
			if want := strconv.Itoa(100 + next); s.Name != fmt.Sprintf("receipt[%d]", next) || string(s.Output) != want {
				t.Errorf("%s: %s got %s, want %s", run.Key, s.Name, s.Output, want)
			}
			next++
		case "ask":
			if err := json.Unmarshal(s.Output, &answer); err != nil && s.Code != "no-event" {
				t.Errorf("%s: the answer is %s: %v", run.Key, s.Output, err)
			}
		}
	}
	if next != 12 {
		t.Errorf("%s has got %d receipts", run.Key, next)
	}
	signals := 0
	for _, n := range run.Notes {
		if n.What == "signal" {
			signals++
		}
	}
	journey, want := int(run.Key[len(run.Key)-1]-'0'), 12
	if isAnswered(journey) {
		want++
	}
	if signals != want || isAnswered(journey) != (answer.By == "manager") {
		t.Errorf("%s has %d signals and answers, want %d; the answer is %+v", run.Key, signals, want, answer)
	}
}

// checkSleeps checks by the file that there is a sleep between an operation and the next one.
func (v *victim) checkSleeps(t *testing.T, list []*execution) {
	t.Helper()
	before := map[string]*execution{} // last execution, by run
	for _, e := range list {
		if b := before[e.run]; b != nil && b.operation != e.operation && e.began-b.ended < int64(v.wait) {
			t.Errorf("%s began %v after the end of %s", e.operation, time.Duration(e.began-b.ended), b.operation)
		}
		before[e.run] = e
	}
}
