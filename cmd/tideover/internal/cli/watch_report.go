package cli

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// watchReporter writes our lines to standard error. It reads the events of the
// session.
type watchReporter struct {
	file     *os.File
	redactor *secret.Redactor
	quiet    bool
	draw     bool // a countdown is wanted

	mu        sync.Mutex
	failed    string
	waited    time.Duration // before the command that is next; 0 means that there was no wait
	countdown *countdown
}

func newWatchReporter(out *os.File, o *watchOptions, redactor *secret.Redactor) *watchReporter {
	return &watchReporter{file: out, redactor: redactor, quiet: o.silent, draw: !o.silent && !o.noCount && process.IsTerminal(out)}
}

// Write takes what is logged.
func (r *watchReporter) Write(p []byte) (int, error) {
	r.warn(string(p[:max(len(p)-1, 0)]))
	return len(p), nil
}

func (r *watchReporter) observe(ev retry.Event) {
	if !strings.HasPrefix(ev.Name, session.Prefix) || strings.HasSuffix(ev.Name, ".on-give-up") { // of a message
		if ev.Kind == retry.GaveUp && ev.Step != "" {
			r.warn(fmt.Sprintf("nobody was told: %v", ev.Err))
		}
		return
	}
	switch ev.Kind {
	case retry.AttemptStarted:
		r.done()
	case retry.Progressed: // a command begins; an attempt may only find that it is quiet hours
		r.mu.Lock()
		waited := r.waited
		r.waited = 0
		r.mu.Unlock()
		if waited > 0 {
			r.say("goes on, after a wait of %s", textfmt.ReadableDuration(waited))
		}
	case retry.AttemptFailed:
		r.mu.Lock()
		r.failed = fmt.Sprint(ev.Err)
		r.mu.Unlock()
	case retry.Waiting:
		r.done()
		r.waiting(ev)
	case retry.Paused:
		r.done()
		r.say("paused by %s; 'tideover sessions resume' has it go on", ev.Note)
	case retry.Resumed:
		r.done()
		r.say("goes on, says %s", ev.Note)
	case retry.AttemptLost:
		r.say("the command was lost with the last watch; it is made up for")
	default:
	}
}

// resumption says how the session goes on after a stop, if that is not by a resume
// command.
func (r *watchReporter) resumption(s *session.Spec) {
	switch text := s.CannotResume(); {
	case text != "":
		r.warn("warning: " + text + ". As flags these are --resume 'COMMAND {{.Session}}' and --restart. Without them the session gives up when it stops")
	case s.Restart:
		r.say("session %s is not resumed: when it stops, its command is run again with its first prompt", s.Name)
	case s.RunsAgain():
		r.say("session %s has no resume command: when it stops, its command is run again as it is", s.Name)
	}
}

// waiting says why, and until when.
func (r *watchReporter) waiting(ev retry.Event) {
	why := ev.Note
	if ev.By == retry.ByPolicy {
		r.mu.Lock()
		why = r.failed
		r.mu.Unlock()
	}
	layout := "15:04:05"
	if ev.Delay > 20*time.Hour {
		layout = "Mon Jan 2 15:04"
	}
	r.mu.Lock()
	r.waited = ev.Delay
	r.mu.Unlock()
	if ev.Delay < time.Millisecond { // such as a hand-over: something follows at once
		r.say("%s", why)
		return
	}
	r.say("%s; next at %s, in %s", why, ev.Until.Local().Format(layout), textfmt.ReadableDuration(ev.Delay))
	if !r.draw || ev.Delay < time.Second {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if process.Foreground(r.file) {
		r.countdown = startCountdown(r.file, r.file, "tideover: next in ", "", ev.Until)
	}
}

// say writes a line unless we are to be quiet.
func (r *watchReporter) say(format string, args ...any) {
	if !r.quiet {
		r.warn(fmt.Sprintf(format, args...))
	}
}

// warn writes a line in any case.
func (r *watchReporter) warn(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.countdown != nil {
		r.countdown.erase()
	}
	fmt.Fprintf(r.file, "tideover: %s\n", visibleLines(r.redactor.String(text)))
}

// done ends the countdown.
func (r *watchReporter) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.countdown != nil {
		r.countdown.stop()
		r.countdown = nil
	}
}
