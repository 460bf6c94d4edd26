package session

import (
	"encoding/json"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/internal/textfmt"
)

// Memo is the state that one attempt of a session leaves for the next, and for its status. It is
// stored with the run.
type Memo struct {
	Session    string `json:"session"`              // session id; "" if the command chooses it and has not printed it yet
	Stated     bool   `json:"stated,omitempty"`     // the command has printed the id
	Generation int    `json:"generation"`           // how often it started again from the beginning
	Started    bool   `json:"started,omitempty"`    // the start command was run
	Ended      bool   `json:"ended,omitempty"`      // a command of the session has ended without being interrupted
	UseLatest  bool   `json:"use_latest,omitempty"` // resume the latest session of the folder, because the command printed no id
	Gone       int    `json:"gone,omitempty"`       // how often it started again because the session no longer existed
	NoResume   string `json:"no_resume,omitempty"`  // why the session can never be resumed
	Resumes    int    `json:"resumes,omitempty"`
	InARow     int    `json:"in_a_row,omitempty"` // consecutive stops for the reason of Last
	Last       *Stop  `json:"last,omitempty"`     // the last stop

	Limit    *ScreenLimit `json:"limit,omitempty"`    // on the screen of the running command
	Handover *Handover    `json:"handover,omitempty"` // the last handover; nil before the first
	Turns    []Turn       `json:"turns,omitempty"`    // which assistant worked when, if the session has a fallback; the last maxTurns
}

// Stop is why a command stopped.
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
	if len(text) > 0 {
		_ = json.Unmarshal(text, &m) // not a memo: keep the zero value
	}
	return m
}

// recordStop records a stop.
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
