package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// Handler is the name of the handler that does the step of a session.
const Handler = "session"

// Grace is how long a command may take to end after TERM. It is less than the
// engine's, which would call the attempt stuck.
const Grace = 8 * time.Second

// Runner runs the commands of sessions.
type Runner struct {
	Self  string // the path of this program, for the guard
	Locks string // an existing folder for the locks of commands

	// Open returns where the command's output goes, and how to let go of it.
	Open func(s *Spec) (Streams, error)

	// Expand writes out the references in a value of the environment; nil leaves
	// values as they are.
	Expand func(value string) (string, error)

	// Cancel ends a run that its user has ended.
	Cancel func(ctx context.Context, run, by string) error

	// Stopped is called when a command has ended, before anything follows; nil is
	// for whoever reads the events instead.
	Stopped func(run string, s Stop)

	launch func(context.Context, guard.Command) (int, error) // nil means guard.Run; tests that are about time need no guard

	mu      sync.Mutex
	running map[string]context.CancelCauseFunc
}

// Streams are what a command reads and writes. They are closed after it.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool // they are a terminal's
	Watch          func(*detect.Detector)
	Close          func() error
}

// Handle makes one attempt: it runs the start or the resume command to its end,
// and says what follows.
func (r *Runner) Handle(ctx context.Context, t *engine.Task) ([]byte, error) {
	s := new(Spec)
	if err := json.Unmarshal(t.Args, s); err != nil {
		return nil, retry.Permanent(fmt.Errorf("stored session: %w", err))
	}
	pack, err := s.pack()
	if err != nil {
		return nil, retry.Permanent(fmt.Errorf("stored session: detect: %w", err))
	}
	memo := ReadMemo(t.Progress)
	if until, quiet := s.Quiet.Until(time.Now()); quiet {
		return nil, engine.Keep(engine.SnoozeUntil(until, "quiet hours, "+s.Quiet.String()), memo)
	}
	ctx, done := r.enter(ctx, t.Run)
	defer done()
	command, err := memo.command(s, t)
	if err != nil {
		return nil, retry.Permanent(err)
	}
	_ = engine.Progress(ctx, memo) // so that an attempt after a crash knows
	d := detect.New(pack, detect.Options{})
	code, err := r.run(ctx, s, t, command, d)
	if err != nil || ctx.Err() != nil && code != 0 {
		return nil, r.interrupted(ctx, memo, err)
	}
	stop := d.Stop(code, false)
	if tail := d.Tail(); stop.Line == "" && len(tail) > 0 && stop.Reason != detect.Completed {
		stop.Line = tail[len(tail)-1] // its last word
	}
	memo.note(stop, code, time.Now())
	if r.Stopped != nil {
		r.Stopped(t.Run, *memo.Last)
	}
	return r.judge(ctx, s, t, memo, stop)
}

// command returns the command of the attempt: the first makes the session, those
// that follow resume it.
func (m *Memo) command(s *Spec, t *engine.Task) ([]string, error) {
	m.Session = sessionID(t.Run, m.Generation)
	argv := s.Start
	if m.Started && len(s.Resume) > 0 {
		argv = s.Resume
		m.Resumes++
	}
	m.Started = true
	return render(argv, data{m.Session, s.Name, t.Attempt})
}

// run runs the command and shows its output to the detector.
func (r *Runner) run(ctx context.Context, s *Spec, t *engine.Task, argv []string, d *detect.Detector) (int, error) {
	env, err := r.environment(s, t)
	if err != nil {
		return 0, err
	}
	streams, err := r.Open(s)
	if err != nil {
		return 0, err
	}
	c := guard.Command{
		Self: r.Self, Args: argv, Dir: s.Dir, Lock: filepath.Join(r.Locks, t.Run), Grace: Grace, Env: env,
		Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr, Terminal: streams.Terminal,
	}
	if streams.Watch != nil {
		streams.Watch(d)
	} else {
		c.Stdout, c.Stderr = io.MultiWriter(d.Stream(), c.Stdout), io.MultiWriter(d.Stream(), c.Stderr)
	}
	launch := r.launch
	if launch == nil {
		launch = guard.Run
	}
	code, err := launch(ctx, c)
	return code, errors.Join(err, streams.Close())
}

// environment returns what the command sees.
func (r *Runner) environment(s *Spec, t *engine.Task) ([]string, error) {
	var env []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); name != "TIDEOVER_TOKEN" && !strings.HasPrefix(name, "TIDEOVER_SERVER") {
			env = append(env, kv)
		}
	}
	memo := ReadMemo(t.Progress)
	env = append(env,
		"TIDEOVER_SESSION="+s.Name, "TIDEOVER_SESSION_ID="+sessionID(t.Run, memo.Generation), "TIDEOVER_RUN_ID="+t.Run,
		"TIDEOVER_ATTEMPT="+strconv.Itoa(t.Attempt), "TIDEOVER_WINDOWS="+strconv.Itoa(t.Windows))
	for name, value := range s.Env {
		if r.Expand != nil {
			var err error
			if value, err = r.Expand(value); err != nil {
				return nil, fmt.Errorf("env.%s: %w", name, err)
			}
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// postponed is why an attempt was ended that is to be made again at a time.
type postponed struct {
	until time.Time
	by    string
}

func (p *postponed) Error() string { return "postponed by " + p.by }

// interrupted says what follows an attempt that did not end by itself.
func (r *Runner) interrupted(ctx context.Context, memo Memo, err error) error {
	cause := context.Cause(ctx)
	if p, ok := errors.AsType[*postponed](cause); ok {
		return engine.Keep(engine.SnoozeUntil(p.until, p.Error()), memo)
	}
	if cause != nil {
		err = cause
	}
	return engine.Keep(err, memo)
}

// enter notes that a command of the run is running.
func (r *Runner) enter(ctx context.Context, run string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[string]context.CancelCauseFunc{}
	}
	r.running[run] = cancel
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, run)
		cancel(nil)
	}
}

// Postpone ends a command that is running, and has the session go on at a time of
// the calendar. It reports whether there was one.
func (r *Runner) Postpone(run string, until time.Time, by string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	cancel := r.running[run]
	if cancel != nil {
		cancel(&postponed{until, by})
	}
	return cancel != nil
}
