package machine

import (
	"fmt"
	"slices"
	"strings"
)

// Machine is the state of a shard. [Commands] decides what happens next and returns records;
// [Machine.Apply] applies them to the state.
type Machine struct {
	Commands
}

// New returns the state of an empty log.
func New() *Machine { return &Machine{Commands{newState()}} }

// Seq returns the number of the entry that was applied last.
func (m *Machine) Seq() uint64 { return m.seq }

// Clock returns the times in the header of the last entry, and the boot id of the computer that
// the owner of the shard was running on.
func (m *Machine) Clock() (h Header, boot string) {
	return Header{At: m.at, SinceBoot: m.sinceBoot}, m.boot
}

// Schedules returns the schedules by name.
func (m *Machine) Schedules() map[string]*Schedule { return m.schedules }

// Forget removes a finished run from memory, unless it is needed: see Run.IsNeeded. The caller must
// have read the last change of the run. The run's key stays until a record of kind Purged removes
// it. Forget fails if the run is not finished.
func (m *Machine) Forget(r *Run) error {
	if !r.Finished() {
		return fmt.Errorf("run %s is not finished", r.ID)
	}
	if m.byID(r.ID) == r && !r.IsNeeded() { // it was not purged meanwhile
		m.remove(r)
	}
	return nil
}

// Offer puts an operation that is due into its queue. The engine calls it when the function of
// the run has called the operation again, so that an attempt can begin.
func (m *Machine) Offer(r *Run, n int, now int64) {
	if s := r.Step(n); s != nil && s.Status == Waiting && s.At <= now && s.timer == noTimer && hasTimers(r) {
		m.enqueue(r, n)
		m.updateCounts(r)
	}
}

// Withdraw removes an operation from its queue. The engine calls it if the function that has to
// make the attempt is not running.
func (m *Machine) Withdraw(r *Run, n int) {
	m.dequeue(r, n)
	m.updateCounts(r)
}

// CallAgain makes the function of a run due, if it is suspended.
func (m *Machine) CallAgain(r *Run) {
	if s := &r.Steps[0]; s.Status == Blocked && hasTimers(r) {
		m.enqueue(r, 0)
		m.updateCounts(r)
	}
}

// WaitsIn reports whether the run has an operation that has not ended and that is one which has
// reports, by its name without the index of an item. kept has the names of the signals that no
// operation has waited for.
func (m *Machine) WaitsIn(r *Run, has func(name string, kept []string) bool) (bool, error) {
	whole, err := m.whole(r)
	if err != nil {
		return false, err
	}
	var kept []string
	for _, s := range valueOf(whole.flow.inbox).signals {
		kept = append(kept, s.name)
	}
	return slices.ContainsFunc(whole.flow.ops, func(o op) bool {
		name, _, _ := strings.Cut(OpName(o.name), "#")
		return has(name, kept)
	}), nil
}

// Sleep is a sleep, or a wait for a signal, of a run that is over.
type Sleep struct {
	Run    *Run
	Number int // number of the step
}

// Due handles the timers that are due, at most the given number: it removes each timer and puts
// its step into its queue. It returns the runs that have timed out, which the caller must record.
// It also returns the sleeps and the waits for signals that are over, which the caller must record
// by Slept. The move of a step into its queue is not recorded, because it follows from the step's due time. An attempt of
// an operation needs the function of its run: if that is suspended, it is due instead.
func (m *Machine) Due(now int64, most int) (expired []*Run, slept []Sleep) {
	for range most {
		t, ok := m.timers.first()
		if !ok || t.due > now {
			break
		}
		m.timers.unset(t.run, t.step)
		if t.step == deadline {
			expired = append(expired, t.run)
			continue
		}
		switch r := t.run; {
		case r.flow == nil || t.step == 0 || r.Steps[0].Status == Running && r.StepDef(int(t.step)) != &waitStep:
			m.enqueue(r, int(t.step))
		case r.StepDef(int(t.step)) == &waitStep:
			slept = append(slept, Sleep{r, int(t.step)})
		default:
			m.CallAgain(r)
		}
		m.updateCounts(t.run)
	}
	return expired, slept
}

// Learn copies the definition with the hash from another machine, unless this one has it.
func (m *Machine) Learn(h Hash, from *Machine) { m.learn(h, &from.definitionSet) }
