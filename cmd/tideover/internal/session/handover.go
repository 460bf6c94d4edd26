package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// Handover is the time during which other assistants work in the folder of a session, because
// its own has a limit. It is part of the [Memo].
type Handover struct {
	Number    int       `json:"number"`              // of the hand-overs of the run, from 1
	Assistant string    `json:"assistant,omitempty"` // the one whose turn it is
	Next      int       `json:"next,omitempty"`      // its place in Spec.Fallback
	Memo      *Memo     `json:"memo,omitempty"`      // of its own session; nil before it has begun
	Until     time.Time `json:"until"`               // when the limit ends, as it was stated
	Back      time.Time `json:"back"`                // when the session's own assistant goes on
	Held      bool      `json:"held,omitempty"`      // another session has learned of the limit, and no window is spent
	Over      bool      `json:"over,omitempty"`      // no other assistant works any more
	Worked    []string  `json:"worked,omitempty"`    // those whose commands were run
	Returned  bool      `json:"returned,omitempty"`  // the session's own assistant knows of it
}

// Turn is a time during which one assistant worked.
type Turn struct {
	Assistant string    `json:"assistant"`
	Fallback  bool      `json:"fallback,omitempty"` // the session was handed over to it
	From      time.Time `json:"from"`
	To        time.Time `json:"to,omitzero"`     // zero while it works
	Ended     string    `json:"ended,omitempty"` // why: a reason of detect, "interrupted" or "not-run"
	Until     time.Time `json:"until,omitzero"`  // of its limit, as it was stated
	Line      string    `json:"line,omitempty"`  // that says so
}

// The ends of a turn that no output tells of.
const (
	turnInterrupted = "interrupted" // with the process, or by a person, and not gone on with
	turnNotRun      = "not-run"     // the command could not be run, or its account is limited
)

// notRunNote is in the note of an attempt that has run no command of the assistant that it names before.
const notRunNote = " was not run"

// maxTurns is how many turns are kept.
const maxTurns = 20

// maxTurnLine is how much of a line is kept of a turn.
const maxTurnLine = 120

// stored returns a time as the memo has it, which has little room.
func stored(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Second)
}

// beginTurn notes that the assistant works from now on. One that was interrupted goes on with
// its turn.
func (m *Memo) beginTurn(assistant string, fallback bool, now time.Time) {
	if t := m.CurrentTurn(); t != nil {
		if t.Assistant == assistant && t.Fallback == fallback {
			return
		}
		m.endTurn(Turn{Ended: turnInterrupted}, now)
	}
	turns := append(slices.Clone(m.Turns), Turn{Assistant: assistant, Fallback: fallback, From: stored(now)})
	m.Turns = turns[max(0, len(turns)-maxTurns):]
}

// CurrentTurn returns the turn that has not ended, or nil.
func (m *Memo) CurrentTurn() *Turn {
	if n := len(m.Turns); n > 0 && m.Turns[n-1].To.IsZero() {
		return &m.Turns[n-1]
	}
	return nil
}

// endTurn notes how the turn ended.
func (m *Memo) endTurn(how Turn, now time.Time) {
	if m.CurrentTurn() == nil {
		return
	}
	m.Turns = slices.Clone(m.Turns) // others may have it
	t := m.CurrentTurn()
	t.To, t.Ended, t.Until, t.Line = stored(now), how.Ended, stored(how.Until), textfmt.TruncateValid(how.Line, maxTurnLine, "…")
}

// turnEnd returns how a turn ended by a stop.
func turnEnd(stop detect.Stop) Turn {
	return Turn{Ended: stop.Reason.String(), Until: stop.Until, Line: stop.Line}
}

// handOver notes in the memo that other assistants work until the end of a limit, and reports whether
// they do. There is one hand-over for a limit.
func (s *Spec) handOver(m *Memo, until, back time.Time, held bool) bool {
	now := time.Now()
	if len(s.Fallback) == 0 || until.Sub(now) <= cmp.Or(s.FallbackAfter, DefaultFallbackAfter) {
		return false
	}
	number := 1
	if was := m.Handover; was != nil {
		if held && was.Over && was.Back.After(now) {
			return false // it was about the same limit
		}
		number = was.Number + 1
	}
	m.Handover = &Handover{Number: number, Assistant: s.Fallback[0].Name, Until: stored(until), Back: stored(back), Held: held}
	return true
}

// note says in words that others work meanwhile.
func (h *Handover) note() string {
	return fmt.Sprintf("handed over to %s until %s", h.Assistant, h.Back.Local().Format("Jan 2 15:04:05 MST"))
}

// limitReached returns what an attempt ends with that has reached a limit, if others work until its end; nil
// if nobody does. A window is spent.
func (s *Spec) limitReached(m *Memo, stop detect.Stop, err error) error {
	slack := s.storedPolicy().ServerSlack
	if stop.Reason != detect.RateLimit || stop.Until.IsZero() || time.Until(stop.Until) <= min(shortWait, slack) {
		return nil
	}
	back := stop.Until.Add(slack + account.Jitter(cmp.Or(s.AccountSpread, account.DefaultSpread)))
	if !s.handOver(m, stop.Until, back, false) {
		return nil
	}
	return engine.SpendWindow(stop.Until, err.Error()+"; "+m.Handover.note())
}

// waitForAccount returns what an attempt ends with that the gate of the account holds: others work until the end of
// the limit, or the run waits.
func (s *Spec) waitForAccount(use *usage, m Memo, h *account.Held) error {
	until := time.Now().Add(h.Wait)
	if h.Stated && s.handOver(&m, until, until, true) {
		return engine.Keep(engine.Snooze(time.Nanosecond, h.Why+"; "+m.Handover.note()), m)
	}
	return engine.Keep(use.hold(h.Wait, h.Why), m)
}

// isHandedOver reports whether it is another assistant's turn. If it is not any more, the memo notes
// so: the limit has ended, or a person wants the session's own assistant to go on.
func (r *Runner) isHandedOver(s *Spec, run string, m *Memo) bool {
	h := m.Handover
	if h == nil || h.Over {
		return false
	}
	_, forced := r.forced.Load(run)
	if !forced && h.Next < len(s.Fallback) && time.Now().Before(h.Back) {
		return true
	}
	over := *h
	over.Over, over.Memo = true, nil
	m.Handover = &over
	m.endTurn(Turn{Ended: turnInterrupted}, time.Now())
	return false
}

// withFallback returns the memo with that of the assistant that works.
func (m Memo) withFallback(of Memo) Memo {
	h := *m.Handover
	h.Memo = &of
	if of.Started && !slices.Contains(h.Worked, h.Assistant) {
		h.Worked = append(slices.Clone(h.Worked), h.Assistant)
	}
	m.Handover = &h
	return m
}

// handleFallback makes one attempt of the assistant that the session is handed over to.
func (r *Runner) handleFallback(ctx context.Context, s *Spec, t *engine.Task, before Memo) ([]byte, error) {
	h := before.Handover
	prompt, err := s.handoverPrompt(s.task(data{before.Session, s.Name, t.Attempt}), h.Until)
	if err != nil {
		return nil, engine.Keep(retry.Permanent(fmt.Errorf("fallback-prompt: %w", err)), before)
	}
	spec := s.Fallback[h.Next].spec(s, t.Run, h.Number, prompt)
	var own Memo
	if h.Memo != nil {
		own = *h.Memo
	}
	use, held := r.useAccount(spec, t, spec.idSeed, false)
	if held != nil {
		return nil, s.nextFallback(before, Turn{Ended: turnNotRun, Line: held.Why})
	}
	defer use.leave()
	begun := before
	begun.beginTurn(h.Assistant, true, time.Now())
	end, err := r.runCommand(ctx, spec, t, own, begun.withFallback)
	memo := before
	if end.ran {
		memo = begun.withFallback(end.memo)
	}
	switch {
	case err != nil && errors.Is(context.Cause(ctx), engine.ErrTimeout):
		return nil, s.nextFallback(memo, Turn{Ended: turnInterrupted, Line: err.Error()})
	case err != nil && ctx.Err() == nil && retry.OutcomeOf(err).Class == retry.ClassPermanent:
		return nil, s.nextFallback(memo, Turn{Ended: turnNotRun, Line: err.Error()})
	case err != nil:
		if end.ran {
			memo.endTurn(Turn{Ended: turnInterrupted}, time.Now())
		}
		return nil, engine.Keep(err, memo)
	}
	if r.Stopped != nil {
		r.Stopped(t.Run, *end.memo.Last)
	}
	if end.gone && end.resumed && end.memo.Gone == 0 {
		end.memo.Gone++
		end.memo.anew()
		return nil, engine.Keep(engine.Snooze(time.Nanosecond, h.Assistant+" does not know its session any more; it begins anew"), begun.withFallback(end.memo))
	}
	use.learn(end.stop)
	if end.stop.Reason == detect.UserExit && s.action(detect.UserExit).Do == DoStop {
		memo.endTurn(turnEnd(end.stop), time.Now())
		return nil, r.stop(ctx, t, memo, failure(end.stop, end.memo.Last.Exit))
	}
	return nil, s.nextFallback(memo, turnEnd(end.stop))
}

// nextFallback returns what the attempt of an assistant ends with that took over. If it has completed its work, or
// nobody is left, the session's own assistant goes on when its limit has ended.
func (s *Spec) nextFallback(m Memo, how Turn) error {
	now := time.Now()
	h := *m.Handover
	m.Handover = &h
	m.beginTurn(h.Assistant, true, now) // unless it was begun
	m.endTurn(how, now)
	text := h.Assistant + " stopped, " + how.Ended
	if how.Ended == turnNotRun {
		text = h.Assistant + notRunNote
	}
	if how.Line != "" {
		text += ": " + how.Line
	}
	h.Memo = nil
	h.Next++
	if how.Ended != detect.Completed.String() && h.Next < len(s.Fallback) && now.Before(h.Back) {
		h.Assistant = s.Fallback[h.Next].Name
		return engine.Keep(engine.Snooze(time.Nanosecond, text+"; "+h.note()), m)
	}
	h.Over = true
	text += "; " + s.AssistantName() + " goes on when its limit has ended"
	if h.Held || !h.Back.After(now) {
		return engine.Keep(engine.Snooze(time.Nanosecond, text), m) // the gate of the account says how long
	}
	return engine.Keep(engine.SnoozeUntil(h.Back, text), m)
}
