package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// groupItem is one operation of a group.
type groupItem struct {
	*opGroup
	index int
}

// groupItems has operations by their numbers, which are not 0. A map is needed for more than one.
type groupItems struct {
	number int // number of item; 0 for none
	item   groupItem
	others map[int]groupItem
}

func (s *groupItems) add(number int, item groupItem) {
	if s.number == 0 {
		s.number, s.item = number, item
		return
	}
	if s.others == nil {
		s.others = map[int]groupItem{}
	}
	s.others[number] = item
}

func (s *groupItems) get(number int) (item groupItem, ok bool) {
	if s.number == number && number != 0 {
		return s.item, true
	}
	item, ok = s.others[number]
	return item, ok
}

func (s *groupItems) remove(number int) {
	if s.number == number {
		s.number, s.item = 0, groupItem{}
		return
	}
	delete(s.others, number)
}

// numbers yields the numbers of the operations.
func (s *groupItems) numbers(yield func(int) bool) {
	if s.number != 0 && !yield(s.number) {
		return
	}
	for number := range s.others {
		if !yield(number) {
			return
		}
	}
}

// opMap is a map by the identities of operations. Few operations need no allocation.
type opMap[V any] struct {
	few  [4]opEntry[V]
	used int          // number of elements of few that are used
	many map[string]V // all of them, if few is too small; else nil
}

type opEntry[V any] struct {
	identity string
	value    V
}

// get returns the value of an operation; the zero value if there is none.
func (m *opMap[V]) get(identity string) (v V) {
	if m.many != nil {
		return m.many[identity]
	}
	for i := range m.few[:m.used] {
		if e := &m.few[i]; e.identity == identity {
			return e.value
		}
	}
	return v
}

func (m *opMap[V]) set(identity string, v V) {
	if m.many != nil {
		m.many[identity] = v
		return
	}
	for i := range m.few[:m.used] {
		if e := &m.few[i]; e.identity == identity {
			e.value = v
			return
		}
	}
	if m.used < len(m.few) {
		m.few[m.used] = opEntry[V]{identity, v}
		m.used++
		return
	}
	m.many = make(map[string]V, 2*len(m.few))
	for _, e := range m.few {
		m.many[e.identity] = e.value
	}
	m.many[identity] = v
}

func (m *opMap[V]) len() int {
	if m.many != nil {
		return len(m.many)
	}
	return m.used
}

// all yields the operations and their values, in no particular order.
func (m *opMap[V]) all(yield func(string, V) bool) {
	for identity, v := range m.many {
		if !yield(identity, v) {
			return
		}
	}
	if m.many != nil {
		return
	}
	for _, e := range m.few[:m.used] {
		if !yield(e.identity, e.value) {
			return
		}
	}
}

// opGroup is a set of operations that the function waits for: one operation of Do or Sleep, or
// all of a Map.
type opGroup struct {
	name     string              // identity of the operation or of the map
	def      *machine.Definition // policy and limits; nil for a sleep and a wait for a signal
	sleep    time.Duration       // length of a sleep, or the longest wait for a signal; 0 means no limit for that
	isAwait  bool                // it waits for a signal
	question []byte              // encoded question that a signal answers; nil for none
	child    *childStarts        // the runs that it starts; nil for none
	undoable bool                // its operations can be undone
	isUndo   bool                // its operations undo others
	items    []int               // of undos of a map: the indexes of its items; nil means all
	n        int                 // number of operations
	parallel int
	isMap    bool
	all      bool // continue after a failure
	do       func(ctx context.Context, i int) ([]byte, error)
	results  []machine.OpResult // of the operations that have ended; the others have no Name
	one      [1]machine.OpResult
	numbers  map[int]int   // numbers of the operations that were called before, by index; nil for none
	attempts chan *attempt // attempts for the goroutine of the function: see inline; closed when no operation runs and none is to begin
	inline   bool          // the goroutine of the function makes the attempts, because it waits for nothing else
	once     sync.Once
	halted   atomic.Bool // no operation begins any more that was not called before, because a branch has failed
	request  request     // asks the owner to begin the operations

	// The owner's goroutine uses the following fields.

	next    int // index of the next operation to begin
	running int // operations that have begun and have not ended
	failed  bool

	listBefore, listAfter *opGroup // neighbors in groupList
}

// stops reports whether no operation begins any more that was not called before.
func (g *opGroup) stops() bool { return g.failed && !g.all || g.halted.Load() }

// groupList has the groups of operations that a call waits for.
type groupList struct {
	first *opGroup
	count int
}

func (l *groupList) add(g *opGroup) {
	if g.listAfter = l.first; l.first != nil {
		l.first.listBefore = g
	}
	l.first = g
	l.count++
}

// remove removes a group that is in the list.
func (l *groupList) remove(g *opGroup) {
	if g.listBefore != nil {
		g.listBefore.listAfter = g.listAfter
	} else {
		l.first = g.listAfter
	}
	if g.listAfter != nil {
		g.listAfter.listBefore = g.listBefore
	}
	g.listBefore, g.listAfter = nil, nil
	l.count--
}

// all yields the groups. The loop may remove the one that it has got.
func (l *groupList) all(yield func(*opGroup) bool) {
	for g := l.first; g != nil; {
		next := g.listAfter
		if !yield(g) {
			return
		}
		g = next
	}
}

// identity returns the identity of an operation of the group.
func (g *opGroup) identity(i int) string {
	if !g.isMap {
		return g.name
	}
	kind := "item"
	switch {
	case g.child != nil:
		kind = machine.ChildKind
	case g.isUndo:
		kind = machine.UndoKind
	}
	if g.items != nil {
		i = g.items[i]
	}
	return kind + ":" + label(g.name) + "#" + strconv.Itoa(i)
}

// baseName returns the name of the operation or of the map, without its kind and key.
func (g *opGroup) baseName() string {
	return baseName(label(g.name))
}

// baseName returns the name of an operation without its key.
func baseName(name string) string {
	name, _, _ = strings.Cut(name, "[")
	return name
}

// end wakes the function. Only the first call has an effect.
func (g *opGroup) end() { g.once.Do(func() { close(g.attempts) }) }

// endWith is end for a group of one operation, with its result.
func (g *opGroup) endWith(res machine.OpResult) {
	g.once.Do(func() {
		g.results[0] = res
		close(g.attempts)
	})
}

// operation is an operation that the function calls.
type operation struct {
	identity string
	isStored bool                // it had ended before the call of the function began, or has another name since
	data     []byte              // its output, if isStored
	failure  *machine.OpResult   // why it failed, if isStored; nil if it succeeded
	def      *machine.Definition // nil if it has no attempts
	parallel int
	within   time.Duration       // of an await
	detached bool                // of a child
	undo     *machine.Definition // policy and limits of the undo
	labels   func(i int) string  // of items; nil means their JSON
}

// operation checks the call of an operation: its name and options, and that the flow is used as
// it must be. After success the caller must clear Flow.busy.
func (f *Flow) operation(kind, name string, opts []StepOption) (o operation, err error) {
	c, b := f.call, &f.builder
	asked := kind
	kind, undoable := strings.CutSuffix(kind, withUndo)
	if err := f.enter(); err != nil {
		if errors.Is(err, ErrFlowOver) {
			return o, fmt.Errorf("operation %s: %w", name, err)
		}
		return o, f.misuse(kind+":"+name, err)
	}
	key, err := c.workflow.operation(b, asked, name, opts)
	if err == nil && undoable {
		o.undo, err = c.workflow.undoOperation(name, b.undoPolicy, opts)
	}
	var position int
	if err != nil {
		o.identity = machine.Identity(kind, name, "")
	} else if o.identity, o.data, o.failure, position = f.ended.stored.Next(kind, name, key); !f.asked.add(o.identity, position) {
		err = ErrSameOperation
	}
	if o.isStored = position >= 0; !o.isStored {
		if res := f.ended.own.get(o.identity); res != nil {
			if o.isStored, o.data = true, res.Data; res.Reason != 0 {
				o.failure = res
			}
		}
	}
	if err == nil && hasAttempts(kind) && (!o.isStored || kind != "do") {
		o.def, err = c.workflow.opDefinition(b)
	}
	if err != nil {
		f.busy.Store(false)
		return o, f.misuse(o.identity, err)
	}
	f.last = o.identity
	o.parallel, o.within, o.detached, o.labels = cmp.Or(b.parallel, defaultParallel), b.within, b.detached, b.labels
	return o, nil
}

// stored reports whether the operation ended before the call of the function began, or has another name
// since. Most operations of a function that is called again are stored: they need no opGroup.
func (f *Flow) stored(o *operation) bool {
	if o.isStored {
		f.found++
	}
	return o.isStored
}

// enter checks that the flow is used as it must be, and marks it as busy. It ends the goroutine if the
// call is stopped or the flow was used wrongly before. After success the caller must clear Flow.busy.
func (f *Flow) enter() error {
	c := f.call
	if c.exiting.Load() || c.ended.Load() || c.toUndo.Load() || f.over.Load() {
		return ErrFlowOver
	}
	switch f.caller() {
	case inOperation:
		return ErrFlowInOperation
	case inOtherBranch:
		return ErrOtherBranch
	case elsewhere:
		return ErrSecondGoroutine
	}
	if !f.busy.CompareAndSwap(false, true) {
		return ErrSecondGoroutine
	}
	c.exitIfStopped()
	if c.firstWrong() != nil {
		c.exit()
	}
	return nil
}

// perform executes the operations of a group that have no stored result, and waits for them.
func (f *Flow) perform(g *opGroup) error {
	c := f.call
	if g.results = g.one[:]; g.n != 1 {
		g.results = make([]machine.OpResult, g.n)
	}
	fresh := 0
	for i := range g.n {
		identity := g.identity(i)
		if res := f.ended.get(identity); res != nil {
			f.found++
			g.results[i] = *res
			g.failed = g.failed || res.Reason != 0
			continue
		}
		if number, ok := f.pending[identity]; ok {
			f.found++
			if g.numbers == nil {
				g.numbers = map[int]int{}
			}
			g.numbers[i] = number
		} else {
			fresh++
		}
	}
	if len(g.numbers) == 0 && (fresh == 0 || g.failed && !g.all) {
		return nil
	}
	switch {
	case g.isUndo: // it must be possible
	case fresh == 0:
		if f.found < f.known {
			f.runLast("") // a new operation of another branch may show that the code does not fit
		}
	case !f.mayBegin(g.name):
		if len(g.numbers) == 0 {
			f.cutOff()
		}
		g.halted.Store(true)
		fallthrough
	default:
		if err := f.countOps(g.name, fresh); err != nil {
			return err
		}
	}
	g.attempts, g.inline = make(chan *attempt, 1), f.branch == nil && !g.isMap && !g.isUndo
	g.request.call, g.request.group = c, g
	c.post(&g.request)
	f.await(g)
	missing := false
	for i := range g.results {
		switch name := g.results[i].Name; {
		case name == "":
			f.count-- // it was not called, because another one failed, or the run undoes its operations
			missing = true
		case !f.ended.has(name):
			f.ended.set(name, &g.results[i])
		}
	}
	if missing && !g.isUndo && (c.undoing.Load() || g.halted.Load() && (!g.failed || g.all)) {
		f.cutOff()
	}
	return nil
}

// countOps counts operations that the function is about to call. If the run would have too many,
// it counts none of them, and returns an error with the name of the operation.
func (f *Flow) countOps(identity string, n int) error {
	if err := f.checkCount(identity, n); err != nil {
		return err
	}
	f.count += n
	return nil
}

// record stores an operation that ends with its call.
func (f *Flow) record(identity string, data []byte) error {
	c := f.call
	if !f.mayBegin(identity) {
		f.cutOff()
	}
	if err := f.countOps(identity, 1); err != nil {
		return err
	}
	f.ended.set(identity, &machine.OpResult{Name: identity, Data: data})
	c.send(func(t *turn) error {
		t.o.sh.dispatcher.recordOp(c, &machine.OpCall{Name: identity, Data: data})
		return nil
	})
	return nil
}

// itemHash is the number of bytes of the hash of an item.
const itemHash = 8

// Limits of the labels of items that are stored.
const (
	maxLabel  = 60       // bytes of a label
	maxLabels = 32 << 10 // bytes of all labels of a map; the items after that have none
)

// storedItems is what is stored of the items of a Map.
type storedItems struct {
	Hashes []byte   `json:"hashes"` // itemHash bytes for each item
	Labels []string `json:"labels,omitempty"`
}

// readItems decodes stored items. Those of earlier versions have no labels.
func readItems(data []byte) (items storedItems, err error) {
	if bytes.HasPrefix(data, []byte{'"'}) {
		return items, json.Unmarshal(data, &items.Hashes)
	}
	return items, json.Unmarshal(data, &items)
}

// count returns the number of items.
func (s *storedItems) count() int { return len(s.Hashes) / itemHash }

// labelsOf returns the labels of items, which are JSON.
func (o *operation) labelsOf(items [][]byte) (labels []string) {
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

// checkItems compares the items of a Map with those that are stored, or stores the hashes of the
// items.
func (f *Flow) checkItems(o *operation, items [][]byte) error {
	identity := o.identity
	hashes := make([]byte, 0, itemHash*len(items))
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
		text, err := json.Marshal(storedItems{hashes, o.labelsOf(items)})
		if err != nil {
			return err
		}
		return f.record(identity, text)
	}
	f.found++
	known, err := readItems(stored.Data)
	if err != nil {
		return f.misuse(identity, fmt.Errorf("its stored items can't be read: %w", err))
	}
	before := known.Hashes
	if len(before) != len(hashes) {
		return f.misuse(identity, fmt.Errorf("has %d items, but the stored operation has %d: the items must follow from the input and from results of operations", len(items), len(before)/itemHash))
	}
	for i := range items {
		if !slices.Equal(before[itemHash*i:itemHash*(i+1)], hashes[itemHash*i:itemHash*(i+1)]) {
			return f.misuse(identity, fmt.Errorf("item %d is not the same as in the stored operation: the items must follow from the input and from results of operations", i))
		}
	}
	return nil
}

// opKey identifies the definition of an operation in the cache of a workflow.
type opKey struct {
	step      string
	policy    string
	heartbeat time.Duration
	maxLost   int
	windows   int
}

// maxCachedOps limits the cache of a workflow. A function that makes policies up has no use of it.
const maxCachedOps = 1000

// operation checks the name and the options of an operation, and sets b to them: see opDefinition. It
// returns the key.
func (w *Workflow) operation(b *stepBuilder, kind, name string, opts []StepOption) (key string, err error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	if !b.isPlain { // else there is nothing to clear, which would take longer than all else here
		*b = stepBuilder{Step: machine.Step{MaxLost: DefaultMaxLost}, text: DefaultPolicy}
	}
	if step := w.opStep(name); b.Name != step {
		b.Name = step
	}
	b.keys = 0
	for _, opt := range w.opDefaults {
		opt(b)
	}
	for _, opt := range opts {
		opt(b)
	}
	if b.keys > 0 {
		key = b.key
	}
	if b.isPlain = b.keys == len(w.opDefaults)+len(opts); b.isPlain {
		return key, nil
	}
	base, _ := strings.CutSuffix(kind, withUndo)
	switch {
	case len(b.Needs) > 0:
		err = errors.New("after: an operation begins when the function calls it")
	case b.concurrency != 0:
		err = errors.New("concurrency: an operation can't have this limit; use the part Operation, MaxRuns or Config.Concurrency")
	case b.version != "":
		err = errors.New("version: use the option of the function")
	case b.parallel != 0 && base != "map" && base != childrenKind:
		err = errors.New("parallel: only Map, Collect and Children have this option")
	case b.labels != nil && base != "map" && base != childrenKind:
		err = errors.New("labels: only Map, Collect and Children have this option")
	case b.detached && kind != machine.ChildKind && kind != childrenKind:
		err = errors.New("detached: only Child and Children have this option")
	case b.undoPolicy != "" && !strings.HasSuffix(kind, withUndo):
		err = errors.New("undo policy: only DoUndo and MapUndo have this option")
	case b.within != 0 && kind != machine.AwaitKind && kind != machine.AskKind:
		err = errors.New("within: only Await and Ask have this option")
	}
	if err != nil || len(b.errs) > 0 {
		if err := errors.Join(append(b.errs, err)...); err != nil {
			return "", err
		}
	}
	return key, nil
}

// hasAttempts reports whether operations of this kind have attempts, and so a definition.
func hasAttempts(kind string) bool { return kind == "do" || kind == "map" }

// opDefinition returns the definition of an operation with the options that operation has put into b.
// Operations with the same options share their definition, whatever their names are. The definitions
// are cached.
func (w *Workflow) opDefinition(b *stepBuilder) (def *machine.Definition, err error) {
	key := opKey{b.Name, b.text, b.Heartbeat, b.MaxLost, b.Windows}
	if b.text != "" {
		if def = w.cachedOp(key); def != nil {
			return def, nil
		}
		b.isPlain = false
		if b.Policy, err = retry.Parse(b.text); err != nil {
			return nil, fmt.Errorf("policy: %w", err)
		}
	}
	b.Handler = "operation"
	def = &machine.Definition{Name: w.def.Name, Op: true, Steps: []machine.Step{b.Step}}
	if err := def.Prepare(); err != nil {
		return nil, err
	}
	if b.text != "" {
		w.cacheOp(key, def)
	}
	return def, nil
}

// cachedOp returns a cached definition of an operation; nil if there is none.
func (w *Workflow) cachedOp(key opKey) *machine.Definition {
	w.opsMu.RLock()
	defer w.opsMu.RUnlock()
	return w.ops[key]
}

// cacheOp caches the definition of an operation, if there is room.
func (w *Workflow) cacheOp(key opKey, def *machine.Definition) {
	w.opsMu.Lock()
	defer w.opsMu.Unlock()
	if w.ops == nil {
		w.ops = map[opKey]*machine.Definition{}
	}
	if len(w.ops) < maxCachedOps {
		w.ops[key] = def
	}
}
