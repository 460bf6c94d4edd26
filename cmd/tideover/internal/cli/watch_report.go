package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// watchReporter prints the events of a session to standard error.
type watchReporter struct {
	progressPrinter
	failed string        // error of the latest attempt that failed
	waited time.Duration // length of the wait before the next command; 0 means none
}

func newWatchReporter(out *os.File, o *watchOptions, redactor *secret.Redactor) *watchReporter {
	return &watchReporter{progressPrinter: progressPrinter{
		out: out, file: out, quiet: o.silent, draw: !o.silent && !o.noCount && process.IsTerminal(out),
		clean: func(text string) string { return visibleLines(redactor.String(text)) },
	}}
}

// Write prints a line of the log; the line ends with a line break.
func (r *watchReporter) Write(p []byte) (int, error) {
	r.warn(string(p[:max(len(p)-1, 0)]))
	return len(p), nil
}

func (r *watchReporter) observe(ev retry.Event) {
	if !strings.HasPrefix(ev.Name, session.Prefix) || strings.HasSuffix(ev.Name, ".on-give-up") { // the event is about a message
		if ev.Kind == retry.GaveUp && ev.Step != "" {
			r.warn(fmt.Sprintf("notification not sent: %v", ev.Err))
		}
		return
	}
	switch ev.Kind {
	case retry.AttemptStarted:
		r.stopCountdown()
	case retry.Progressed: // a command starts; an attempt in quiet hours starts no command
		r.mu.Lock()
		waited := r.waited
		r.waited = 0
		r.mu.Unlock()
		if waited > 0 {
			r.printInfo("continuing after a wait of %s", textfmt.ReadableDuration(waited))
		}
	case retry.AttemptFailed:
		r.mu.Lock()
		r.failed = fmt.Sprint(ev.Err)
		r.mu.Unlock()
	case retry.Waiting:
		r.stopCountdown()
		r.printWait(ev)
	case retry.Paused:
		r.stopCountdown()
		r.printInfo("paused by %s; run 'tideover sessions resume' to continue", ev.Note)
	case retry.Resumed:
		r.stopCountdown()
		r.printInfo("resumed by %s", ev.Note)
	case retry.AttemptLost:
		r.printInfo("the previous watch ended while the command was running; the command is started again")
	default:
	}
}

// printResumeMode prints what happens when the command stops, if the session has no resume command.
func (r *watchReporter) printResumeMode(s *session.Spec) {
	switch text := s.CannotResume(); {
	case text != "":
		r.warn("warning: " + text + ". Use --resume 'COMMAND {{.Session}}' or --restart; without them the session gives up when it stops")
	case s.Restart:
		r.printInfo("session %s is restarted, not resumed: when it stops, its command is run again with its first prompt", s.Name)
	case s.ScriptNote() != "":
		r.printInfo("%s", s.ScriptNote())
	case s.RunsAgain():
		r.printInfo("session %s has no resume command: when it stops, its command is run again unchanged", s.Name)
	}
}

// printWait prints why the session waits and until when, and starts a countdown.
func (r *watchReporter) printWait(ev retry.Event) {
	why, layout := ev.Note, "15:04:05"
	if ev.Delay > 20*time.Hour {
		layout = "Mon Jan 2 15:04"
	}
	r.mu.Lock()
	if ev.By == retry.ByPolicy {
		why = r.failed
	}
	r.waited = ev.Delay
	r.mu.Unlock()
	if ev.Delay < time.Millisecond { // for example a handover: the next command follows at once
		r.printInfo("%s", why)
		return
	}
	r.printInfo("%s; next at %s, in %s", why, ev.Until.Local().Format(layout), textfmt.ReadableDuration(ev.Delay))
	r.showCountdown("tideover: next in ", "", ev.Delay, ev.Until)
}
