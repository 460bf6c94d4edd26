package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/internal/textfmt"
)

// Deadlock is a set of attempts that wait for each other's places. The zero value means no
// deadlock.
type Deadlock struct {
	Attempts []string // run id, step and number of each attempt
	shard    int      // shard of the first attempt
	Remote   int      // number of queued runs of other processes that the attempts wait for
	text     string   // description for operators
}

// FindDeadlock reads the state of shards of this process and looks for a deadlock. waits has the runs that attempts
// wait for. queued returns the workflow of a run of another process, if that run is queued.
func FindDeadlock(ctx context.Context, p *Process, shards []*Shard, waits map[*Attempt][]machine.ID, queued func(machine.ID) (workflow string, ok bool)) (d Deadlock, err error) {
	g := &waitGraph{
		places: p.Settings.Concurrency, attempts: map[attemptKey]*waitingAttempt{}, runs: map[machine.ID]*waitedRun{},
		runLimits: map[limitKey]*runLimit{}, elsewhere: map[machine.ID]string{},
		functions: p.Settings.MaxFunctions, functionsFull: p.Admission.Counts().Calls <= 0,
	}
	for _, runs := range waits {
		for _, id := range runs {
			g.elsewhere[id] = ""
		}
	}
	for _, sh := range shards {
		_, err := ask(ctx, &sh.requests, func(Recorder) (struct{}, error) { g.addShard(sh, waits); return struct{}{}, nil })
		if err != nil {
			return d, err
		}
	}
	g.full = p.Admission.Counts().Attempts <= 0
	if len(g.elsewhere) > 0 && len(g.stuck()) > 0 {
		for id := range g.elsewhere {
			if workflow, ok := queued(id); ok {
				g.elsewhere[id] = workflow
			} else {
				delete(g.elsewhere, id)
			}
		}
		g.asked = true
	}
	return g.deadlock(g.stuck()), nil
}

// ReportDeadlock makes a deadlock a trouble of this shard, if it has the first of its attempts. Otherwise it ends
// the trouble of an earlier deadlock.
func (sh *Shard) ReportDeadlock(d Deadlock) {
	var now error
	if len(d.Attempts) > 0 && sh.Number == d.shard {
		now = errors.New(d.text)
	}
	switch before := sh.health.get(troubleDeadlock); {
	case before != nil && now == nil:
		sh.process.Settings.Logger.Info("the deadlock is over", "shard", sh.Number)
	case before == nil && now != nil:
		sh.process.Settings.Logger.Error("deadlock: attempts wait for runs that can't begin", "shard", sh.Number, "why", d.text)
	}
	sh.health.set(troubleDeadlock, now)
}

// waitGraph has the attempts of this process and the runs that they wait for.
type waitGraph struct {
	places    int  // number of places of the process
	full      bool // no place is free
	attempts  map[attemptKey]*waitingAttempt
	runs      map[machine.ID]*waitedRun
	runLimits map[limitKey]*runLimit
	elsewhere map[machine.ID]string // runs that no shard of this process has, with their workflows once they were asked for
	asked     bool                  // other processes were asked: elsewhere has only queued runs

	functions     int          // how many functions of flows the process calls at once
	functionsFull bool         // no other function can be called now
	called        []machine.ID // the runs whose functions are called, if functionsFull
}

// limitKey says what a limit applies to: attempts of a step, or runs of the workflow if step
// is "".
type limitKey struct {
	shard          int
	workflow, step string
}

// runLimit is a used-up limit of runs in progress, and the runs that count for it.
type runLimit struct {
	admission.Limit
	runs []machine.ID
}

// waitingAttempt is a running attempt, which may wait for runs.
type waitingAttempt struct {
	attemptKey
	limitKey
	number int
	waits  []machine.ID // the runs that its handler waits for; nil if it does not wait
	stuck  bool         // all runs that it waits for are blocked, as far as is known
}

// waitedRun is a run that an attempt waits for, or that counts for a used-up limit.
type waitedRun struct {
	shard    int
	workflow string
	goesOn   bool         // the run is not blocked by places: it has ended, is paused, or waits for a time or a handler
	running  []int        // numbers of running steps, without a function that waits for operations
	queued   []queuedStep // queued steps
}

// queuedStep is a step that is due and waits for a limit.
type queuedStep struct {
	name       string
	isFunction bool // it is the function of a flow, which needs no place of an attempt
	limits     admission.StepLimits
}

// addShard adds the attempts and runs of a shard to the graph. The owner's goroutine calls
// it.
func (g *waitGraph) addShard(sh *Shard, waits map[*Attempt][]machine.ID) {
	for _, a := range sh.dispatcher.running {
		step := a.Task.Step
		if !a.op.IsZero() {
			step = a.op.Name()
		}
		g.attempts[a.key] = &waitingAttempt{
			attemptKey: a.key, limitKey: limitKey{sh.Number, a.Task.Workflow, step}, number: a.number, waits: waits[a],
		}
	}
	for id := range sh.dispatcher.calls.All() {
		if run, ok := sh.owner.m.Run(id); ok && g.functionsFull {
			g.called = append(g.called, id)
			g.addRun(sh, run)
		}
	}
	for id := range g.elsewhere {
		if run, ok := sh.owner.m.Run(id); ok {
			delete(g.elsewhere, id)
			g.addRun(sh, run)
		}
	}
}

// addRun adds a run to the graph, and the limits that its queued steps wait for.
func (g *waitGraph) addRun(sh *Shard, run *machine.Run) {
	if g.runs[run.ID] != nil {
		return
	}
	r := &waitedRun{shard: sh.Number, workflow: run.Def.Name, goesOn: run.Outcome != machine.Undecided || run.Held}
	g.runs[run.ID] = r
	for i, s := range run.Live() {
		queue := run.StepDef(i).Name
		name := strings.TrimPrefix(queue, workflow.LimitedOp("")) // operations without a limit of their own share a queue
		switch {
		case s.Status == machine.Running && run.IsFunction(i):
			r.goesOn = r.goesOn || !sh.dispatcher.calls.Waits(run.ID)
		case s.Status == machine.Running:
			r.running = append(r.running, i)
		case run.InQueue(i):
			limits := sh.dispatcher.admission.Limits(run.StepDef(i).Queue(), run)
			r.queued = append(r.queued, queuedStep{name, run.IsFunction(i), limits})
			g.addRunLimit(sh, r.workflow, limits)
		case s.Status == machine.Waiting, s.Status == machine.NoHandler:
			r.goesOn = true
		}
	}
}

// addRunLimit adds a limit of runs with the runs that count for it, if it is used up.
func (g *waitGraph) addRunLimit(sh *Shard, workflow string, limits admission.StepLimits) {
	key, limit := limitKey{shard: sh.Number, workflow: workflow}, limits.By(info.HeldByRuns)
	if !limit.IsReached() || g.runLimits[key] != nil {
		return
	}
	l := &runLimit{Limit: limit}
	g.runLimits[key] = l
	for _, run := range sh.owner.m.All() {
		if run.HasPlace() && run.Def.Name == workflow {
			l.runs = append(l.runs, run.ID)
			g.addRun(sh, run)
		}
	}
}

// stuck returns the attempts that wait only for blocked runs. It first assumes that all
// waiting attempts are stuck. Then it clears those that wait for a run that can go on, and
// repeats this until nothing changes.
func (g *waitGraph) stuck() (list []*waitingAttempt) {
	for _, a := range g.attempts {
		a.stuck = len(a.waits) > 0
	}
	for changed := true; changed; {
		changed = false
		for _, a := range g.attempts {
			if a.stuck && slices.ContainsFunc(a.waits, g.canGoOn) {
				a.stuck, changed = false, true
			}
		}
	}
	list = slices.DeleteFunc(slices.Collect(maps.Values(g.attempts)), func(a *waitingAttempt) bool { return !a.stuck })
	slices.SortFunc(list, func(a, b *waitingAttempt) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// String identifies the attempt.
func (a *waitingAttempt) String() string {
	return fmt.Sprintf("%s/%d/%d", a.run, a.attemptKey.step, a.number)
}

// canGoOn reports whether a run is not blocked: an attempt of it can begin or end, or it waits
// for something other than a free place.
func (g *waitGraph) canGoOn(id machine.ID) bool {
	r := g.runs[id]
	if r == nil {
		_, queued := g.elsewhere[id] // until other processes were asked, all their runs count as queued
		return !queued
	}
	if r.goesOn {
		return true
	}
	for _, step := range r.running {
		if a := g.attempts[attemptKey{id, step}]; a == nil || !a.stuck {
			return true
		}
	}
	return slices.ContainsFunc(r.queued, func(step queuedStep) bool { return g.missing(r, step) == "" })
}

// missing says which limit keeps a queued step from beginning, and why; "" if there is none.
func (g *waitGraph) missing(r *waitedRun, step queuedStep) string {
	if !step.isFunction {
		if text := g.missingPlace(limitKey{r.shard, r.workflow, step.name}, step.limits.By(info.HeldByAttempts).Most); text != "" {
			return text
		}
	} else if g.functionsFull && !slices.ContainsFunc(g.called, g.canGoOn) {
		return fmt.Sprintf("all %d calls of functions that the process makes at once (4 times its concurrency, at least %d) are taken by functions that wait", g.functions, MinFunctions)
	}
	l := g.runLimits[limitKey{shard: r.shard, workflow: r.workflow}]
	if l == nil || !step.limits.By(info.HeldByRuns).IsReached() || len(l.runs) < l.Used || slices.ContainsFunc(l.runs, g.canGoOn) {
		return ""
	}
	return fmt.Sprintf("all %d runs of workflow %s that may be in progress (its limit of runs) are taken by attempts that wait", l.Most, r.workflow)
}

// missingPlace is missing for an attempt, without the limit of runs.
func (g *waitGraph) missingPlace(key limitKey, limit int) string {
	ofStep, othersOfStep, others := 0, 0, 0 // attempts of the step, and those that are not stuck
	for _, a := range g.attempts {
		if a.limitKey == key {
			ofStep++
		}
		if !a.stuck {
			others++
			if a.limitKey == key {
				othersOfStep++
			}
		}
	}
	switch {
	case g.full && others == 0 && len(g.attempts) >= g.places:
		return fmt.Sprintf("all %d places of the process (concurrency) are taken by attempts that wait", g.places)
	case limit > 0 && othersOfStep == 0 && ofStep >= limit:
		return fmt.Sprintf("all %d places of step %s/%s (its concurrency) are taken by attempts that wait", limit, key.workflow, key.step)
	}
	return ""
}

// deadlock describes the deadlock of the stuck attempts.
func (g *waitGraph) deadlock(stuck []*waitingAttempt) (d Deadlock) {
	if len(stuck) == 0 || len(g.elsewhere) > 0 && !g.asked {
		return d
	}
	parents, children, taken := map[string]int{}, map[string]int{}, map[string]bool{}
	seen := map[machine.ID]bool{}
	for _, a := range stuck {
		d.Attempts = append(d.Attempts, a.String())
		parents[a.workflow+"/"+a.limitKey.step]++
		for _, id := range a.waits {
			if seen[id] {
				continue
			}
			seen[id] = true
			if r := g.runs[id]; r != nil {
				children[r.workflow]++
				for _, step := range r.queued {
					taken[g.missing(r, step)] = true
				}
			} else {
				children[g.elsewhere[id]]++
				d.Remote++
			}
		}
	}
	d.shard = stuck[0].shard
	why := "these runs wait for each other"
	do := "cancel one of them, and let no run wait for one that waits for it"
	if len(taken) > 0 || d.Remote > 0 {
		parts := slices.Sorted(maps.Keys(taken))
		if d.Remote > 0 {
			parts = append(parts, fmt.Sprintf("%d of these runs are queued in other processes", d.Remote))
		}
		why = "they can't begin: " + strings.Join(parts, "; ")
		do = "raise the limit, or let the waiting step end and start the rest by OnEnd"
	}
	verb := "wait"
	if len(stuck) == 1 {
		verb = "waits"
	}
	d.text = fmt.Sprintf("%s %s for %s (run %s for run %s), and %s; %s",
		counted(parents, "attempt"), verb, counted(children, "run"), stuck[0].run, stuck[0].waits[0], why, do)
	return d
}

// counted returns a text with the count of each name, as "4 attempts of a/b and 1 of c/d".
func counted(counts map[string]int, noun string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		part := fmt.Sprintf("%d of %s", counts[name], name)
		if len(parts) == 0 {
			part = textfmt.Plural(counts[name], noun) + " of " + name
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " and ")
}

// MinFunctions is the smallest limit of function calls at once. They wait for their operations,
// and need no processor: the limit is for the memory that they use.
const MinFunctions = 1024
