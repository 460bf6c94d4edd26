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

// Handover is a period in which other assistants work in the folder of a session, because the
// session's own assistant has a limit. It is part of the [Memo].
type Handover struct {
	Number    int       `json:"number"`              // of the handover within the run, from 1
	Assistant string    `json:"assistant,omitempty"` // name of the assistant that works
	Next      int       `json:"next,omitempty"`      // its index in Spec.Fallback
	Memo      *Memo     `json:"memo,omitempty"`      // of its own session; nil before its start
	Until     time.Time `json:"until"`               // stated end of the limit
	Back      time.Time `json:"back"`                // when the session's own assistant continues
	Held      bool      `json:"held,omitempty"`      // another session has found the limit, so no window is used
	Over      bool      `json:"over,omitempty"`      // the handover has ended
	Worked    []string  `json:"worked,omitempty"`    // names of the assistants whose commands were run
	Returned  bool      `json:"returned,omitempty"`  // the session's own assistant was told who worked meanwhile
}

// Turn is a period in which one assistant worked.
type Turn struct {
	Assistant string    `json:"assistant"`
	Fallback  bool      `json:"fallback,omitempty"` // the session was handed over to it
	From      time.Time `json:"from"`
	To        time.Time `json:"to,omitzero"`     // zero while it works
	Ended     string    `json:"ended,omitempty"` // why: a reason of detect, "interrupted" or "not-run"
	Until     time.Time `json:"until,omitzero"`  // stated end of its limit
	Line      string    `json:"line,omitempty"`  // line of output with the reason
}

// The values of Turn.Ended that are not reasons of package detect.
const (
	turnInterrupted = "interrupted" // by the end of the process or by an operator, and not continued
	turnNotRun      = "not-run"     // the command could not be run, or its account has a limit
)

// notRunNote occurs in the note of an attempt that ran no command. statusOf matches it in stored
// runs.
const notRunNote = " was not run"

// maxTurns limits the number of stored turns.
const maxTurns = 20

// maxTurnLine limits the bytes of Turn.Line.
const maxTurnLine = 120

// stored truncates a time to seconds, because a memo has little room. A zero time stays zero.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// beginTurn records that the assistant works from now on. If its last turn has not ended, it
// continues that turn.
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

// CurrentTurn returns the turn that has not ended; nil if there is none.
func (m *Memo) CurrentTurn() *Turn {
	if n := len(m.Turns); n > 0 && m.Turns[n-1].To.IsZero() {
		return &m.Turns[n-1]
	}
	return nil
}

// endTurn records the end of the current turn, if there is one. It copies Ended, Until and Line from
// how.
func (m *Memo) endTurn(how Turn, now time.Time) {
	if m.CurrentTurn() == nil {
		return
	}
	m.Turns = slices.Clone(m.Turns) // may be shared with other memos
	t := m.CurrentTurn()
	t.To, t.Ended, t.Until, t.Line = stored(now), how.Ended, stored(how.Until), textfmt.TruncateValid(how.Line, maxTurnLine, "…")
}

// turnEnd returns the values of Turn that describe its end by this stop, for [Memo.endTurn].
func turnEnd(stop detect.Stop) Turn {
	return Turn{Ended: stop.Reason.String(), Until: stop.Until, Line: stop.Line}
}

// handOver records in the memo that other assistants work until the time back, because the
// session's limit lasts until the time until. held means that another session has found the limit.
// It returns false, and records nothing, if there is no fallback, if the limit is too short, or if
// the handover for this limit is already over.
func (a *attempt) handOver(m *Memo, until, back time.Time, held bool) bool {
	s := a.spec
	now := time.Now()
	if len(s.Fallback) == 0 || until.Sub(now) <= cmp.Or(s.FallbackAfter, DefaultFallbackAfter) {
		return false
	}
	number := 1
	if was := m.Handover; was != nil {
		if held && was.Over && was.Back.After(now) {
			return false // that handover was for the same limit
		}
		number = was.Number + 1
	}
	m.Handover = &Handover{Number: number, Assistant: s.Fallback[0].Name, Until: stored(until), Back: stored(back), Held: held}
	return true
}

// describe says which assistant works until when.
func (h *Handover) describe() string {
	return fmt.Sprintf("handed over to %s until %s", h.Assistant, h.Back.Local().Format("Jan 2 15:04:05 MST"))
}

// limitReached hands the session over to other assistants if it stopped at a limit that lasts long
// enough. It returns the error that ends the attempt and uses a window; nil if nothing is handed over.
func (a *attempt) limitReached(m *Memo, stop detect.Stop, err error) error {
	slack := a.spec.storedPolicy().ServerSlack
	if stop.Reason != detect.RateLimit || stop.Until.IsZero() || time.Until(stop.Until) <= min(shortWait, slack) {
		return nil
	}
	back := stop.Until.Add(slack + account.Jitter(cmp.Or(a.spec.AccountSpread, account.DefaultSpread)))
	if !a.handOver(m, stop.Until, back, false) {
		return nil
	}
	return engine.SpendWindow(stop.Until, err.Error()+"; "+m.Handover.describe())
}

// waitForAccount returns the error that ends an attempt that the account holds back. It hands the
// session over to other assistants if it can; otherwise the run waits.
func (a *attempt) waitForAccount(use *usage, m Memo, h *account.Held) error {
	until := time.Now().Add(h.Wait)
	switch {
	case h.Stated:
		m.LimitSince = time.Time{}
	case m.LimitSince.IsZero():
		m.LimitSince = stored(time.Now())
	case m.nextProbe(a.spec) == 0:
		return a.awaitProbe(m, h.Why)
	}
	if h.Stated && a.handOver(&m, until, until, true) {
		return engine.Keep(engine.Snooze(time.Nanosecond, h.Why+"; "+m.Handover.describe()), m)
	}
	use.asker.Forced = false
	a.runner.held.add(a.runner, a.task.Run, heldRun{use.gate, use.asker, until}) // wakes the run if the gate opens earlier
	return engine.Keep(engine.Snooze(h.Wait, h.Why), m)
}

// isHandedOver reports whether another assistant works now. It ends the handover in the memo if the
// limit has ended, or if the operator wants the session's own assistant to continue.
func (a *attempt) isHandedOver(m *Memo) bool {
	h := m.Handover
	if h == nil || h.Over {
		return false
	}
	_, forced := a.runner.forced.Load(a.task.Run)
	if !forced && h.Next < len(a.spec.Fallback) && time.Now().Before(h.Back) {
		return true
	}
	m.Handover = new(*h)
	m.Handover.Over, m.Handover.Memo = true, nil
	m.endTurn(Turn{Ended: turnInterrupted}, time.Now())
	return false
}

// withFallback returns a copy of the memo, with the memo of the fallback's own session in its
// handover.
func (m Memo) withFallback(own Memo) Memo {
	h := *m.Handover
	h.Memo = &own
	if own.Started && !slices.Contains(h.Worked, h.Assistant) {
		h.Worked = append(slices.Clone(h.Worked), h.Assistant)
	}
	m.Handover = &h
	return m
}

// handleFallback makes one attempt of the fallback assistant.
func (a *attempt) handleFallback(ctx context.Context, before Memo) ([]byte, error) {
	s, t := a.spec, a.task
	h := before.Handover
	prompt, err := s.handoverPrompt(s.task(data{before.Session, s.Name, t.Attempt}), h.Until)
	if err != nil {
		return nil, engine.Keep(retry.Permanent(fmt.Errorf("fallback-prompt: %w", err)), before)
	}
	fallback := &attempt{a.runner, s.Fallback[h.Next].spec(s, t.Run, h.Number, prompt), t}
	var own Memo
	if h.Memo != nil {
		own = *h.Memo
	}
	use, held := fallback.useAccount(fallback.spec.idSeed, false)
	if held != nil {
		return nil, a.nextFallback(before, Turn{Ended: turnNotRun, Line: held.Why})
	}
	defer use.release()
	begun := before
	begun.beginTurn(h.Assistant, true, time.Now())
	end, err := fallback.runCommand(ctx, own, begun.withFallback)
	memo := before
	if end.ran {
		memo = begun.withFallback(end.memo)
	}
	if err != nil {
		return nil, a.fallbackError(ctx, memo, end.ran, err)
	}
	a.reportStop(*end.memo.Last)
	if end.gone && end.resumed && end.memo.Gone == 0 {
		end.memo.Gone++
		end.memo.startOver()
		return nil, engine.Keep(engine.Snooze(time.Nanosecond, h.Assistant+" has lost its session and starts again"), begun.withFallback(end.memo))
	}
	use.reportStop(end.stop, &end.memo)
	if end.stop.Reason == detect.UserExit && s.action(detect.UserExit).Do == DoStop {
		memo.endTurn(turnEnd(end.stop), time.Now())
		return nil, a.stop(ctx, memo, failure(end.stop, end.memo.Last.Exit))
	}
	return nil, a.nextFallback(memo, turnEnd(end.stop))
}

// fallbackError returns what follows an attempt of the fallback whose command could not be run or
// was interrupted.
func (a *attempt) fallbackError(ctx context.Context, memo Memo, ran bool, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), engine.ErrTimeout):
		return a.nextFallback(memo, Turn{Ended: turnInterrupted, Line: err.Error()})
	case ctx.Err() == nil && retry.OutcomeOf(err).Class == retry.ClassPermanent:
		return a.nextFallback(memo, Turn{Ended: turnNotRun, Line: err.Error()})
	}
	if ran {
		memo.endTurn(Turn{Ended: turnInterrupted}, time.Now())
	}
	return engine.Keep(err, memo)
}

// nextFallback ends the turn of a fallback as how says, and returns the error that ends the
// attempt. The next fallback takes over. If there is none, or the work is completed, the session's
// own assistant continues at the end of its limit.
func (a *attempt) nextFallback(m Memo, how Turn) error {
	s := a.spec
	now := time.Now()
	h := *m.Handover
	m.Handover = &h
	m.beginTurn(h.Assistant, true, now) // no effect if it was begun already
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
		return engine.Keep(engine.Snooze(time.Nanosecond, text+"; "+h.describe()), m)
	}
	h.Over = true
	text += "; " + s.AssistantName() + " continues when its limit has ended"
	if h.Held || !h.Back.After(now) {
		return engine.Keep(engine.Snooze(time.Nanosecond, text), m) // the gate of the account sets the wait
	}
	return engine.Keep(engine.SnoozeUntil(h.Back, text), m)
}
