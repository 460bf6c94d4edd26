package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/adopt"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/watch"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// adoptedFile is the name of the file in the folder of a watch that describes the session in the
// records of an assistant.
const adoptedFile = "adopted.json"

// openAgain is how long an adopted session waits if a process may have it open at the end of its
// limit.
const openAgain = 5 * time.Minute

// adopted is the content of adoptedFile.
type adopted struct {
	Session adopt.Session `json:"session"`
	Resume  []string      `json:"resume"`
	Env     []string      `json:"env,omitempty"`
	Pack    string        `json:"pack"`
	Begun   bool          `json:"begun,omitempty"` // the session was resumed, so that its record goes on
}

// readAdopted reads the file in the folder of a watch; ok is false if there is none.
func readAdopted(folder string) (m adopted, ok bool) {
	text, err := os.ReadFile(filepath.Join(folder, adoptedFile))
	if err != nil || json.Unmarshal(text, &m) != nil {
		return m, false
	}
	m.Session.Resume, m.Session.Env, m.Session.Pack = m.Resume, m.Env, m.Pack
	return m, true
}

// write writes the file.
func (m adopted) write(folder string) error {
	m.Resume, m.Env, m.Pack = m.Session.Resume, m.Session.Env, m.Session.Pack
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	path := filepath.Join(folder, adoptedFile)
	if err := os.WriteFile(path+".tmp", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// adoptedRun is an adopted session that runs in this process.
type adoptedRun struct {
	adoptable
	watch  *watch.Watch
	close  func() error
	report *watchReporter
	end    session.Status
	err    error
}

// adopt adopts the sessions, and waits until they have ended.
func (o *adoption) adopt(ctx context.Context, list []adoptable) (err error) {
	ctx, stop := withHangup(ctx)
	defer stop()
	var runs []*adoptedRun
	var left []adoptable
	for _, a := range list {
		if a.LeftAlone == "" {
			var r *adoptedRun
			if r, err = o.begin(ctx, a); err == nil {
				runs = append(runs, r)
				continue
			}
			a.LeftAlone = err.Error()
		}
		left = append(left, a)
		if !o.json {
			o.warn("%s (%s) is left alone: %s", a.ID, a.Assistant, a.LeftAlone)
		}
	}
	var all sync.WaitGroup
	for _, r := range runs {
		if !o.json {
			_ = o.printLine("%s resumes %s in %s", r.Name, r.ID, r.Dir)
		}
		all.Go(func() { r.wait(ctx) })
	}
	if o.json {
		if err := o.printJSON(map[string]any{"adopted": adoptables(runs), "left_alone": append([]adoptable{}, left...)}); err != nil {
			return err
		}
	}
	all.Wait()
	failed := len(left)
	if o.adoptAll {
		failed = 0 // all others are adopted
	}
	return o.reportEnd(ctx, runs, failed)
}

func adoptables(runs []*adoptedRun) []adoptable {
	list := []adoptable{}
	for _, r := range runs {
		list = append(list, r.adoptable)
	}
	return list
}

// withHangup returns a context that also ends with SIGHUP.
func withHangup(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		select {
		case <-hangup:
			cancel(&interruptedError{syscall.SIGHUP})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(hangup)
		cancel(nil)
	}
}

// begin starts the session that resumes a session of an assistant, or continues it.
func (o *adoption) begin(ctx context.Context, a adoptable) (*adoptedRun, error) {
	if err := checkStartable(a.spec); err != nil {
		return nil, err
	}
	folder := filepath.Join(o.cfg.Server.Data, "watch", a.Name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder for the state: %w", err)
	}
	if a.State == "" {
		if err := (adopted{Session: a.Session}).write(folder); err != nil {
			return nil, err
		}
		o.recordLimit(&a)
	}
	flags := watchOptions{silent: o.json, noCount: true}
	rep := newWatchReporter(o.io.Err, &flags, &o.redactor)
	clean := rep.clean
	rep.clean = func(text string) string {
		if !strings.Contains(text, a.Name) {
			text = a.Name + ": " + text
		}
		return clean(text)
	}
	w, closeWatch, err := o.watch.start(ctx, o.cfg, a.spec, watch.Options{
		About: watch.About{Command: a.Command, Dir: a.Dir}, Redactor: &o.redactor,
		Expand: func(value string) (string, error) { return value, nil }, // the paths in the environment are no templates
		Open: func(*session.Spec) (session.Streams, error) {
			if err := o.checkAgain(folder); err != nil {
				return session.Streams{}, err
			}
			return session.Streams{Stdout: io.Discard, Stderr: io.Discard, Close: func() error { return nil }}, nil
		},
	}, rep)
	if err != nil {
		return nil, err
	}
	return &adoptedRun{adoptable: a, watch: w, close: closeWatch, report: rep}, nil
}

// recordLimit records the limit of a session for all sessions of its account, so that it waits with
// them.
func (o *adoption) recordLimit(a *adoptable) {
	if a.Account == "" {
		return
	}
	store := &account.Store{Dir: client.AccountsFolder(o.cfg.Server.Data), Warn: func(text string) { o.warn("%s", text) }}
	gate, err := store.Gate(a.Account)
	if err != nil {
		return // the name was validated
	}
	asker := account.Asker{ID: "adopt " + a.ID, Name: "session " + a.Name}
	switch {
	case a.Reset.After(time.Now()):
		gate.RecordLimit(asker, account.Reset{At: a.Reset}, a.Line)
	case a.Reset.IsZero():
		if pass, held := gate.Enter(asker); held == nil { // the first session of the account probes
			pass.Limited(account.Reset{}, a.Line, 0)
		}
	}
}

// checkAgain checks the record before the session is resumed for the first time. It returns an error
// that ends the session, or makes it wait, if it must be left alone now.
func (o *adoption) checkAgain(folder string) error {
	m, ok := readAdopted(folder)
	if !ok {
		return retry.Permanent(fmt.Errorf("%s can't be read", filepath.Join(folder, adoptedFile)))
	}
	if m.Begun {
		return nil
	}
	now, err := o.records.Check(m.Session)
	switch {
	case err != nil:
		return engine.Snooze(openAgain, "left alone: "+err.Error())
	case now.Open:
		return engine.Snooze(openAgain, "left alone: "+now.LeftAlone)
	case now.LeftAlone != "":
		return retry.Permanent(errors.New("left alone: " + now.LeftAlone))
	case !now.Limited.Equal(m.Session.Limited):
		return retry.Permanent(errors.New("left alone: it has gone on since the limit, to another one"))
	}
	m.Begun = true
	return m.write(folder)
}

// wait waits until the session has ended, and ends its watch.
func (r *adoptedRun) wait(ctx context.Context) {
	r.end, r.err = r.watch.Wait(ctx)
	if ctx.Err() != nil {
		r.watch.End()
	} else if r.err == nil {
		_ = r.report.reportEnd(r.watch, r.end, nil) // the exit code is that of the adoption
	}
	r.err = errors.Join(r.err, r.close())
}

// reportEnd prints how the sessions ended, and returns the exit code as an error. failed is how many
// of the named sessions were left alone.
func (o *adoption) reportEnd(ctx context.Context, runs []*adoptedRun, failed int) error {
	if ctx.Err() != nil {
		o.warn("interrupted; run the same command again to continue the sessions")
		return context.Cause(ctx)
	}
	var errs []error
	ended := []session.Status{}
	for _, r := range runs {
		if r.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.err))
			continue
		}
		ended = append(ended, r.end)
		if r.end.State != "completed" {
			failed++
		}
		if !o.json {
			_ = o.printLine("%s %s", r.Name, r.end.State)
		}
	}
	if o.json {
		errs = append(errs, o.printJSON(map[string]any{"ended": ended}))
	}
	if err := errors.Join(errs...); err != nil {
		return &codedError{err, CodeOwn}
	}
	if failed > 0 {
		return exitError{Code: CodeFailed}
	}
	return nil
}
