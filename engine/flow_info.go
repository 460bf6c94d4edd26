package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// describeFlow fills the fields that describe the run of a flow: its function and its operations,
// in the order in which they were called.
func (i *Info) describeFlow(r *machine.Run) {
	i.Status, i.Version = r.Status(), r.Def.Version
	if r.Outcome == machine.Succeeded {
		i.ContinuedBy, i.ReplacedBy = i.ReplacedBy, ""
	}
	steps := map[int]*StepInfo{}
	for n := range r.Live() {
		s := describeStep(r, n)
		s.Name, s.Kind = machine.Function, machine.Function
		if n > 0 {
			s.Kind, s.Name = splitIdentity(r.Identity(n))
		}
		steps[n] = &s
	}
	for res := range machine.ReadResults(r.Results()) {
		s := &StepInfo{Status: machine.Complete.String(), Output: slices.Clone(res.Data), Spent: res.Attempts}
		s.Kind, s.Name = splitIdentity(res.Name)
		if res.Reason != 0 {
			s.Status, s.Output = machine.Exhausted.String(), nil
		}
		steps[res.Number] = s
	}
	for rec := range r.Records() {
		s := steps[rec.Step]
		if rec.Kind == machine.Called || s == nil {
			if s == nil { // a failed operation that a retry of the run has forgotten
				s = &StepInfo{Status: machine.Exhausted.String()}
				s.Kind, s.Name = splitIdentity(rec.Text)
				steps[rec.Step] = s
			}
			if rec.Kind == machine.Called {
				s.Called = new(time.Unix(0, rec.At))
				continue
			}
		}
		if rec.Kind == machine.Suspended {
			a := s.attempt(rec.Attempt, time.Unix(0, rec.At))
			a.Ended, a.Outcome = new(time.Unix(0, rec.At)), "suspended"
			continue
		}
		i.addTo(r, &rec, s)
	}
	numbers := make([]int, 0, len(steps))
	for n := range steps {
		numbers = append(numbers, n)
	}
	slices.SortFunc(numbers, cmp.Compare[int])
	for _, n := range numbers {
		i.Steps = append(i.Steps, *steps[n])
	}
}

// splitIdentity returns the kind and the label of an operation.
func splitIdentity(identity string) (kind, name string) {
	kind, name, _ = strings.Cut(identity, ":")
	return kind, name
}
