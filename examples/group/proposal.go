package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/retry"
)

// proposal is a change that is being proposed.
type proposal struct {
	seq     int
	build   func(epoch int) (data, welcome string) // rebases the change on an epoch
	welcome string                                 // for a new member; empty for a simple proposal
	state   retry.State
	start   time.Time // start of the proposal
	began   time.Time // start of the present attempt
	last    error     // how the last attempt lost
	done    chan result
}

// result is the result of a proposal.
type result struct {
	epoch   int
	welcome string
	err     error
}

// path says in which situation a proposal lost an attempt and is tried again.
type path string

// The four paths. The waits are computed in the same way on all of them.
const (
	simple      path = "simple proposal"
	withWelcome path = "proposal with welcome"
	accepting   path = "rejected while accepting"
	again       path = "rejected again"
)

// Update proposes a change, and returns the epoch in which it was committed.
func (a *Actor) Update(ctx context.Context, text string) (int, error) {
	r, err := a.propose(ctx, text, &proposal{build: func(epoch int) (string, string) {
		return fmt.Sprintf("%s (on %d)", text, epoch-1), ""
	}})
	return r.epoch, err
}

// checkText rejects text that no message can carry.
func checkText(text string) error {
	const room = 100 // bytes for the text that AddMember and the epoch add
	switch {
	case len(text) > paxos.MaxData-room:
		return fmt.Errorf("a change of %d bytes: at most %d are allowed", len(text), paxos.MaxData-room)
	case !utf8.ValidString(text):
		return errors.New("a change that is not UTF-8: use valid text")
	}
	return nil
}

// AddMember proposes to add a member, and returns the welcome message for it. The
// welcome names the epoch at which the member joins. It is therefore built again for
// each epoch that is tried, and returned only when the epoch is decided.
func (a *Actor) AddMember(ctx context.Context, name string) (string, error) {
	r, err := a.propose(ctx, name, &proposal{build: func(epoch int) (string, string) {
		return fmt.Sprintf("add %s (on %d)", name, epoch-1), fmt.Sprintf("welcome %s to epoch %d", name, epoch)
	}})
	return r.welcome, err
}

func (a *Actor) enqueue(p *proposal) {
	a.queue = append(a.queue, p)
	if len(a.queue) == 1 {
		a.begin(p)
	}
}

func (a *Actor) begin(p *proposal) {
	a.seq++
	p.seq, p.start = a.seq, time.Now()
	a.attempt(p, func(data string, out *paxos.Output) { a.paxos.Propose(p.seq, data, out) })
}

// attempt makes an attempt in the current epoch.
func (a *Actor) attempt(p *proposal, send func(string, *paxos.Output)) {
	var data string
	data, p.welcome = p.build(a.paxos.Epoch())
	p.state.Attempt++
	p.began = time.Now()
	a.observe(p, retry.Event{Kind: retry.AttemptStarted})
	policy := a.policy()
	limit := max(policy.TotalTimeout-time.Since(p.start), 1)
	if policy.AttemptTimeout > 0 {
		limit = min(limit, policy.AttemptTimeout)
	}
	a.alarm.set(limit, func() { a.step(a.paxos.Timeout) })
	a.step(func(out *paxos.Output) { send(data, out) })
}

// policy returns the policy for the next wait.
func (a *Actor) policy() retry.Policy { return a.config.Contend.For(a.pace.Attempt()) }

// handleEvent handles an event of the state machine.
func (a *Actor) handleEvent(e paxos.Event) {
	if len(a.queue) == 0 {
		return
	}
	p := a.queue[0]
	switch e.Kind {
	case paxos.Learned: // the next attempt is rebased on it
	case paxos.Committed:
		a.pace.Observe(time.Since(p.began))
		a.finish(p, result{epoch: e.Epoch, welcome: p.welcome})
	case paxos.Lost:
		a.handleLoss(p, e)
	case paxos.Forgotten:
		a.finish(p, result{err: unsure(a.paxos, errTooLate)})
	}
}

// handleLoss determines on which path the proposal is tried again.
func (a *Actor) handleLoss(p *proposal, e paxos.Event) {
	p.last = errNoQuorum
	if e.Ballot != (paxos.Ballot{}) {
		p.last = contend.Lost(e.Ballot, nil)
		a.pace.Observe(time.Since(p.began))
	}
	a.observe(p, retry.Event{Kind: retry.AttemptFailed, Err: p.last})
	switch {
	case e.During == paxos.Accepting:
		a.retry(p, accepting)
	case p.state.Attempt > 1:
		a.retry(p, again)
	case p.welcome != "":
		a.retry(p, withWelcome)
	default:
		a.retry(p, simple)
	}
}

// retry is the only place where a proposal waits, on every path, and
// [retry.Decide] is the only function that decides how long.
func (a *Actor) retry(p *proposal, by path) {
	p.state.Elapsed = time.Since(p.start)
	d := retry.Decide(a.policy(), p.state, retry.Outcome{}, retry.Gates{}, a.config.Random())
	if d.Stop != 0 {
		a.finish(p, result{err: contend.Exceeded(d.Stop, p.state.Attempt, unsure(a.paxos, p.last))})
		return
	}
	p.state.Prev = d.Prev
	a.observe(p, retry.Event{Kind: retry.Waiting, Delay: d.Wait, By: d.By, Until: time.Now().Add(d.Wait), Err: p.last, Note: string(by)})
	a.alarm.set(d.Wait, func() { a.attempt(p, a.paxos.Again) })
}

// unsure marks the failure with [contend.Unsure] if the acceptors may still decide for the
// proposal.
func unsure(p *paxos.Proposer, err error) error {
	if p.Open() {
		return contend.Unsure(err)
	}
	return err
}

// withdraw ends a proposal whose caller has stopped waiting.
func (a *Actor) withdraw(p *proposal, why error) {
	switch i := slices.Index(a.queue, p); {
	case i == 0:
		a.finish(p, result{err: unsure(a.paxos, why)})
	case i > 0:
		a.queue = slices.Delete(a.queue, i, i+1)
		p.done <- result{err: why}
	}
}

// finish ends the first proposal, and begins the next.
func (a *Actor) finish(p *proposal, r result) {
	a.alarm.timer.Stop()
	a.paxos.Abandon()
	e := retry.Event{Kind: retry.Succeeded, Note: fmt.Sprintf("epoch %d", r.epoch)}
	if r.err != nil {
		e = retry.Event{Kind: retry.GaveUp, Err: r.err}
	}
	a.observe(p, e)
	p.done <- r
	if a.queue = a.queue[1:]; len(a.queue) > 0 {
		a.begin(a.queue[0])
	}
}

// observe passes an event of the proposal to the observer.
func (a *Actor) observe(p *proposal, e retry.Event) {
	if a.config.Observe == nil {
		return
	}
	e.Time, e.Name = time.Now(), fmt.Sprintf("device %d", a.config.Member)
	e.Call, e.Attempt, e.Attempts, e.Elapsed, e.Prev = uint64(p.seq), p.state.Attempt, a.policy().Attempts, time.Since(p.start), p.state.Prev
	a.config.Observe(e)
}
