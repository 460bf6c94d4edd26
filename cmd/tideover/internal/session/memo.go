package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

// Memo is the state that one attempt of a session leaves for the next, and for its status. It is
// stored with the run.
type Memo struct {
	Session    string `json:"session"`              // session id; "" if the command chooses it and has not printed it yet
	Stated     bool   `json:"stated,omitempty"`     // the command has printed the id
	Generation int    `json:"generation"`           // how often the session started again from the beginning
	Started    bool   `json:"started,omitempty"`    // the start command was run
	Ended      bool   `json:"ended,omitempty"`      // a command of the session has ended without being interrupted
	UseLatest  bool   `json:"use_latest,omitempty"` // resume the latest session of the folder, because the command printed no id
	Gone       int    `json:"gone,omitempty"`       // how often it started again because the assistant no longer had the session
	NoResume   string `json:"no_resume,omitempty"`  // why the session can never be resumed
	Resumes    int    `json:"resumes,omitempty"`
	InARow     int    `json:"in_a_row,omitempty"` // consecutive stops for the reason of Last
	Last       *Stop  `json:"last,omitempty"`     // the last stop

	LimitSince time.Time `json:"limit_since,omitzero"` // since when a limit without a stated end stops the session; zero if none does

	Limit    *ScreenLimit `json:"limit,omitempty"`    // on the screen of the running command
	Handover *Handover    `json:"handover,omitempty"` // the last handover; nil before the first
	Turns    []Turn       `json:"turns,omitempty"`    // which assistant worked when, if the session has a fallback; the last maxTurns
}

// Stop describes why a command stopped.
type Stop struct {
	Reason string    `json:"reason"`
	Line   string    `json:"line,omitempty"` // line of output with the reason
	Rule   string    `json:"rule,omitempty"`
	Until  time.Time `json:"until,omitzero"` // as stated in the output
	Exit   int       `json:"exit"`
	At     time.Time `json:"at"`
}

// maxMemo is the largest size of a memo. The engine stores at most 4 KiB.
const maxMemo = 4000

// MarshalJSON encodes the memo. If it is too large, it drops the oldest turns, and then the last
// stop of a fallback.
func (m Memo) MarshalJSON() ([]byte, error) {
	type plain Memo
	for {
		text, err := json.Marshal(plain(m))
		switch {
		case err != nil || len(text) <= maxMemo:
			return text, err
		case len(m.Turns) > 1:
			m.Turns = m.Turns[1:]
		case m.Handover != nil && m.Handover.Memo != nil && m.Handover.Memo.Last != nil:
			h, own := *m.Handover, *m.Handover.Memo
			own.Last = nil
			h.Memo, m.Handover = &own, &h
		case len(m.Turns) > 0:
			m.Turns = nil
		default:
			return text, nil
		}
	}
}

// ReadMemo decodes a memo. Empty or foreign data gives the zero memo.
func ReadMemo(text json.RawMessage) (m Memo) {
	_ = json.Unmarshal(text, &m) // not a memo: keep the zero value
	return m
}

// recordStop sets Last to the stop, and counts consecutive stops for the same reason in InARow.
func (m *Memo) recordStop(stop detect.Stop, exit int, now time.Time) {
	was := m.Last
	m.Last = &Stop{Reason: stop.Reason.String(), Line: textfmt.TruncateValid(stop.Line, maxLine, "…"), Rule: stop.Rule, Until: stop.Until, Exit: exit, At: now}
	if was == nil || was.Reason != m.Last.Reason {
		m.InARow = 0
	}
	m.InARow++
}

// startOver makes the next command start a new session.
func (m *Memo) startOver() {
	m.Generation++
	m.Started, m.Session, m.Stated, m.Ended, m.UseLatest = false, "", false, false, false
}

// command returns the command of the attempt, and whether it resumes the session. The first command
// starts the session; later ones resume it, if they can. It updates the memo.
func (m *Memo) command(s *Spec, t *engine.Task) (argv []string, resumes bool, err error) {
	m.chooseID(s, cmp.Or(s.idSeed, t.Run))
	argv = s.Start
	switch {
	case !m.Started:
	case m.NoResume != "" || s.CannotResume() != "":
		m.NoResume = cmp.Or(m.NoResume, s.CannotResume())
		return nil, false, errors.New(m.NoResume)
	case len(s.Resume) == 0:
	case m.UseLatest && !m.Stated:
		argv, resumes = s.ResumeLatest, true
	case m.Session == "":
		// The command prints its id first, and has printed none: there is no session to resume yet.
	default:
		argv, resumes = s.Resume, true
	}
	if resumes {
		m.Resumes++
	}
	m.Started = true
	var d any = data{m.Session, s.Name, t.Attempt}
	if s.handedOver {
		d = fallbackData{data{m.Session, s.Name, t.Attempt}, s.prompt}
	}
	argv, err = render(argv, d)
	if resumes && err == nil {
		m.returnFromHandover(argv)
	}
	return argv, resumes, err
}

// returnFromHandover replaces the prompt of the first resume command after a handover by one that
// says what other assistants have done.
func (m *Memo) returnFromHandover(argv []string) {
	h := m.Handover
	if h == nil || h.Returned || len(h.Worked) == 0 {
		return
	}
	m.Handover = new(*h)
	m.Handover.Returned = true
	if at := slices.Index(argv, continuePrompt); at >= 0 {
		argv[at] = returnPrompt(h.Worked)
	}
}

// chooseID sets the session id, unless the command has printed it.
func (m *Memo) chooseID(s *Spec, run string) {
	inStart := mentions(s.Start, "Session")
	switch {
	case m.Stated:
	case s.SessionID != "" && (m.Generation == 0 || !inStart):
		m.Session = s.SessionID
	case !inStart && mentions(s.Resume, "Session"):
		m.Session = "" // the command chooses it
	default:
		m.Session = sessionID(run, m.Generation)
	}
}

// attemptMemo is the memo of an attempt whose command is running. It is stored again when the command
// prints its session id or shows a limit.
type attemptMemo struct {
	mu     sync.Mutex
	memo   Memo
	inLine sync.Mutex      // held while the memo is stored, so that the latest is stored last
	whole  func(Memo) Memo // returns the memo to store, which may contain this one
	ctx    context.Context // of the attempt; ends pending saves
	cancel context.CancelFunc
	saving sync.WaitGroup
}

// setStated records the id that the command has printed, and stores the memo in the background, so
// that the output is not blocked. If this process is killed, the next attempt needs the id.
func (a *attemptMemo) setStated(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.memo.Stated && a.memo.Session == id {
		return
	}
	a.memo.Session, a.memo.Stated = id, true
	a.saving.Go(a.save)
}

// setLimit records a limit on the screen of the command; nil means that it is gone.
func (a *attemptMemo) setLimit(l *ScreenLimit) {
	a.mu.Lock()
	a.memo.Limit = l
	a.mu.Unlock()
	a.save()
}

// setLimitOver records that the limit without a stated end, which the command probes, is over.
func (a *attemptMemo) setLimitOver() {
	a.mu.Lock()
	a.memo.LimitSince = time.Time{}
	a.mu.Unlock()
	a.save()
}

// save stores the memo. It ignores errors, because the end of the attempt stores the memo again.
func (a *attemptMemo) save() {
	a.inLine.Lock()
	defer a.inLine.Unlock()
	a.mu.Lock()
	limit := a.memo.Limit
	part := a.memo
	a.mu.Unlock()
	part.Limit = nil
	m := a.whole(part)
	m.Limit = limit
	_ = engine.SaveProgress(a.ctx, m)
}

// finish returns the memo after the command has ended.
func (a *attemptMemo) finish() Memo {
	a.cancel()
	a.saving.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memo.Limit = nil // the screen is gone
	return a.memo
}
