package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// command returns the command of the attempt, and whether it resumes the session: the first one
// starts it, later ones resume it.
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
		// The command ended before it printed an id, which it does first: there is no session yet.
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
	if h := m.Handover; resumes && err == nil && h != nil && !h.Returned && len(h.Worked) > 0 {
		told := *h
		told.Returned = true
		m.Handover = &told
		if at := slices.Index(argv, continuePrompt); at >= 0 {
			argv[at] = returnPrompt(h.Worked)
		}
	}
	return argv, resumes, err
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

// CannotResume says why the session can't be resumed, and what to do; "" if it can be, or if the
// start command may be run again.
func (s *Spec) CannotResume() string {
	if s.NoResume == "" || len(s.Resume) > 0 || s.Restart {
		return ""
	}
	return fmt.Sprintf("session %s can't be resumed: %s: "+
		"set resume to the command that resumes it, or restart to run its first prompt again", s.Name, s.NoResume)
}

// attemptMemo is the memo of an attempt whose command is running. Its output may contain the
// session id at any time.
type attemptMemo struct {
	mu     sync.Mutex
	memo   Memo
	inLine sync.Mutex      // held while the memo is stored, so that the latest is stored last
	whole  func(Memo) Memo // returns the memo to store, which may contain this one
	ctx    context.Context // of the attempt; ends pending saves
	cancel context.CancelFunc
	saving sync.WaitGroup
}

func newAttemptMemo(ctx context.Context, m Memo, whole func(Memo) Memo) *attemptMemo {
	a := &attemptMemo{memo: m, whole: whole}
	a.ctx, a.cancel = context.WithCancel(ctx)
	return a
}

// setStated records the id that the command has printed and stores it without blocking the output:
// an attempt after a kill needs it.
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

// save stores the memo. On an error, the end of the attempt stores it.
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

// startOver handles a resume command whose session does not exist. It starts the session again with
// its first prompt: once, or always if no command of the session has ever ended uninterrupted,
// because then there was no session to resume.
func (s *Spec) startOver(memo Memo, resumed bool, why error) error {
	switch {
	case !resumed:
		return engine.Keep(retry.Permanent(why), memo)
	case memo.Ended && memo.Gone > 0:
		return engine.Keep(retry.Permanent(fmt.Errorf("%w; it was started again once before", why)), memo)
	case memo.Ended:
		memo.Gone++
	}
	id := memo.Session
	memo.startOver()
	return engine.Keep(engine.Snooze(time.Nanosecond, fmt.Sprintf("session id %s no longer exists; starting again with the first prompt", id)), memo)
}

// prepareResume decides how the session continues after a stop, and adds that to err. If it can't
// be resumed, the error is permanent.
func (r *Runner) prepareResume(s *Spec, memo *Memo, stop detect.Stop, err error) error {
	memo.NoResume = s.CannotResume()
	const noID = "the command printed no session id"
	switch {
	case memo.NoResume != "":
	case memo.Session != "" || memo.UseLatest || len(s.Resume) == 0:
		return err
	case stop.Reason == detect.Crashed || stop.Reason == detect.Unknown:
		memo.Started = false
		return fmt.Errorf("%w; %s, so it is started again", err, noID)
	case len(s.ResumeLatest) == 0:
		memo.NoResume = noID + ": set resume to the command that resumes it, or restart to have its first prompt run again"
	case r.Shared == nil || r.Shared(s):
		memo.NoResume = noID + ", and another session uses the same folder, so that the latest one there may not be this: " +
			"resume it by hand, or run one session at a time in a folder"
	default:
		memo.UseLatest = true
		return fmt.Errorf("%w; %s, so the latest session of its folder is resumed", err, noID)
	}
	return retry.Permanent(fmt.Errorf("%w; %s", err, memo.NoResume))
}
