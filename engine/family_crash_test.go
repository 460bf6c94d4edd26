package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// The crash test has a flow with events, a question, children and undos. A driver in the process sends
// the events, answers the question, and cancels some of the runs. It writes to the witness which
// events were acknowledged, and the next process does not send these again: a run that has lost one
// never ends.

const (
	crashFamily = "crash-family"
	crashMember = "crash-member"
	crashEvents = 3 // signals of a run beside the callback
	crashPolicy = "fixed(20ms) attempts=4"
)

// crashEnding says how a run of the family ends.
type crashEnding int

const (
	familySucceeds crashEnding = iota
	familyFails
	familyIsCanceled
)

// isFamily reports whether the run with the number i is one of the family.
func isFamily(i int) bool { return i%24 == 5 }

// crashEndingOf returns how the run with the key ends.
func crashEndingOf(key string) crashEnding {
	return crashEnding(must(strconv.Atoi(strings.TrimPrefix(key, "key-"))) / 24 % 3)
}

// sure is an attempt that succeeds.
//
// real clock: it takes a random time, which decides nothing
func (w *witness) sure(ctx context.Context, key string) (string, error) {
	t, _ := TaskOf(ctx)
	w.say("begin %s %s %d", key, t.Step, t.Total)
	time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond)
	w.say("end %s %s %d ok", key, t.Step, t.Total)
	return key + t.Step, nil
}

// family is the function of the flow. The input is the key.
func (w *witness) family(f *Flow, key string, member *Workflow) (string, error) {
	op := func(ctx context.Context) (string, error) { return w.sure(ctx, key) }
	undo := func(ctx context.Context, _ *string) error { _, err := w.sure(ctx, key); return err }
	often := Attempts(Policy(crashPolicy), MaxLost(50))
	if _, err := DoUndo(f, "r", op, undo, often); err != nil {
		return "", err
	}
	_, err := MapUndo(f, "s", []int{1, 2}, func(ctx context.Context, _ int) (string, error) { return op(ctx) },
		func(ctx context.Context, _ int, v *string) error { return undo(ctx, v) }, often)
	if err != nil {
		return "", err
	}
	for n := range crashEvents {
		nth := ForKey(strconv.Itoa(n))
		if _, err := Await[int](f, "go", nth); err != nil {
			return "", err
		}
		if _, err := Do(f, "b", op, often, nth); err != nil {
			return "", err
		}
	}
	if _, err := Await[int](f, "paid"); err != nil {
		return "", err
	}
	if _, err := Ask(f, "boss", Question{Text: "Go on?"}); err != nil {
		return "", err
	}
	if _, err := Children[string, string](f, "member", member, []string{key + "/0", key + "/1", key + "/2"}, Parallel(2)); err != nil {
		return "", err
	}
	switch crashEndingOf(key) {
	case familySucceeds:
	case familyFails:
		return "", errors.New("no")
	case familyIsCanceled:
		_, err := Child[string](f, "late", member, key+"/late")
		return "", err
	}
	return Do(f, "z", op, often)
}

// member is the function of the children.
func (w *witness) member(f *Flow, input string) (string, error) {
	key, n, _ := strings.Cut(input, "/")
	_, err := Do(f, "w-"+n, func(ctx context.Context) (string, error) { return w.sure(ctx, key) }, Policy(crashPolicy), MaxLost(50))
	if err == nil && n == "late" {
		err = Sleep(f, "hour", time.Hour) // it is canceled with its parent
	}
	return input, err
}

// crashDriver sends the events of the runs of the family.
type crashDriver struct {
	flows  *crashWorkflows
	w      *witness
	places chan struct{}

	mu   sync.Mutex
	sent map[string]bool // acknowledged events, by key and name
}

// newCrashDriver reads from the witness which events were acknowledged.
func newCrashDriver(w *witness, flows *crashWorkflows) *crashDriver {
	d := &crashDriver{flows: flows, w: w, places: make(chan struct{}, 64), sent: map[string]bool{}}
	for line := range strings.Lines(string(must(os.ReadFile(w.file.Name())))) {
		if f := strings.Fields(line); f[1] == "sent" {
			d.sent[f[2]+" "+f[3]] = true
		}
	}
	return d
}

// drive does what happens around the run with the number i, until that is done or ctx ends.
//
// real clock: the pace at which a process repeats what failed on a bad disk
func (d *crashDriver) drive(ctx context.Context, e *Engine, i int) {
	d.places <- struct{}{}
	defer func() { <-d.places }()
	for ctx.Err() == nil {
		err := d.attempt(ctx, e, i)
		if err == nil || errors.Is(err, ErrClosed) || ctx.Err() != nil {
			return
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(10 * time.Millisecond)
	}
}

func (d *crashDriver) attempt(ctx context.Context, e *Engine, i int) error {
	key := crashKey(i)
	for n := range crashEvents {
		if err := d.send(ctx, e, key, "go", n, ID(fmt.Sprint("go-", n))); err != nil {
			return err
		}
	}
	if err := d.send(ctx, e, key, "paid", crashEvents, ID("paid"), Once()); err != nil {
		return err
	}
	run, err := d.flows.start(ctx, e, i) // for its id
	if err != nil {
		return err
	}
	if err := d.answer(ctx, e, run.ID); err != nil || crashEndingOf(key) != familyIsCanceled {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // real clock: every moment is right
	if err := e.Cancel(ctx, run.ID, "driver"); err != nil && !errors.Is(err, ErrState) {
		return err
	}
	return nil
}

// send sends a signal, unless it was acknowledged before.
func (d *crashDriver) send(ctx context.Context, e *Engine, key, name string, n int, opts ...SignalOption) error {
	event := fmt.Sprint(key, " ", name, n)
	d.mu.Lock()
	sent := d.sent[event]
	d.mu.Unlock()
	if sent {
		return nil
	}
	if err := e.SignalKey(ctx, RunKey{crashFamily, key}, name, n, opts...); err != nil && !errors.Is(err, ErrSignalUsed) {
		return err
	}
	d.w.say("sent %s", event)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent[event] = true
	return nil
}

// answer answers the question of a run.
//
// real clock: the pace at which a process asks
func (d *crashDriver) answer(ctx context.Context, e *Engine, id string) error {
	for {
		info, err := e.Get(ctx, id)
		if err != nil || info.Finished() || info.State == StateUndoing {
			return err
		}
		if slices.ContainsFunc(info.Steps, func(s StepInfo) bool { return s.Kind == machine.AskKind && s.Status == "succeeded" }) {
			return nil // before a kill
		}
		if info.Asking {
			err := e.Answer(ctx, id, "boss", Answer{Choice: Approve, By: "driver"})
			if err == nil || !errors.Is(err, ErrState) {
				return err
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// encodeMembers waits for the ends of the children of a run, and writes them.
func (c *crashWorkflows) encodeMembers(ctx context.Context, e *Engine, enc *json.Encoder, run *Info) error {
	for _, s := range run.Steps {
		if s.Child == "" {
			continue
		}
		answered(func() (*Info, error) { return e.Wait(ctx, s.Child) })
		if err := enc.Encode(answered(func() (*Info, error) { return e.Get(ctx, s.Child) })); err != nil {
			return err
		}
		c.members++
	}
	return nil
}

// countMembers checks that no child was started beside those that were written.
func (c *crashWorkflows) countMembers(ctx context.Context, e *Engine) error {
	stats := answered(func() (Stats, error) { return e.Stats(ctx) })
	for _, w := range stats.Workflows {
		if w.Name == crashMember && (int(w.Totals.Started) != c.members || len(w.States) > 0) {
			return fmt.Errorf("%d children were started and are %v, the parents have %d", w.Totals.Started, w.States, c.members)
		}
	}
	return nil
}

// judgeFamily judges a run of the family and its children, and returns how many attempts were lost.
func judgeFamily(t *testing.T, i *Info, members []*Info, seen map[deed]testimony) (lost int) {
	t.Helper()
	ending := crashEndingOf(i.Key)
	if want := []string{StateSucceeded, StateDead, StateCanceled}[ending]; i.State != want || ending == familyFails && i.Error != "no" {
		t.Errorf("%s is %s, want %s: %s", i.Key, i.State, want, i.Error)
	}
	known := 0
	undone, undoable := map[string]bool{}, map[string]bool{}
	for _, run := range append([]*Info{i}, members...) {
		recorded := map[string]bool{}
		for k := range run.Steps {
			s := run.Steps[k]
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
			if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Outcome == "late" && run.State == StateCanceled {
				s.Attempts = s.Attempts[:n-1] // it ended after its run
				known++
			}
			k, l := judgeAttempts(t, i.Key, &s, must(retry.Parse(crashPolicy)), seen)
			known, lost = known+k, lost+l
			if n := countOutcomes(&s, "succeeded"); n > 1 || n == 0 && run.State != StateCanceled {
				t.Errorf("%s: %s has succeeded %d times", i.Key, s.Name, n)
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
	judgeUndos(t, i.Key, seen)
	judgeEvents(t, i)
	judgeMembers(t, i, members)
	return lost
}

func countOutcomes(s *StepInfo, outcome string) (n int) {
	for _, a := range s.Attempts {
		if a.Outcome == outcome {
			n++
		}
	}
	return n
}

// judgeUndos judges by the witness that undos come after their operations, the last ones first.
func judgeUndos(t *testing.T, key string, seen map[deed]testimony) {
	t.Helper()
	began, ended := map[string]int64{}, map[string]int64{} // of the first and the last attempt
	for d, w := range seen {
		if at, ok := began[d.step]; !ok || w.begin < at {
			began[d.step] = w.begin
		}
		ended[d.step] = max(ended[d.step], w.end)
	}
	for _, order := range [][2]string{{"r", "undo:r"}, {"s#0", "undo:s#0"}, {"s#1", "undo:s#1"}, {"undo:s#0", "undo:r"}, {"undo:s#1", "undo:r"}} {
		if at, ok := began[order[1]]; ok && at < ended[order[0]] {
			t.Errorf("%s: %s began %v before the end of %s", key, order[1], time.Duration(ended[order[0]]-at), order[0])
		}
	}
}

// judgeEvents judges that the run has got each event once, in order.
func judgeEvents(t *testing.T, i *Info) {
	t.Helper()
	var got []string
	for _, s := range i.Steps {
		if s.Kind == machine.AwaitKind || s.Kind == machine.AskKind {
			text := string(s.Output)
			var a Answer
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
	if signals != crashEvents+2 {
		t.Errorf("%s has %d signals and answers, want %d", i.Key, signals, crashEvents+2)
	}
}

// judgeMembers judges that the result of each child has come to the run, and that no child is left.
func judgeMembers(t *testing.T, i *Info, members []*Info) {
	t.Helper()
	byID := map[string]*Info{}
	for _, m := range members {
		byID[m.ID] = m
	}
	children := 0
	for _, s := range i.Steps {
		if s.Kind != machine.ChildKind {
			continue
		}
		children++
		m := byID[s.Child]
		switch {
		case m == nil || m.Parent != i.ID || !m.Finished():
			t.Errorf("%s: the child %q of %s is %+v", i.Key, s.Child, s.Name, m)
		case s.Status == "succeeded" && (m.State != StateSucceeded || string(s.Output) != string(m.Output)):
			t.Errorf("%s: %s has got %s, its child is %s with %s", i.Key, s.Name, s.Output, m.State, m.Output)
		case s.Status != "succeeded" && i.State != StateCanceled:
			t.Errorf("%s: %s is %s", i.Key, s.Name, s.Status)
		}
	}
	if children != len(byID) || i.State != StateCanceled && children != 3 || children > 4 {
		t.Errorf("%s has %d operations with children, and %d children", i.Key, children, len(byID))
	}
}
