package session

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// Status is the state of a session.
type Status struct {
	Name    string `json:"name"`
	Run     string `json:"run,omitempty"`     // run of the engine; "" before the first
	State   string `json:"state"`             // one of States
	Session string `json:"session,omitempty"` // session id

	Spent       int `json:"attempts"`     // attempts used
	MaxAttempts int `json:"max_attempts"` // -1 means no limit
	Windows     int `json:"windows"`      // windows used
	MaxWindows  int `json:"max_windows"`
	Commands    int `json:"commands"` // total number of commands run
	Resumes     int `json:"resumes"`

	NoResume string     `json:"no_resume,omitempty"` // why it can't be resumed; "" if it can
	Last     *Stop      `json:"last,omitempty"`      // why the last command stopped
	Next     *time.Time `json:"next,omitempty"`      // end of the wait
	WaitBy   string     `json:"wait_by,omitempty"`   // what set the wait: server, policy, handler, account, human or engine
	WaitFor  string     `json:"wait_for,omitempty"`  // reason of the wait
	Started  *time.Time `json:"started,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
	Reason   string     `json:"reason,omitempty"` // why it gave up
	Error    string     `json:"error,omitempty"`  // the last error
	Policy   string     `json:"policy"`
	Quiet    string     `json:"quiet_hours,omitempty"`

	Account      string `json:"account,omitempty"`       // account whose limit it shares with others; "" for none
	AccountLimit string `json:"account_limit,omitempty"` // description of that limit; "" if there is none

	Limit    *ScreenLimit    `json:"limit,omitempty"`    // on the screen of its running command
	Handover *HandoverStatus `json:"handover,omitempty"` // current handover to another assistant
	Turns    []Turn          `json:"turns,omitempty"`    // which assistant worked when, if the session has a fallback

	Log  string   `json:"log,omitempty"`  // file with the output
	Tail []string `json:"tail,omitempty"` // its last lines; only in the status of a single session
	In   string   `json:"in,omitempty"`   // "watch" for a session of a watch that another process lists
}

// WaitSetter says what set the wait, such as "the assistant"; "" if the session does not wait.
func (s *Status) WaitSetter() string {
	if s.WaitBy == "" {
		return ""
	}
	return SetterText(s.WaitBy)
}

// SetterText returns how a source of a wait is called for a session.
func SetterText(by string) string {
	names := map[string]string{"human": "an operator", "server": "the assistant", "handler": "the session itself"}
	return cmp.Or(names[by], "the "+by)
}

// HandoverStatus describes a handover to another assistant.
type HandoverStatus struct {
	Assistant string    `json:"assistant"`
	Session   string    `json:"session,omitempty"` // id of its own session; "" if unknown
	Until     time.Time `json:"until"`             // stated end of the limit of the session's own assistant
	Back      time.Time `json:"back"`              // when the session's own assistant continues
}

// States are the states of a session.
var States = []string{"idle", "queued", "running", "waiting", "paused", "completed", "stopped", "gave-up", "needs-handler"}

// stateOf maps states of runs to states of sessions. States that are not in it have the same name.
var stateOf = map[string]string{
	"scheduled": "waiting", "succeeded": "completed", "canceled": "stopped", "dead": "gave-up", "replaced": "gave-up",
}

// Over reports whether the session has ended.
func (s *Status) Over() bool {
	return s.State == "completed" || s.State == "stopped" || s.State == "gave-up"
}

// statusOf returns the status of a session from its run.
func statusOf(name string, i *engine.Info) Status {
	st := Status{
		Name: name, Run: i.ID, State: cmp.Or(stateOf[i.State], i.State), Commands: i.Attempts, Next: i.Next,
		Started: &i.Created, Ended: i.Ended, Deadline: i.Deadline, Reason: i.Reason, Error: i.Error,
	}
	if len(i.Steps) == 0 {
		return st
	}
	s := &i.Steps[0]
	st.setMemo(ReadMemo(s.Progress))
	st.Spent, st.Windows, st.MaxWindows, st.Policy = s.Spent, s.Windows, s.MaxWindows, s.Policy
	if p, err := retry.Parse(s.Policy); err == nil {
		st.MaxAttempts = max(p.Attempts, 1)
		if p.Attempts == retry.Unlimited {
			st.MaxAttempts = -1
		}
	}
	for _, a := range s.Attempts {
		if a.Outcome == "snoozed" && (strings.HasPrefix(a.Error, account.HeldPrefix) || strings.Contains(a.Error, notRunNote)) {
			st.Commands-- // no command was run
		}
	}
	if a := lastAttempt(i); a != nil && st.State == "waiting" {
		st.setWait(i, a.Wait, a.Error)
	}
	return st
}

// setMemo sets what the memo of the session says.
func (s *Status) setMemo(memo Memo) {
	s.Session, s.Resumes, s.Last, s.NoResume = memo.Session, memo.Resumes, memo.Last, memo.NoResume
	if s.State == "running" {
		s.Limit = memo.Limit
	}
	if s.Over() && s.Ended != nil { // a run that has ended stores no further memo
		how := turnInterrupted
		if s.State == "completed" {
			how = detect.Completed.String()
		}
		memo.endTurn(Turn{Ended: how}, *s.Ended)
	}
	for _, t := range memo.Turns {
		t.From, t.To, t.Until = t.From.Local(), t.To.Local(), t.Until.Local()
		s.Turns = append(s.Turns, t)
	}
	if h := memo.Handover; h != nil && !h.Over && !s.Over() {
		s.Handover = &HandoverStatus{Assistant: h.Assistant, Until: h.Until.Local(), Back: h.Back.Local()}
		if h.Memo != nil {
			s.Handover.Session = h.Memo.Session
		}
	}
}

// setWait sets WaitBy and WaitFor of a session that waits. w is the wait of the last attempt, which
// ended with an error; nil if it has none.
func (s *Status) setWait(i *engine.Info, w *engine.WaitInfo, attemptError string) {
	switch {
	case w == nil:
		s.setPostponed(i.Notes)
	case w.Moved != "":
		s.WaitBy, s.WaitFor = "human", "postponed by "+w.Moved
	case isHeld(i):
		s.WaitBy, s.WaitFor = "account", attemptError
	default:
		s.WaitBy, s.WaitFor = w.By, attemptError
	}
}

// lastAttempt returns the last attempt of a session's run; nil if there was none.
func lastAttempt(i *engine.Info) *engine.AttemptInfo {
	if len(i.Steps) == 0 || len(i.Steps[0].Attempts) == 0 {
		return nil
	}
	return &i.Steps[0].Attempts[len(i.Steps[0].Attempts)-1]
}

// setPostponed sets WaitBy and WaitFor of a session that an operator has paused until a time while its
// command ran. Such a session has no wait of its own.
func (s *Status) setPostponed(notes []engine.Note) {
	for _, n := range slices.Backward(notes) {
		if n.What == "postponed" {
			s.WaitBy, s.WaitFor = "human", "paused by "+n.Text
			return
		}
	}
}
