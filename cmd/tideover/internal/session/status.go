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

// Status is where a session is.
type Status struct {
	Name    string `json:"name"`
	Run     string `json:"run,omitempty"`     // of the engine; "" before the first
	State   string `json:"state"`             // one of States
	Session string `json:"session,omitempty"` // the id that the commands are given, or that they have stated

	Spent       int `json:"attempts"`     // attempts that count
	MaxAttempts int `json:"max_attempts"` // -1 means no limit
	Windows     int `json:"windows"`      // stated resets that were waited for
	MaxWindows  int `json:"max_windows"`
	Commands    int `json:"commands"` // that were run, all in all
	Resumes     int `json:"resumes"`

	NoResume string     `json:"no_resume,omitempty"` // why it can't be resumed; "" if it can
	Last     *Stop      `json:"last,omitempty"`      // why the last command stopped
	Next     *time.Time `json:"next,omitempty"`      // end of the wait
	WaitBy   string     `json:"wait_by,omitempty"`   // who set it: server, policy, handler, account, human or engine
	WaitFor  string     `json:"wait_for,omitempty"`  // why
	Started  *time.Time `json:"started,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
	Reason   string     `json:"reason,omitempty"` // why it gave up
	Error    string     `json:"error,omitempty"`  // the last one
	Policy   string     `json:"policy"`
	Quiet    string     `json:"quiet_hours,omitempty"`

	Account      string `json:"account,omitempty"`       // whose limit it shares with others; "" for none
	AccountLimit string `json:"account_limit,omitempty"` // what is known of that limit; "" while there is none

	Limit    *ScreenLimit    `json:"limit,omitempty"`    // that stands on the screen of its command, which runs and waits for its user
	Handover *HandoverStatus `json:"handover,omitempty"` // to another assistant, while it lasts
	Turns    []Turn          `json:"turns,omitempty"`    // who worked when, the last ones, if the session has a fallback

	Log  string   `json:"log,omitempty"`  // the file that has the output
	Tail []string `json:"tail,omitempty"` // its last lines, of one session alone
	In   string   `json:"in,omitempty"`   // "watch" for a session of a watch that another process lists
}

// HandoverStatus says that another assistant works in the folder of a session.
type HandoverStatus struct {
	Assistant string    `json:"assistant"`
	Session   string    `json:"session,omitempty"` // the id of its own session, once that is known
	Until     time.Time `json:"until"`             // when the limit of the session's own assistant ends, as it was stated
	Back      time.Time `json:"back"`              // when that one goes on
}

// States are the states of a session.
var States = []string{"idle", "queued", "running", "waiting", "paused", "completed", "stopped", "gave-up", "needs-handler"}

// stateOf are the names that the states of a run have for a session.
var stateOf = map[string]string{
	"scheduled": "waiting", "succeeded": "completed", "canceled": "stopped", "dead": "gave-up", "replaced": "gave-up",
}

// Over reports whether the session has ended.
func (s *Status) Over() bool {
	return s.State == "completed" || s.State == "stopped" || s.State == "gave-up"
}

// statusOf returns where the session of a run is.
func statusOf(name string, i *engine.Info) Status {
	st := Status{
		Name: name, Run: i.ID, State: cmp.Or(stateOf[i.State], i.State), Commands: i.Attempts, Next: i.Next,
		Started: &i.Created, Ended: i.Ended, Deadline: i.Deadline, Reason: i.Reason, Error: i.Error,
	}
	if len(i.Steps) == 0 {
		return st
	}
	s := &i.Steps[0]
	memo := ReadMemo(s.Progress)
	st.Session, st.Resumes, st.Last, st.NoResume = memo.Session, memo.Resumes, memo.Last, memo.NoResume
	if st.State == "running" {
		st.Limit = memo.Limit
	}
	if st.Over() && i.Ended != nil { // the end of a run leaves nothing for a next attempt
		how := turnInterrupted
		if st.State == "completed" {
			how = detect.Completed.String()
		}
		memo.endTurn(Turn{Ended: how}, *i.Ended)
	}
	for _, t := range memo.Turns {
		t.From, t.To, t.Until = local(t.From), local(t.To), local(t.Until)
		st.Turns = append(st.Turns, t)
	}
	if h := memo.Handover; h != nil && !h.Over && !st.Over() {
		st.Handover = &HandoverStatus{Assistant: h.Assistant, Until: local(h.Until), Back: local(h.Back)}
		if h.Memo != nil {
			st.Handover.Session = h.Memo.Session
		}
	}
	st.Spent, st.Windows, st.MaxWindows, st.Policy = s.Spent, s.Windows, s.MaxWindows, s.Policy
	if p, err := retry.Parse(s.Policy); err == nil {
		st.MaxAttempts = max(p.Attempts, 1)
		if p.Attempts == retry.Unlimited {
			st.MaxAttempts = -1
		}
	}
	for _, a := range s.Attempts {
		if a.Outcome == "snoozed" && (strings.HasPrefix(a.Error, account.HeldPrefix) || strings.Contains(a.Error, notRunNote)) {
			st.Commands-- // none was run
		}
	}
	if n := len(s.Attempts); n > 0 && st.State == "waiting" {
		if a := s.Attempts[n-1]; a.Wait != nil {
			st.WaitBy, st.WaitFor = a.Wait.By, a.Error
			if isHeld(i) {
				st.WaitBy = "account"
			}
			if a.Wait.Moved != "" {
				st.WaitBy, st.WaitFor = "human", "postponed by "+a.Wait.Moved
			}
		} else {
			st.postponed(i.Notes)
		}
	}
	return st
}

// local returns a time in the zone of the machine, as the other times are. A zero time stays zero.
func local(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Local()
}

// postponed says who has ended a command for a while: there is no wait of its own
// that was prolonged.
func (s *Status) postponed(notes []engine.Note) {
	for _, n := range slices.Backward(notes) {
		if n.What == "postponed" {
			s.WaitBy, s.WaitFor = "human", "paused by "+n.Text
			return
		}
	}
}
