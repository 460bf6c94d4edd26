package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// turn is one round of the owner: what was asked, what follows, and what is to
// be done about it when it is stored.
type turn struct {
	sh       *shard
	now      int64
	opened   int64 // the time of the entry
	records  int
	requests []*request
	launches []*attempt
	ended    []machine.ID
	stops    []stop
	offset   int    // of the queue that comes first
	more     bool   // the entry was full before everything was begun
	full     bool   // there was no place for another attempt
	held     bool   // others wait for an attempt that runs alone
	survived *trial // the time of an attempt that ran alone is over, when that is stored
}

// stop is an attempt that is to be told to end.
type stop struct {
	*attempt
	cause error
}

// begin begins a turn.
func (sh *shard) begin() error {
	now, jumped := sh.clock.now()
	sh.turn.now = now
	sh.turn.open()
	return sh.jump(jumped)
}

// refresh looks at the clock again.
func (t *turn) refresh() error {
	now, jumped := t.sh.clock.now()
	t.now = now
	return t.sh.jump(jumped)
}

// open begins an entry.
func (t *turn) open() {
	boot, _ := t.sh.clock.boot()
	t.records, t.opened = 0, t.now
	t.sh.entry.Reset(t.now, int64(boot))
}

// jump records that the clock was set, before anything is decided by it.
func (sh *shard) jump(by time.Duration) error {
	if by == 0 {
		return nil
	}
	sh.cfg.Logger.Warn("the clock was set; waits go on by the time that passes", "by", by)
	if err := sh.turn.record(&machine.Record{Kind: machine.Jumped, At: sh.turn.now, Delay: by}); err != nil {
		return err
	}
	if by < 0 {
		sh.turn.reschedule()
	}
	return nil
}

// record adds a record to the entry of the turn, with what it starts, and applies it.
func (t *turn) record(rec *machine.Record) error {
	sh := t.sh
	next, err := t.heirs(rec)
	if err != nil {
		return err
	}
	if t.records > 0 && sh.entry.Size()+rec.Size()+next.room() > journal.MaxEntry {
		if err := sh.commit(); err != nil {
			return err
		}
		t.open()
	}
	if t.records == 0 {
		boot, _ := sh.clock.boot()
		sh.m.Begin(sh.seq+1, machine.Header{At: t.now, SinceBoot: int64(boot)})
	}
	t.records++
	sh.entry.Add(rec)
	if err := sh.m.Apply(rec); err != nil {
		// What was decided from the state can't contradict it.
		return fmt.Errorf("record %s: %w", rec.Kind, err)
	}
	if !rec.Run.IsZero() {
		sh.after(t, rec)
	}
	return t.startHeirs(rec.Run, next)
}

// after notes what is to be done about a record when it is stored.
func (sh *shard) after(t *turn, rec *machine.Record) {
	run, ok := sh.m.Run(rec.Run)
	if !ok {
		return
	}
	sh.news.note(rec, run)
	switch {
	case run.Closed():
		if len(sh.waiters) > 0 {
			t.ended = append(t.ended, rec.Run)
		}
	case run.Outcome != machine.Undecided:
		t.end(run, errRunOver)
	case rec.Kind == machine.Held, rec.Kind == machine.Postponed:
		t.end(run, ErrPaused)
	}
}

// end ends the attempts of a run when that is stored.
func (t *turn) end(run *machine.Run, cause error) {
	for _, a := range t.sh.attemptsOf(run) {
		t.stops = append(t.stops, stop{a, cause})
	}
}

// commit stores the entry. It does not return before that, unless it can't ever.
func (sh *shard) commit() error {
	t := &sh.turn
	if t.records == 0 {
		return nil
	}
	var id journal.ID
	binary.LittleEndian.PutUint64(id[:8], sh.random())
	binary.LittleEndian.PutUint64(id[8:], sh.random())
	data := sh.entry.Bytes()
	pace := pace{policy: storePolicy}
	for {
		seq, err := sh.lease.Append(context.Background(), sh.seq, id, data)
		if err == nil {
			sh.seq = seq
			t.reclaim()
			sh.snapshots.grown(len(data))
			sh.health.storing(nil)
			return nil
		}
		if errors.Is(err, journal.ErrStale) || errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrTooLarge) {
			return fmt.Errorf("store: %w", err)
		}
		sh.health.storing(err)
		t.lend()
		t.answerReads()
		sh.complain("can't store; nothing goes on until it can", "error", err)
		if stop := sh.waitToStore(pace.next(err, sh.random())); stop != nil {
			return fmt.Errorf("store: %w: %w", stop, err)
		}
	}
}

var errKilled = errors.New("the engine must end at once")

// waitToStore waits before the next attempt to store, and answers reads meanwhile. It
// returns why there must be no other attempt.
func (sh *shard) waitToStore(wait time.Duration) error {
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		select {
		case <-over.C:
			return nil
		case r := <-sh.reads:
			r.err = r.do(&sh.turn)
			close(r.done)
		case <-sh.patience.Done():
			return context.Cause(sh.patience)
		case <-sh.kill:
			return errKilled
		case <-sh.lease.Lost():
			return journal.ErrStale
		}
	}
}

// answerReads answers the reads of the turn, which do not depend on what is stored. They
// may show what is not stored yet.
func (t *turn) answerReads() {
	kept := t.requests[:0]
	for _, r := range t.requests {
		if r.read {
			close(r.done)
		} else {
			kept = append(kept, r)
		}
	}
	clear(t.requests[len(kept):])
	t.requests = kept
}

// lend lets other shards have the places of attempts that can't begin, or whose end
// can't be stored, for as long as nothing can.
func (t *turn) lend() {
	p := &t.sh.process.places
	for _, a := range t.launches {
		if !a.lent {
			a.lent = true
			p.give()
			t.sh.process.quarantine.exit()
			a.trial.end()
		}
	}
	for _, a := range t.sh.running {
		if a.told.Load() {
			a.leave()
		}
	}
	p.leave(t.sh) // it can't use one
	t.sh.process.quarantine.leave(t.sh)
}

// reclaim takes the places back. For a while there may be more attempts than there
// should be.
func (t *turn) reclaim() {
	for _, a := range t.launches {
		if a.lent {
			a.lent = false
			t.sh.process.places.reclaim()
			t.sh.process.quarantine.reenter()
		}
	}
}

// pace says how long to wait before something is tried again that is tried for
// ever.
type pace struct {
	policy retry.Policy
	state  retry.State
}

func (p *pace) next(err error, random uint64) time.Duration {
	p.state.Attempt++
	d := retry.Decide(p.policy, p.state, retry.OutcomeOf(err), retry.Gates{}, random)
	p.state.Prev = d.Prev
	return d.Wait
}

func (p *pace) reset() { p.state = retry.State{} }

// storePolicy is how the engine waits for its own disk.
var storePolicy = retry.Must("decorrelated(100ms..5s) attempts=unlimited").Policy()

// act does what was decided, now that it is stored.
func (t *turn) act() {
	sh := t.sh
	for i, r := range t.requests {
		if r.done != nil {
			close(r.done)
		}
		t.requests[i] = nil
	}
	t.requests = t.requests[:0]
	for i, a := range t.launches {
		sh.attempts.Add(1)
		go a.run()
		t.launches[i] = nil
	}
	t.launches = t.launches[:0]
	for i, s := range t.stops {
		s.end(s.cause)
		t.stops[i] = stop{}
	}
	t.stops = t.stops[:0]
	for _, id := range t.ended {
		for _, w := range sh.waiters[id] {
			close(w)
		}
		delete(sh.waiters, id)
	}
	t.ended = t.ended[:0]
	t.survived.end()
	t.survived = nil
	sh.news.publish()
}

// handle decides about a request.
func (sh *shard) handle(r *request) {
	if r == nil {
		return
	}
	t := &sh.turn
	t.requests = append(t.requests, r)
	switch {
	case r.start != nil:
		t.startRequested(r)
	case r.result != nil:
		// The attempt may have ended after the turn began, and its wait must not
		// begin before it ended.
		if r.err = t.refresh(); r.err == nil {
			sh.concluded(r.result)
		}
	default:
		r.err = r.do(t)
	}
}
