package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/retry"
)

// Definition is a version of a workflow. A run keeps the definition that it started with. A
// definition is stored once for all its runs.
type Definition struct {
	Name    string            `json:"name"`
	Timeout time.Duration     `json:"timeout_ns,omitempty"` // timeout of a run; 0 means none
	Steps   []Step            `json:"steps"`
	OnEnd   *Definition       `json:"on_end,omitempty"`  // definition of the run to start when a run ends; nil for none
	Flow    bool              `json:"flow,omitempty"`    // the workflow is a function: see flow.go
	Version string            `json:"version,omitempty"` // version of the function
	Op      bool              `json:"op,omitempty"`      // the only step is an operation of the flow Name
	Ops     []info.DeclaredOp `json:"ops,omitempty"`     // operations that a flow declares, for those who look at its runs

	hash     Hash
	text     []byte
	workflow *Workflow
	runs     int  // number of runs in memory with this definition
	open     bool // some of these runs are not finished; see applyPurged
}

// Step is the definition of a step.
type Step struct {
	Name      string          `json:"name"`
	Needs     []string        `json:"needs,omitempty"`
	Policy    retry.Policy    `json:"policy"`
	Handler   string          `json:"handler"`                // name of the function that does the work
	Args      json.RawMessage `json:"args,omitempty"`         // arguments of the handler beside the input
	Heartbeat time.Duration   `json:"heartbeat_ns,omitempty"` // longest time without a heartbeat of an attempt; 0 means no limit
	MaxLost   int             `json:"max_lost"`               // limit of lost attempts in a row that are made again
	Windows   int             `json:"max_windows,omitempty"`  // limit of attempts that return Limited; 0 means DefaultWindows

	needs []int // indexes of the steps in Needs
	opens []int // indexes of the steps that need this one
	queue *Queue
}

// Refused has the keys of a retry policy that are not supported for steps.
var Refused = []string{"hedge", "budget"}

// FunctionRefused has the keys of a retry policy that are not supported for the function of a
// flow, which may wait for days.
var FunctionRefused = []string{"attempt-timeout", "total-timeout"}

// DefaultWindows is how often attempts of a step may return Limited if Step.Windows is 0.
const DefaultWindows = 10

// Prepare checks the definition and makes it ready for use. Its error lists everything that is
// wrong.
func (d *Definition) Prepare() error {
	if len(d.Steps) > maxSteps {
		return fmt.Errorf("steps: %d, at most %d", len(d.Steps), maxSteps)
	}
	if len(d.Ops) > maxSteps {
		return fmt.Errorf("operations: %d, at most %d", len(d.Ops), maxSteps)
	}
	var found validate.Problems
	found.Check(d.Name != "", "name: a workflow needs one")
	found.Check(len(d.Steps) > 0, "steps: a workflow needs at least one")
	validate.NotNegative(&found, "timeout", d.Timeout)
	index := make(map[string]int, len(d.Steps))
	for i := range d.Steps {
		s := &d.Steps[i]
		_, twice := index[s.Name]
		found.Check(!twice, "step %q: there are two of that name", s.Name)
		index[s.Name] = i
		s.check(&found)
		s.needs, s.opens = nil, nil
	}
	for i := range d.Steps {
		d.connect(i, index, &found)
	}
	if err := errors.Join(found...); err != nil {
		return err
	}
	if d.Flow {
		if err := d.Steps[0].Policy.Refuse("function", FunctionRefused...); err != nil {
			return err
		}
	}
	if at := d.cycle(); at != "" {
		return fmt.Errorf("step %q: needs itself, through other steps", at)
	}
	if d.OnEnd != nil && d.OnEnd.text == nil {
		if err := d.OnEnd.Prepare(); err != nil {
			return fmt.Errorf("on end: %w", err)
		}
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if len(text) > maxDefinition {
		return fmt.Errorf("%d bytes as it is stored, at most %d; arguments of steps are part of it", len(text), maxDefinition)
	}
	d.text, d.hash = text, hashOf(text)
	return nil
}

const maxDefinition = 512 << 10

func (s *Step) check(found *validate.Problems) {
	found.Check(s.Name != "", "step %q: name: a step needs one", s.Name)
	found.Check(s.Handler != "", "step %q: handler: a step needs one", s.Name)
	for _, err := range []error{s.Policy.Validate(), s.Policy.Refuse("step", Refused...)} {
		found.Check(err == nil, "step %q: policy: %w", s.Name, err)
	}
	found.Check(s.Windows >= 0 && s.Windows <= math.MaxUint16,
		"step %q: max windows: %d is not in 0..%d", s.Name, s.Windows, math.MaxUint16)
	found.Check(s.Heartbeat >= 0, "step %q: heartbeat: %v is negative", s.Name, s.Heartbeat)
	found.Check(s.MaxLost >= 0 && s.MaxLost <= math.MaxUint16,
		"step %q: max lost: %d is not between 0 and %d", s.Name, s.MaxLost, math.MaxUint16)
}

func (d *Definition) connect(i int, index map[string]int, found *validate.Problems) {
	s := &d.Steps[i]
	for k, need := range s.Needs {
		j, known := index[need]
		switch {
		case !known:
			found.Add("step %q: needs %q, but there is no such step", s.Name, need)
		case j == i:
			found.Add("step %q: needs itself", s.Name)
		case slices.Contains(s.Needs[:k], need):
			found.Add("step %q: needs %q twice", s.Name, need)
		default:
			s.needs = append(s.needs, j)
			d.Steps[j].opens = append(d.Steps[j].opens, i)
		}
	}
}

// cycle returns the name of a step that can never begin, because its dependencies form a cycle;
// "" if there is none.
func (d *Definition) cycle() string {
	missing := make([]int, len(d.Steps))
	var ready []int
	for i := range d.Steps {
		if missing[i] = len(d.Steps[i].needs); missing[i] == 0 {
			ready = append(ready, i)
		}
	}
	for begun := 0; begun < len(ready); begun++ {
		for _, i := range d.Steps[ready[begun]].opens {
			if missing[i]--; missing[i] == 0 {
				ready = append(ready, i)
			}
		}
	}
	for i, n := range missing {
		if n > 0 {
			return d.Steps[i].Name
		}
	}
	return ""
}

// Hash returns the hash that identifies the definition.
func (d *Definition) Hash() Hash { return d.hash }

// Text returns the definition as it is stored.
func (d *Definition) Text() []byte { return d.text }

// Index returns the index of the step with this name, or -1.
func (d *Definition) Index(name string) int {
	return slices.IndexFunc(d.Steps, func(s Step) bool { return s.Name == name })
}

// Downstream returns, for each step, whether it is step i or depends on it, directly or through
// others.
func (d *Definition) Downstream(i int) []bool {
	in := make([]bool, len(d.Steps))
	in[i] = true
	for todo := []int{i}; len(todo) > 0; todo = todo[1:] {
		for _, j := range d.Steps[todo[0]].opens {
			if !in[j] {
				in[j] = true
				todo = append(todo, j)
			}
		}
	}
	return in
}

// Upstream reports whether step i depends on step j, directly or through others.
func (d *Definition) Upstream(i, j int) bool { return i != j && d.Downstream(j)[i] }

// ParseDefinition decodes a stored definition.
func ParseDefinition(text []byte) (*Definition, error) {
	d := new(Definition)
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(d); err != nil {
		return nil, fmt.Errorf("definition: %w", err)
	}
	if err := d.Prepare(); err != nil {
		return nil, fmt.Errorf("definition %q: %w", d.Name, err)
	}
	// Keep the stored text and its hash, even if this version encodes it differently.
	d.text, d.hash = bytes.Clone(text), hashOf(text)
	return d, nil
}

// definitionSet has the definitions of the runs in memory and those that new runs can use, and
// the workflows by name.
type definitionSet struct {
	defs      map[Hash]*Definition
	used      map[Hash]int64 // for each stored definition: when a run with it last started or finished
	workflows map[string]*Workflow
	children  bool // a run has a parent, or had one
	adopted   bool // a retry has continued the child of an operation, here or in another shard
}

// Definitions yields the hashes of all definitions.
func (s *definitionSet) Definitions() iter.Seq[Hash] { return maps.Keys(s.defs) }

// Workflows returns the workflows by name.
func (s *definitionSet) Workflows() map[string]*Workflow { return s.workflows }

// learn copies the definition with the hash from another set, unless this one has it. It also copies
// the time when the definition was last used.
func (s *definitionSet) learn(h Hash, from *definitionSet) {
	if used, stored := from.used[h]; stored {
		s.use(h, used)
	}
	if _, known := s.defs[h]; known {
		return
	}
	d := *from.defs[h]
	d.Steps = slices.Clone(d.Steps) // steps point to the queues of their machine
	d.runs, d.open = 0, false
	s.define(&d)
}

// stored reports whether the log has the definition, so that a run can start from it.
func (s *definitionSet) stored(h Hash) bool {
	_, stored := s.used[h]
	return stored
}

// format returns the format that can store all definitions, runs and pauses.
func (s *definitionSet) format() byte {
	if s.adopted {
		return ChildFormat
	}
	if len(s.pauses()) > 0 {
		return PauseFormat
	}
	if s.children {
		return flowFormat
	}
	for _, d := range s.defs {
		if f := d.format(); f != FirstFormat {
			return f
		}
	}
	return FirstFormat
}

// use notes that the definition was used at this time.
func (s *definitionSet) use(h Hash, at int64) { s.used[h] = max(s.used[h], at) }

// define adds a definition, unless it is known.
func (s *definitionSet) define(d *Definition) {
	if _, known := s.defs[d.hash]; known {
		return
	}
	w := s.workflow(d.Name)
	d.workflow = w
	for i := range d.Steps {
		d.Steps[i].queue = w.queue(d.Steps[i].Name)
	}
	s.defs[d.hash] = d
}

// workflow returns the workflow with this name. It adds a new one if there is none.
func (s *definitionSet) workflow(name string) *Workflow {
	w := s.workflows[name]
	if w == nil {
		w = &Workflow{Name: name, queues: map[string]*Queue{}}
		s.workflows[name] = w
	}
	return w
}

// pauses returns the paused workflows by name.
func (s *definitionSet) pauses() map[string]Pause {
	paused := map[string]Pause{}
	for name, w := range s.workflows {
		if w.Pause != nil {
			paused[name] = *w.Pause
		}
	}
	return paused
}

// purge removes the definitions that were last used before the time and have no run in memory.
// A definition with only finished runs in memory stays until they are gone, but must be stored
// again before the next start. It skips definitions with unfinished runs.
func (s *definitionSet) purge(before int64) {
	for h, d := range s.defs {
		if d.open || s.used[h] >= before {
			continue
		}
		delete(s.used, h) // so that it is stored again before the next start
		if d.runs == 0 {
			delete(s.defs, h)
		}
	}
}

// hasUnused reports whether purge would remove a definition.
func (s *definitionSet) hasUnused(before int64) bool {
	for h, at := range s.used {
		if d := s.defs[h]; d != nil && d.runs == 0 && at < before {
			return true
		}
	}
	return false
}

// Format returns the format that can store the definition, its runs, and the run that starts when
// one of them ends.
func (d *Definition) Format() int { return int(d.format()) }

// format returns the format of an entry that has the definition, or a run of it.
func (d *Definition) format() byte {
	if d.Flow || d.Op || d.OnEnd != nil && d.OnEnd.format() > FirstFormat {
		return flowFormat
	}
	return FirstFormat
}

// operation returns the definition of an operation with this stored text. It adds the
// definition if it is new.
func (s *definitionSet) operation(text []byte) (*Definition, error) {
	if d, ok := s.defs[hashOf(text)]; ok {
		return d, nil
	}
	d, err := ParseDefinition(text)
	if err != nil {
		return nil, err
	}
	s.define(d)
	return s.defs[d.hash], nil
}
