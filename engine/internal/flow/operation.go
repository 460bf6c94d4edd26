package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/internal/textfmt"
)

// WithUndo is added to the kind of an operation that can be undone.
const WithUndo = "+undo"

// Enter checks that the flow may be used for an operation now. It ends the goroutine if the call is stopped, or the
// flow was used wrongly before. After success the caller must call Leave, unless Operation returns an error.
func (f *Flow) Enter(name string) error {
	if err := f.enter(); err != nil {
		return f.call.noteWrong(fmt.Errorf("operation %s: %w", name, err))
	}
	return nil
}

// Leave says that the operation is over.
func (f *Flow) Leave() { f.busy.Store(false) }

// Operation checks the name and the options of an operation, of which the caller has set this many.
func (f *Flow) Operation(b *workflow.Options, kind, name string, options int) (o Called, err error) {
	c := f.call
	kind, undoable := strings.CutSuffix(kind, WithUndo)
	key, err := b.CheckOperation(c.workflow, name, options)
	if err == nil && undoable {
		o.undo, err = c.workflow.UndoDefinition(b)
	}
	var position int
	if err != nil {
		o.Identity = machine.Identity(kind, name, "")
	} else if o.Identity, o.Data, o.Failure, position = f.ended.stored.Next(kind, name, key); !f.asked.add(o.Identity, position) {
		err = ErrSameOperation
	}
	if o.isStored = position >= 0; !o.isStored {
		if res := f.ended.own.get(o.Identity); res != nil {
			if o.isStored, o.Data = true, res.Data; res.Reason != 0 {
				o.Failure = res
			}
		}
	}
	if o.kind = machine.OpKindOf(kind); err == nil && o.kind.Waits == machine.ForAttempts && (!o.isStored || o.kind.Items != "") {
		o.def, err = c.workflow.OpDefinition(b)
	}
	if err != nil {
		f.Leave()
		return o, f.Misuse(o.Identity, err)
	}
	f.last = o.Identity
	o.parallel, o.Within, o.detached, o.labels = cmp.Or(b.Parallel, defaultParallel), b.Within, b.Detached, b.Labels
	return o, nil
}

const defaultParallel = 16

// One returns the group of one operation. do makes its attempts; nil if it has none.
func (o *Called) One(do func(context.Context, int) ([]byte, error)) *Group {
	return &Group{Name: o.Identity, kind: o.kind, def: o.def, n: 1, parallel: 1, do: do}
}

// Each is One for n operations.
func (o *Called) Each(n int, do func(context.Context, int) ([]byte, error)) *Group {
	return &Group{Name: o.Identity, kind: machine.OpKindOf(o.kind.Items), def: o.def, n: n, parallel: o.parallel, isMap: true, do: do}
}

// Wait returns the group of one operation that waits for a time, or for a signal, which answers the question unless
// that is nil. A wait for a signal has no limit if limit is 0.
func (o *Called) Wait(limit time.Duration, question []byte) *Group {
	return &Group{Name: o.Identity, kind: o.kind, n: 1, parallel: 1, limit: max(limit, 0), question: question}
}

// Stored reports whether the operation ended before the call of the function began, or has another name
// since. Most operations of a function that is called again are stored: they need no Group.
func (f *Flow) Stored(o *Called) bool {
	if o.isStored {
		f.found++
	}
	return o.isStored
}

// Perform executes the operations of a group that have no stored result, and waits for them.
func (f *Flow) Perform(g *Group) error {
	fresh := f.findResults(g)
	if len(g.numbers) == 0 && (fresh == 0 || g.failed && !g.All) {
		return nil
	}
	if !g.isUndo() { // an undo must be possible
		if err := f.begin(g, fresh); err != nil {
			return err
		}
	}
	g.attempts, g.inline = make(chan Attempt, 1), f.branch == nil && !g.isMap && !g.isUndo()
	g.message.call, g.message.group = f.call, g
	f.call.send(&g.message)
	f.await(g)
	f.keepResults(g)
	return nil
}

// findResults sets the results of the operations of a group that have ended, and the numbers of those
// that the run has called. It returns how many it has not called.
func (f *Flow) findResults(g *Group) (fresh int) {
	if g.Results = g.one[:]; g.n != 1 {
		g.Results = make([]machine.OpResult, g.n)
	}
	for i := range g.n {
		identity := g.identity(i)
		if res := f.ended.get(identity); res != nil {
			f.found++
			g.Results[i] = *res
			g.failed = g.failed || res.Reason != 0
			continue
		}
		number, ok := f.pending[identity]
		if !ok {
			fresh++
			continue
		}
		f.found++
		if g.numbers == nil {
			g.numbers = map[int]int{}
		}
		g.numbers[i] = number
	}
	return fresh
}

// begin waits until the flow may begin the operations of a group, of which this many are new, and counts
// these. It ends the goroutine if none may begin.
func (f *Flow) begin(g *Group, fresh int) error {
	if fresh == 0 {
		if f.found < f.known {
			f.runLast("") // a new operation of another branch may show that the code does not fit
		}
		return nil
	}
	if !f.mayBegin(g.Name) {
		if len(g.numbers) == 0 {
			f.cutOff()
		}
		g.halted.Store(true)
	}
	if err := f.checkCount(g.Name, fresh); err != nil {
		return err
	}
	f.count += fresh
	return nil
}

// keepResults keeps the results of the operations of a group that have ended. It ends the goroutine if some have
// not begun, and none may begin any more.
func (f *Flow) keepResults(g *Group) {
	missing := false
	for i := range g.Results {
		switch name := g.Results[i].Name; {
		case name == "":
			f.count-- // it was not called, because another one failed, or the run undoes its operations
			missing = true
		case !f.ended.has(name):
			f.ended.set(name, &g.Results[i])
		}
	}
	if missing && !g.isUndo() && (f.call.undoing.Load() || g.halted.Load() && (!g.failed || g.All)) {
		f.cutOff()
	}
}

// checkCount returns an error if the run would have too many operations after n more.
func (f *Flow) checkCount(identity string, n int) error {
	if f.count+n <= machine.MaxOps {
		return nil
	}
	return &info.OpError{
		Name: machine.OpName(identity), Code: "too-many-operations",
		Text: fmt.Sprintf("a run can have at most %d operations; begin another run by engine.Again", machine.MaxOps),
	}
}

// Record stores an operation that ends with its call.
func (f *Flow) Record(identity string, data []byte) error {
	c := f.call
	if !f.mayBegin(identity) {
		f.cutOff()
	}
	if err := f.checkCount(identity, 1); err != nil {
		return err
	}
	f.count++
	f.ended.set(identity, &machine.OpResult{Name: identity, Data: data})
	c.send(&Message{kind: opRecorded, call: c, op: &machine.OpCall{Name: identity, Data: data}})
	return nil
}

// await waits for the operations of a group.
func (f *Flow) await(g *Group) {
	c := f.call
	if f.branch == nil {
		f.makeAttempts(g)
		return
	}
	sched := c.branches.Load()
	f.group = g
	sched.release()
	isOver := false
	select {
	case <-g.attempts:
		isOver = true
	case <-c.stopped:
	case <-sched.quit:
	}
	sched.acquire(f)
	f.group = nil
	f.leaveIfQuit()
	if !isOver {
		c.exit()
	}
}

// makeAttempts waits for the operations of a group, and makes the attempts of an inline one. It ends the
// goroutine if the owner stops the call.
func (f *Flow) makeAttempts(g *Group) {
	c := f.call
	for {
		select {
		case a, more := <-g.attempts:
			if !more {
				return
			}
			f.runAttempt(a)
			c.exitIfStopped()
		case <-c.stopped:
			select {
			case a := <-g.attempts: // it was begun before the call was stopped
				if a != nil {
					f.runAttempt(a)
				}
			default:
			}
			c.exit()
		}
	}
}

// runAttempt makes an attempt of an operation in the goroutine of the function.
func (f *Flow) runAttempt(a Attempt) {
	f.call.inAttempt.Store(true)
	defer f.call.inAttempt.Store(false)
	a.Make()
}

// Run returns the id of the run.
func (f *Flow) Run() string { return f.call.run.String() }

// Version returns the version of the function with which the run was started.
func (f *Flow) Version() string { return f.call.def.Version }

// Workflow returns the workflow of the function.
func (f *Flow) Workflow() *workflow.Workflow { return f.call.workflow }

// Task returns what attempts of the run's operations know about the run.
func (f *Flow) Task() info.Task { return f.call.task }

// SetStatus sets the status of the run.
func (f *Flow) SetStatus(status string) {
	f.call.mu.Lock()
	defer f.call.mu.Unlock()
	f.call.status, f.call.said = status, true
}

// SetTag sets a tag of the run, or removes it if the value is "".
func (f *Flow) SetTag(name, value string) error {
	err := workflow.CheckName(name)
	switch {
	case err != nil:
	case len(value) > maxTag || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		err = fmt.Errorf("value: %.200q must have at most %d bytes of UTF-8 without control characters", value, maxTag)
	default:
		err = f.setTag(name, value)
	}
	if err != nil {
		return fmt.Errorf("tag %.200q: %w", name, err)
	}
	return nil
}

// setTag sets a tag of the run, or removes it if the value is "".
func (f *Flow) setTag(name, value string) error {
	c := f.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if value = c.settings.Redact(value); value == "" {
		delete(c.tags, name)
		c.said = true
		return nil
	}
	if _, known := c.tags[name]; !known && len(c.tags) >= maxTags {
		return fmt.Errorf("the run has %d tags already, the most that it can have", maxTags)
	}
	if c.tags == nil {
		c.tags = map[string]string{}
	}
	c.tags[name], c.said = value, true
	return nil
}

const (
	maxTags = 16
	maxTag  = 128
)

// Limits of the labels of items that are stored.
const (
	maxLabel  = 60       // bytes of a label
	maxLabels = 32 << 10 // bytes of all labels of a map; the items after that have none
)

// labelsOf returns the labels of items, which are JSON.
func (o *Called) labelsOf(items [][]byte) (labels []string) {
	size := 0
	for i := range items {
		label := string(items[i][:min(len(items[i]), 2*maxLabel)])
		if o.labels != nil {
			label = o.labels(i)
		}
		label = textfmt.TruncateWithin(strings.ToValidUTF8(label, "\uFFFD"), maxLabel, "…")
		if size += len(label); size > maxLabels {
			break
		}
		labels = append(labels, label)
	}
	return labels
}

// CheckItems compares the items of a Map with those that are stored, or stores the hashes of the
// items.
func (f *Flow) CheckItems(o *Called, items [][]byte) error {
	identity := o.Identity
	hashes := make([]byte, 0, machine.ItemHash*len(items))
	for _, item := range items {
		h := fnv.New64a()
		_, _ = h.Write(item) // never fails
		hashes = h.Sum(hashes)
	}
	stored := f.ended.get(identity)
	if stored == nil {
		if err := f.checkCount(identity, 1+len(items)); err != nil {
			return err // before the hashes are stored, which may be too many for an entry
		}
		text, err := json.Marshal(machine.StoredItems{Hashes: hashes, Labels: o.labelsOf(items)})
		if err != nil {
			return err
		}
		return f.Record(identity, text)
	}
	f.found++
	known, err := machine.ReadItems(stored.Data)
	if err != nil {
		return f.Misuse(identity, fmt.Errorf("its stored items can't be read: %w", err))
	}
	before := known.Hashes
	if len(before) != len(hashes) {
		return f.Misuse(identity, fmt.Errorf("has %d items, but the stored operation has %d: the items must follow from the input and from results of operations", len(items), len(before)/machine.ItemHash))
	}
	for i := range items {
		if !slices.Equal(before[machine.ItemHash*i:machine.ItemHash*(i+1)], hashes[machine.ItemHash*i:machine.ItemHash*(i+1)]) {
			return f.Misuse(identity, fmt.Errorf("item %d is not the same as in the stored operation: the items must follow from the input and from results of operations", i))
		}
	}
	return nil
}
