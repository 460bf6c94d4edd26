package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// Outcome is the output of a completed session.
type Outcome struct {
	Session string `json:"session"`
	Exit    int    `json:"exit"`
	Resumes int    `json:"resumes"`
	Windows int    `json:"windows"`
}

// nextAction decides what follows the stop of a command. It returns the output of a completed
// session, or an error that makes the engine wait, retry or give up. held is the wait that applies to
// all sessions of the account; nil if there is none.
func (a *attempt) nextAction(ctx context.Context, memo Memo, stop detect.Stop, use *usage, held *account.Held) ([]byte, error) {
	if stop.Reason == detect.Completed {
		return json.Marshal(Outcome{memo.Session, memo.Last.Exit, memo.Resumes, a.task.Windows})
	}
	err := failure(stop, memo.Last.Exit)
	action := a.spec.action(stop.Reason)
	switch {
	case stop.Terminal || stop.Reason == detect.Terminal || action.Do == DoGiveUp:
		return nil, engine.Keep(retry.Permanent(err), memo)
	case action.Do == DoStop:
		return nil, a.stop(ctx, memo, err)
	case action.Attempts > 0 && memo.InARow >= action.Attempts:
		return nil, memo.giveUp(fmt.Errorf("%w (%d times in a row)", err, memo.InARow))
	case action.Do == DoStart:
		memo.startOver()
	default:
		err = a.prepareResume(&memo, stop, err)
		if memo.NoResume != "" {
			return nil, engine.Keep(err, memo)
		}
	}
	switch {
	case isUnstated(stop) && held != nil:
		held.Why = err.Error() + "; " + held.Why
		return nil, a.waitForAccount(use, memo, held)
	case isUnstated(stop):
		return nil, a.awaitProbe(memo, err.Error())
	}
	if handed := a.limitReached(&memo, stop, err); handed != nil {
		return nil, engine.Keep(handed, memo)
	}
	return nil, engine.Keep(a.wait(stop, err), memo)
}

// prepareResume records in the memo how the session continues after a stop, and returns err with a
// description of that. If the session can't be resumed, the error is permanent.
func (a *attempt) prepareResume(memo *Memo, stop detect.Stop, err error) error {
	r, s := a.runner, a.spec
	memo.NoResume = s.CannotResume()
	const noID = "the command printed no session id"
	switch {
	case memo.NoResume != "":
	case memo.Session != "" || memo.UseLatest || len(s.Resume) == 0:
		return err
	case stop.Reason == detect.Crashed || stop.Reason == detect.Unknown:
		memo.Started = false
		return fmt.Errorf("%w; %s: a resume starts it again", err, noID)
	case len(s.ResumeLatest) == 0:
		memo.NoResume = noID + ": set resume to the command that resumes it, or restart to have its first prompt run again"
	case r.Shared == nil || r.Shared(s):
		memo.NoResume = noID + ", and another session uses the same folder, so the latest session there may be the other one: " +
			"resume it by hand, or run one session at a time in a folder"
	default:
		memo.UseLatest = true
		return fmt.Errorf("%w; %s: a resume takes the latest session of its folder", err, noID)
	}
	return retry.Permanent(fmt.Errorf("%w; %s", err, memo.NoResume))
}

// startOver handles a resume command whose session does not exist. It starts the session again with
// its first prompt: once, or always if no command of the session has ever ended uninterrupted,
// because then there was no session to resume.
func startOver(memo Memo, resumed bool, why error) error {
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

// A stated wait of at most shortWait, or at most the slack of the policy if that is shorter, uses
// no window: a limit that ends so soon is a limit of requests per minute, not a used quota.
const shortWait = time.Minute

// delayed is a failure after which the policy waits at least the stated time.
type delayed struct {
	error
	wait time.Duration
}

// RetryOutcome implements [retry.Classified].
func (d *delayed) RetryOutcome() retry.Outcome { return retry.Outcome{AtLeast: d.wait} }

// wait returns err with the wait that follows: until the stated time if that is in the future,
// otherwise as long as the policy says. A time in quiet hours is moved to their end.
func (a *attempt) wait(stop detect.Stop, err error) error {
	s := a.spec
	left := time.Until(stop.Until)
	if stop.Until.IsZero() || left <= 0 {
		return err
	}
	if end, quiet := s.Quiet.Until(stop.Until); quiet {
		return engine.Limited(end, err.Error()+"; followed by quiet hours, "+s.Quiet.String())
	}
	if left <= min(shortWait, s.storedPolicy().ServerSlack) {
		return &delayed{err, left}
	}
	if relative(stop) {
		return engine.LimitedFor(left, err.Error())
	}
	return engine.Limited(stop.Until, err.Error())
}

// detectStop returns why a command stopped, from its output and its exit code. It is for commands
// that ended by themselves. quit is true if the user typed after a limit was on the screen.
func detectStop(d *detect.Detector, code int, quit bool) detect.Stop {
	stop := d.StopByAny(code)
	if quit && code == 0 && stop.Trust == detect.ByLine {
		return detect.Stop{Reason: detect.Completed} // the user saw the limit and ended the program
	}
	tail := d.Tail()
	if stop.Line == "" && len(tail) > 0 && stop.Reason != detect.Completed {
		stop.Line = textfmt.TruncateValid(tail[len(tail)-1], maxLine, "…") // use the last line of output
	}
	stop.Note = cmp.Or(stop.Note, stop.Misread(tail))
	return stop
}

// maxLine limits the stored bytes of a line of output.
const maxLine = 500

// relative reports whether the time was stated as a duration, not as a date or time of day.
func relative(stop detect.Stop) bool {
	if stop.As == "retry-after" {
		_, err := strconv.ParseFloat(stop.Stated, 64)
		return err == nil
	}
	return slices.Contains([]string{"duration", "seconds", "milliseconds", "rule"}, stop.As)
}

// failure describes in words why the command stopped.
func failure(stop detect.Stop, exit int) error {
	text := "exit code " + strconv.Itoa(exit)
	if stop.Meaning != "" {
		text += " (" + stop.Meaning + ")"
	}
	if stop.Reason != detect.Crashed && stop.Reason != detect.Unknown {
		text = stop.Reason.String() + ", " + text
	}
	if stop.Line != "" {
		text += ": " + stop.Line
	}
	if stop.Note != "" {
		text += " (" + stop.Note + ")"
	}
	return errors.New(text)
}

// stop cancels the run of a session whose user has ended the command, and returns the error that
// ends the attempt.
func (a *attempt) stop(ctx context.Context, memo Memo, why error) error {
	err := a.runner.Cancel(ctx, a.task.Run, "the session: "+why.Error())
	if err == nil || errors.Is(err, engine.ErrState) {
		err = why // the run has ended, so this is only a note
	}
	return engine.Keep(err, memo)
}
