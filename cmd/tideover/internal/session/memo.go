package session

import (
	"encoding/json"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/internal/textfmt"
)

// Memo is what one attempt of a session leaves for the next, and for whoever looks.
// It is stored with the run.
type Memo struct {
	Session    string `json:"session"`              // the id; "" if the command chooses it and has not stated it yet
	Stated     bool   `json:"stated,omitempty"`     // the id is one that the command has stated
	Generation int    `json:"generation"`           // how often it began anew
	Started    bool   `json:"started,omitempty"`    // a command was run that makes the session exist
	Ended      bool   `json:"ended,omitempty"`      // a command of the session has ended by itself
	UseLatest  bool   `json:"use_latest,omitempty"` // the latest session of the folder is resumed, because the command has stated no id
	Gone       int    `json:"gone,omitempty"`       // how often it began anew because the session did not exist any more
	NoResume   string `json:"no_resume,omitempty"`  // why the session can't be resumed, which is for good
	Resumes    int    `json:"resumes,omitempty"`
	InARow     int    `json:"in_a_row,omitempty"` // stops for the reason of Last
	Last       *Stop  `json:"last,omitempty"`     // the last one

	Limit    *ScreenLimit `json:"limit,omitempty"`    // that stands on the screen of the command, which still runs
	Handover *Handover    `json:"handover,omitempty"` // to other assistants; the last one, nil before the first
	Turns    []Turn       `json:"turns,omitempty"`    // who worked when, of a session with a fallback; the last maxTurns
}

// Stop is why an attempt ended.
type Stop struct {
	Reason string    `json:"reason"`
	Line   string    `json:"line,omitempty"` // that says so
	Rule   string    `json:"rule,omitempty"`
	Until  time.Time `json:"until,omitzero"` // as it was stated
	Exit   int       `json:"exit"`
	At     time.Time `json:"at"`
}

// maxMemo is the size of the largest memo. The engine stores no more than 4 KiB.
const maxMemo = 4000

// MarshalJSON writes the memo. If it is too large, the oldest turns are left out, and then what the assistant has said that a
// session was handed over to.
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

// ReadMemo reads what an attempt has left, which may be nothing.
func ReadMemo(text json.RawMessage) (m Memo) {
	if len(text) > 0 {
		_ = json.Unmarshal(text, &m) // or it is not ours
	}
	return m
}

// note adds a stop.
func (m *Memo) note(stop detect.Stop, exit int, now time.Time) {
	was := m.Last
	m.Last = &Stop{Reason: stop.Reason.String(), Line: textfmt.TruncateValid(stop.Line, maxLine, "…"), Rule: stop.Rule, Until: stop.Until, Exit: exit, At: now}
	if was == nil || was.Reason != m.Last.Reason {
		m.InARow = 0
	}
	m.InARow++
}

// anew begins another session.
func (m *Memo) anew() {
	m.Generation++
	m.Started, m.Session, m.Stated, m.Ended, m.UseLatest = false, "", false, false, false
}
