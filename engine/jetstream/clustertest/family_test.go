//go:build linux

package clustertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// A family is a flow with events, a question, children and undos. Its children are of a workflow with
// a limit: all of them are in one shard, and most of their parents in others. The worker that has
// started a family sends its events, answers its question, and cancels some of them. It writes to the
// witness file which events were acknowledged, and does not send these again after a kill: a run
// that has lost one never ends.

const (
	familyName   = "crash-family"
	memberName   = "crash-member"
	familyEvents = 3 // signals of a run beside the callback
	familyPolicy = "fixed(20ms) attempts=4"
)

// familyEnding says how a family ends.
type familyEnding int

const (
	familySucceeds familyEnding = iota
	familyFails
	familyIsCanceled
)

// isFamily reports whether the run with the number i is a family.
func isFamily(i int) bool { return i%11 == 5 }

// endingOf returns how the family with the key ends.
func endingOf(key string) familyEnding {
	i, err := strconv.Atoi(strings.TrimPrefix(key, "key-"))
	if err != nil {
		panic(err)
	}
	return familyEnding(i / 11 % 3)
}

// sure is an attempt that succeeds.
func (w *witness) sure(ctx context.Context, key string) (string, error) {
	t, _ := engine.TaskOf(ctx)
	w.log("begin %s %s %d", key, t.Step, t.Total)
	long := time.Duration(rand.IntN(10)) * time.Millisecond
	if rand.IntN(20) == 0 { // long enough to be interrupted
		long *= 50
	}
	pause(long)
	w.log("end %s %s %d ok", key, t.Step, t.Total)
	return key + t.Step, nil
}

// family is the function of the flow. The input is the key.
func (w *witness) family(f *engine.Flow, key string, member *engine.Workflow) (string, error) {
	op := func(ctx context.Context) (string, error) { return w.sure(ctx, key) }
	undo := func(ctx context.Context, _ *string) error { _, err := w.sure(ctx, key); return err }
	often := engine.Attempts(engine.Policy(familyPolicy), engine.MaxLost(100))
	if _, err := engine.DoUndo(f, "r", op, undo, often); err != nil {
		return "", err
	}
	_, err := engine.MapUndo(f, "s", []int{1, 2}, func(ctx context.Context, _ int) (string, error) { return op(ctx) },
		func(ctx context.Context, _ int, v *string) error { return undo(ctx, v) }, often)
	if err != nil {
		return "", err
	}
	for n := range familyEvents {
		nth := engine.ForKey(strconv.Itoa(n))
		if _, err := engine.Await[int](f, "go", nth); err != nil {
			return "", err
		}
		if _, err := engine.Do(f, "b", op, often, nth); err != nil {
			return "", err
		}
	}
	if _, err := engine.Await[int](f, "paid"); err != nil {
		return "", err
	}
	if _, err := engine.Ask(f, "boss", engine.Question{Text: "Go on?"}); err != nil {
		return "", err
	}
	if _, err := engine.Children[string, string](f, "member", member, []string{key + "/0", key + "/1", key + "/2"}, engine.Parallel(2)); err != nil {
		return "", err
	}
	switch endingOf(key) {
	case familySucceeds:
	case familyFails:
		return "", errors.New("no")
	case familyIsCanceled:
		_, err := engine.Child[string](f, "late", member, key+"/late")
		return "", err
	}
	return engine.Do(f, "z", op, often)
}

// member is the function of the children.
func (w *witness) member(f *engine.Flow, input string) (string, error) {
	key, n, _ := strings.Cut(input, "/")
	do := func(ctx context.Context) (string, error) { return w.sure(ctx, key) }
	_, err := engine.Do(f, "w-"+n, do, engine.Policy(familyPolicy), engine.MaxLost(100))
	if err == nil && n == "late" {
		err = engine.Sleep(f, "hours", 24*time.Hour) // it is canceled with its parent
	}
	return input, err
}

// driver sends the events of families.
type driver struct {
	e     *engine.Engine
	flows *workflows
	w     *witness

	mu   sync.Mutex
	sent map[string]bool // acknowledged events, by key and name
}

// newDriver reads from the witness file which events were acknowledged.
func newDriver(dir string, e *engine.Engine, flows *workflows, w *witness) (*driver, error) {
	d := &driver{e: e, flows: flows, w: w, sent: map[string]bool{}}
	text, err := os.ReadFile(filepath.Join(dir, "witness"))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[1] == "sent" {
			d.sent[f[2]+" "+f[3]] = true
		}
	}
	return d, err
}

// drive does what happens around the run with the number i, until that is done or ctx ends.
func (d *driver) drive(ctx context.Context, i int) {
	for ctx.Err() == nil {
		err := d.attempt(ctx, i)
		if err == nil {
			return
		}
		fmt.Fprintln(os.Stderr, "drive", i, err)
		pause(100 * time.Millisecond)
	}
}

func (d *driver) attempt(ctx context.Context, i int) error {
	key := fmt.Sprintf("key-%d", i)
	for n := range familyEvents {
		if err := d.send(ctx, key, "go", n, engine.ID(fmt.Sprint("go-", n))); err != nil {
			return err
		}
	}
	if err := d.send(ctx, key, "paid", familyEvents, engine.ID("paid"), engine.Once()); err != nil {
		return err
	}
	run, err := d.e.Start(ctx, d.flows.family, key, engine.Key(key)) // for its id
	if err != nil {
		return err
	}
	if err := d.answer(ctx, run.ID); err != nil || endingOf(key) != familyIsCanceled {
		return err
	}
	pause(time.Duration(rand.IntN(500)) * time.Millisecond)
	if err := d.e.Cancel(ctx, run.ID, "driver"); err != nil && !errors.Is(err, engine.ErrState) {
		return err
	}
	return nil
}

// send sends a signal, unless it was acknowledged before.
func (d *driver) send(ctx context.Context, key, name string, n int, opts ...engine.SignalOption) error {
	event := fmt.Sprint(key, " ", name, n)
	d.mu.Lock()
	sent := d.sent[event]
	d.mu.Unlock()
	if sent {
		return nil
	}
	err := d.e.SignalKey(ctx, engine.RunKey{Workflow: familyName, Key: key}, name, n, opts...)
	if err != nil && !errors.Is(err, engine.ErrSignalUsed) {
		return err
	}
	d.w.log("sent %s", event)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent[event] = true
	return nil
}

// answer answers the question of a run.
func (d *driver) answer(ctx context.Context, id string) error {
	for {
		info, err := d.e.Get(ctx, id)
		if err != nil || info.Finished() || info.State == engine.StateUndoing {
			return err
		}
		if slices.ContainsFunc(info.Steps, func(s engine.StepInfo) bool { return s.Kind == "ask" && s.Status == "succeeded" }) {
			return nil // before a kill
		}
		if info.Asking {
			err := d.e.Answer(ctx, id, "boss", engine.Answer{Choice: engine.Approve, By: "driver"})
			if err == nil || !errors.Is(err, engine.ErrState) {
				return err
			}
		}
		pause(100 * time.Millisecond)
	}
}

// membersOf returns the children of a run when they have ended. A run that is canceled may have a child that was never
// started.
func membersOf(ctx context.Context, e *engine.Engine, run *engine.Info) (list []*engine.Info, err error) {
	for _, s := range run.Steps {
		if s.Child == "" {
			continue
		}
		_, err := e.Wait(ctx, s.Child)
		if errors.Is(err, engine.ErrNotFound) && neverStarted(run, s) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("child %s of %s: %w", s.Child, run.Key, err)
		}
		child, err := e.Get(ctx, s.Child)
		if err != nil {
			return nil, err
		}
		list = append(list, child)
	}
	return list, nil
}

// neverStarted reports whether a child that does not exist may be one that the cancelation of its parent has overtaken.
func neverStarted(run *engine.Info, child engine.StepInfo) bool {
	return run.State == engine.StateCanceled && child.Status != "succeeded"
}

// checkFamily checks a family, and returns how many attempts were lost.
func checkFamily(t *testing.T, i *engine.Info, members []*engine.Info, seen map[attemptKey]observation) (lost int) {
	t.Helper()
	ending := endingOf(i.Key)
	if want := []string{engine.StateSucceeded, engine.StateDead, engine.StateCanceled}[ending]; i.State != want || ending == familyFails && i.Error != "no" {
		t.Errorf("%s is %s, want %s: %s", i.Key, i.State, want, i.Error)
	}
	known := 0
	undone, undoable := map[string]bool{}, map[string]bool{}
	ends := map[string]int64{} // of the attempts that succeeded
	for _, run := range append([]*engine.Info{i}, members...) {
		recorded := map[string]bool{}
		for _, s := range run.Steps {
			if recorded[s.Kind+":"+s.Name] {
				t.Errorf("%s: %s %s is recorded twice", i.Key, s.Kind, s.Name)
			}
			recorded[s.Kind+":"+s.Name] = true
			switch s.Kind {
			case "undo":
				undone[s.Name] = true
				s.Name = "undo:" + s.Name
			case "do", "item":
				if s.Name == "r" || strings.HasPrefix(s.Name, "s#") {
					undoable[s.Name] = true
				}
			default:
				continue
			}
			if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Outcome == "late" && run.State == engine.StateCanceled {
				s.Attempts = s.Attempts[:n-1] // it ended after its run
				known++
			}
			k, l := checkStep(t, i.Key, &s, retry.Must(familyPolicy).Policy(), seen)
			known, lost = known+k, lost+l
			succeeded := 0
			for _, a := range s.Attempts {
				if a.Outcome == "succeeded" {
					succeeded++
					ends[s.Name] = seen[attemptKey{s.Name, a.Number}].end
				}
			}
			if succeeded > 1 || succeeded == 0 && run.State != engine.StateCanceled {
				t.Errorf("%s: %s has succeeded %d times", i.Key, s.Name, succeeded)
			}
		}
	}
	if known != len(seen) {
		t.Errorf("%s: the witness saw %d attempts, the history has %d of them", i.Key, len(seen), known)
	}
	if ending == familySucceeds {
		undoable = map[string]bool{}
	}
	if fmt.Sprint(undone) != fmt.Sprint(undoable) {
		t.Errorf("%s has undone %v, want %v", i.Key, undone, undoable)
	}
	for _, order := range [][2]string{{"r", "undo:r"}, {"s#0", "undo:s#0"}, {"s#1", "undo:s#1"}, {"undo:s#0", "undo:r"}, {"undo:s#1", "undo:r"}} {
		for d, w := range seen {
			if d.step == order[1] && w.begin < ends[order[0]] {
				t.Errorf("%s: %s began %v before the end of %s", i.Key, order[1], time.Duration(ends[order[0]]-w.begin), order[0])
			}
		}
	}
	checkEvents(t, i)
	checkMembers(t, i, members)
	return lost
}

// checkEvents checks that the run has got each event once, in order.
func checkEvents(t *testing.T, i *engine.Info) {
	t.Helper()
	var got []string
	for _, s := range i.Steps {
		if s.Kind == "await" || s.Kind == "ask" {
			text := string(s.Output)
			var a engine.Answer
			if json.Unmarshal(s.Output, &a) == nil && a.By != "" {
				text = a.By + " " + a.Choice
			}
			got = append(got, s.Name+"="+text)
		}
	}
	if want := "go[0]=0 go[1]=1 go[2]=2 paid=3 boss=driver approve"; strings.Join(got, " ") != want {
		t.Errorf("%s has got %s, want %s", i.Key, strings.Join(got, " "), want)
	}
	signals := 0
	for _, n := range i.Notes {
		if n.What == "signal" {
			signals++
		}
	}
	if signals != familyEvents+2 {
		t.Errorf("%s has %d signals and answers, want %d", i.Key, signals, familyEvents+2)
	}
}

// checkMembers checks that the result of each child has come to the run, and that no child is left.
func checkMembers(t *testing.T, i *engine.Info, members []*engine.Info) {
	t.Helper()
	byID := map[string]*engine.Info{}
	for _, m := range members {
		byID[m.ID] = m
	}
	children := 0
	for _, s := range i.Steps {
		if s.Kind != "child" {
			continue
		}
		m := byID[s.Child]
		if m == nil && neverStarted(i, s) {
			continue
		}
		children++
		switch {
		case m == nil || m.Parent != i.ID || !m.Finished():
			t.Errorf("%s: the child %q of %s is %+v", i.Key, s.Child, s.Name, m)
		case s.Status == "succeeded" && (m.State != engine.StateSucceeded || string(s.Output) != string(m.Output)):
			t.Errorf("%s: %s has got %s, its child is %s with %s", i.Key, s.Name, s.Output, m.State, m.Output)
		case s.Status != "succeeded" && i.State != engine.StateCanceled:
			t.Errorf("%s: %s is %s", i.Key, s.Name, s.Status)
		}
	}
	if children != len(byID) || i.State != engine.StateCanceled && children != 3 || children > 4 {
		t.Errorf("%s has %d operations with children, and %d children", i.Key, children, len(byID))
	}
}
