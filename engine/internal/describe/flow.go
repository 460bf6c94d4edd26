package describe

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
)

// A run of a flow may have 20 000 operations with 32 MiB of results. These limits keep its Info
// at a size that can be sent and shown.
const (
	listedOps     = 1000      // operations in Info.Steps
	listedOpen    = 250       // of these, operations that have not ended
	listedFailed  = 250       // of these, operations that have failed
	listedMaps    = 100       // of these, maps
	listedOutputs = 256 << 10 // bytes of the outputs of these operations
)

// describeFlow fills the fields that describe the run of a flow: its function and its operations,
// in the order in which they were called.
func describeFlow(i *info.Info, r *machine.Run) {
	i.Version, i.Undoable = r.Def.Version, r.Flow().Undoable()
	i.Declared = slices.Clone(r.Def.Ops)
	l := newFlowOps(r)
	l.choose()
	l.describe()
	l.addRecords(i)
	l.omit()
	for k := range l.ops {
		if s := l.ops[k].info; s != nil {
			if i.Omitted > 0 && l.ops[k].made >= 0 {
				countOmitted(s, l.ops[k].made)
			}
			i.Steps = append(i.Steps, *s)
		}
	}
	i.Operations = &l.counts
}

// flowOps has the function and the operations of a run.
type flowOps struct {
	run    *machine.Run
	ops    []listedOp    // ordered by number; the first one is the function
	counts info.OpCounts // of the operations, without the function
	maps   map[string]*info.OpCounts
	labels map[string][]string // of the items of maps
	chosen map[int]*listedOp   // those that are listed, by number
}

// listedOp is an operation of a run, or its function.
type listedOp struct {
	number int
	kind   string
	name   string
	mapped string // of an item: the name of its map
	status string
	made   int // number of attempts; -1 if it is not known
	group  opGroupKind
	info   *info.StepInfo // nil if the operation is not chosen
}

// opGroupKind says how operations are chosen if there are too many.
type opGroupKind int

const (
	openOps opGroupKind = iota
	failedOps
	mapOps
	otherOps
	itemOps
)

// newFlowOps returns the operations of the run with their numbers, names and statuses.
func newFlowOps(r *machine.Run) *flowOps {
	l := &flowOps{run: r, maps: map[string]*info.OpCounts{}, labels: map[string][]string{}, chosen: map[int]*listedOp{}}
	known := map[int]bool{}
	for n, s := range r.Live() {
		kind, name := machine.Function, machine.Function
		if n > 0 {
			kind, name = machine.SplitIdentity(r.Flow().Identity(n))
		}
		l.add(listedOp{number: n, kind: kind, name: name, status: stepStatus(r, n), made: int(s.Attempt), group: openOps})
		known[n] = true
	}
	for res := range machine.ReadResults(r.Flow().Results()) {
		o := listedOp{number: res.Number, made: res.Attempts, group: otherOps}
		o.kind, o.name = machine.SplitIdentity(res.Name)
		o.status = endedStatus(r, &res, o.kind)
		if machine.OpKindOf(o.kind).Items != "" {
			items, _ := machine.ReadItems(res.Data) // without items if they can't be read
			l.itemsOf(o.name).Total = items.Count()
			l.labels[o.name] = items.Labels
			o.group = mapOps
		}
		if res.Reason != 0 {
			o.group = failedOps
		}
		l.add(o)
		known[res.Number] = true
	}
	forgotten := map[int]*listedOp{} // they failed or were undone, and a retry of the run calls them again
	for rec := range r.Records() {
		switch o := forgotten[rec.Step]; {
		case rec.Kind == machine.Called && !known[rec.Step]:
			o := &listedOp{number: rec.Step, status: machine.Exhausted.String(), made: -1, group: failedOps}
			if o.kind, o.name = machine.SplitIdentity(rec.Text); o.kind == machine.SkipKind {
				continue
			}
			forgotten[rec.Step] = o
		case o != nil && rec.Kind == machine.Done && rec.Reason == 0:
			o.status, o.group = machine.Complete.String(), otherOps
		}
	}
	for _, o := range forgotten {
		l.ops = append(l.ops, *o) // without counting it
	}
	slices.SortFunc(l.ops, func(a, b listedOp) int { return a.number - b.number })
	return l
}

// endedStatus returns the status of an operation of this kind that has ended.
func endedStatus(r *machine.Run, res *machine.OpResult, kind string) string {
	switch {
	case r.Flow().HasCanceled(res):
		return machine.Canceled.String()
	case res.Reason != 0:
		return machine.Exhausted.String()
	case kind == machine.SkipKind:
		return statusSkipped
	}
	return machine.Complete.String()
}

// add adds an operation, and counts it.
func (l *flowOps) add(o listedOp) {
	if mapped, index := machine.CutIndex(o.name); index != "" && machine.OpKindOf(o.kind).IsItem {
		o.mapped = mapped
		count(l.itemsOf(mapped), o.status)
		if o.group == otherOps {
			o.group = itemOps
		}
	}
	if o.number > 0 {
		l.counts.Total++
		count(&l.counts, o.status)
	}
	l.ops = append(l.ops, o)
}

// itemsOf returns the counts of the items of a map.
func (l *flowOps) itemsOf(name string) *info.OpCounts {
	if l.maps[name] == nil {
		l.maps[name] = new(info.OpCounts)
	}
	return l.maps[name]
}

// choose chooses the operations that are listed: of those that have not ended and of those that
// have failed the first ones, of the maps the last ones, and of the others and of the items the
// first and the last ones.
func (l *flowOps) choose() {
	l.ops[0].info = new(info.StepInfo)
	var groups [itemOps + 1][]*listedOp
	for k := range l.ops[1:] {
		o := &l.ops[k+1]
		groups[o.group] = append(groups[o.group], o)
	}
	left := listedOps
	take := func(list []*listedOp) {
		for _, o := range list {
			o.info = new(info.StepInfo)
		}
		left -= len(list)
	}
	takeEnds := func(list []*listedOp, most int) {
		if len(list) > most {
			take(list[:most/2])
			list = list[len(list)-(most-most/2):]
		}
		take(list)
	}
	open, failed, maps, others, items := groups[openOps], groups[failedOps], groups[mapOps], groups[otherOps], groups[itemOps]
	take(open[:min(len(open), listedOpen)])
	take(failed[:min(len(failed), listedFailed)])
	take(maps[max(len(maps)-listedMaps, 0):])
	takeEnds(others, max(left/2, left-len(items)))
	takeEnds(items, left)
}

// describe makes the infos of the operations that are chosen.
func (l *flowOps) describe() {
	for k := range l.ops {
		if o := &l.ops[k]; o.info != nil {
			l.chosen[o.number] = o
			l.describeOp(o)
		}
	}
	outputs := l.addResults()
	room := listedOutputs
	for k := range l.ops {
		out := outputs[l.ops[k].number]
		switch s := l.ops[k].info; {
		case len(out) == 0:
		case len(out) > room:
			s.OutputSize = len(out)
		default:
			s.Output = slices.Clone(out)
			room -= len(out)
		}
	}
}

// describeOp makes the info of an operation.
func (l *flowOps) describeOp(o *listedOp) {
	o.info.Status = o.status
	if l.run.Step(o.number) != nil {
		*o.info = describeStep(l.run, o.number)
	}
	o.info.Name, o.info.Kind, o.info.Number = o.name, o.kind, o.number
	o.info.Item = l.labelOf(o)
	switch {
	case machine.OpKindOf(o.kind).Waits == machine.ForChild:
		o.info.Progress = nil // it is the child: see addRecords
	case o.kind == machine.AskKind && o.info.Progress != nil:
		o.info.Question, o.info.Progress = new(info.Question), nil
		_ = json.Unmarshal(l.run.Progress(o.number), o.info.Question) // Ask wrote it
	}
	if machine.OpKindOf(o.kind).Items != "" {
		o.info.Items = l.maps[o.name]
		o.info.Status = statusOf(o.info.Items, l.run.Outcome != machine.Undecided)
	}
}

// addResults adds the results of operations to their infos, and returns the outputs by number.
func (l *flowOps) addResults() map[int][]byte {
	outputs := make(map[int][]byte, len(l.chosen))
	for res := range machine.ReadResults(l.run.Flow().Results()) {
		o := l.chosen[res.Number]
		if o == nil {
			continue
		}
		o.info.Spent = res.Spent
		if machine.OpKindOf(o.kind).Items == "" { // a map does not end when it is stored, but with its items
			o.info.Ended = Pointer(res.Ended)
		}
		if o.info.Error, o.info.Code = res.Text, res.Code; res.Reason == 0 && machine.OpKindOf(o.kind).IsShown {
			outputs[res.Number] = res.Data
		}
	}
	return outputs
}

// labelOf returns the label of an item, or of the item that an undo undoes; "" for other operations.
func (l *flowOps) labelOf(o *listedOp) string {
	mapped, index := machine.CutIndex(o.name)
	if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(l.labels[mapped]) && (machine.OpKindOf(o.kind).IsItem || o.kind == machine.UndoKind) {
		return l.labels[mapped][i]
	}
	return ""
}

// addRecords adds the history of the run to the operations that are chosen, and to the notes of i.
func (l *flowOps) addRecords(i *info.Info) {
	for rec := range l.run.Records() {
		o := l.chosen[rec.Step]
		if o == nil {
			continue
		}
		s, at := o.info, time.Unix(0, rec.At)
		switch {
		case rec.Kind == machine.Called:
			s.Called, s.Child = &at, rec.Child().String()
			if child := l.run.Flow().ChildOf(rec.Step).Run(); !child.IsZero() { // it may be the child of an earlier call
				s.Child = child.String()
			}
			if q, ok := QuestionOf(&rec); ok {
				s.Question = &q
			}
		case rec.Kind == machine.ChildEnded:
			s.Child = rec.Child().String()
		case callOutcomes[rec.Kind] != "":
			a := attemptOf(s, rec.Attempt, at)
			a.Ended, a.Outcome = &at, callOutcomes[rec.Kind]
			if rec.Kind == machine.Undone {
				if rec.Ends == machine.Dead {
					a.Outcome = outcomes[machine.Failed]
				}
				addRecord(i, l.run, &rec, s)
			}
		default:
			addRecord(i, l.run, &rec, s)
		}
	}
}

// omit counts the operations that are not chosen.
func (l *flowOps) omit() {
	for k := range l.ops {
		if o := &l.ops[k]; o.info == nil {
			l.counts.Omitted++
			if o.mapped != "" {
				l.maps[o.mapped].Omitted++
			}
		}
	}
}

// status returns the status of a map with these items. over says that the run has ended.
func statusOf(c *info.OpCounts, over bool) string {
	switch {
	case c.Running+c.Waiting > 0:
		return machine.Running.String()
	case c.Failed > 0:
		return machine.Exhausted.String()
	case c.Succeeded == c.Total:
		return machine.Complete.String()
	case over || c.Canceled > 0:
		return machine.Canceled.String()
	}
	return machine.Running.String()
}

// callOutcomes has the outcomes of calls of a function that steps do not have. The call that has undone the
// operations of a run ends with it.
var callOutcomes = map[machine.Kind]string{machine.Suspended: "suspended", machine.Continued: "continued", machine.Undone: outcomes[machine.Released]}

// statusSkipped is the status of an operation that the function has left out.
const statusSkipped = "skipped"

// count counts an operation with this status.
func count(c *info.OpCounts, status string) {
	switch status {
	case machine.Complete.String():
		c.Succeeded++
	case statusSkipped:
		c.Skipped++
	case machine.Exhausted.String():
		c.Failed++
	case machine.Canceled.String():
		c.Canceled++
	case machine.Running.String():
		c.Running++
	default:
		c.Waiting++
	}
}
