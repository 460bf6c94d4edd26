package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/tideover/tideover/cmd/tideover/internal/audit"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/watch"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// trailFile is the name of the audit log in the folder of a watch.
const trailFile = "audit.jsonl"

// drainTime limits how long watch waits for the messages about the end of a session to be sent.
const drainTime = 15 * time.Second

func runWatch(ctx context.Context, io Streams, o *watchOptions, args []string) (err error) {
	redactor := new(secret.Redactor)
	cfg, _, err := o.source.load(redactor)
	if err != nil {
		return err
	}
	spec, err := o.spec(cfg, args, io.In)
	if err != nil {
		return err
	}
	if err := checkStartable(spec); err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	rep := newWatchReporter(io.Err, o, redactor)
	defer rep.stopCountdown()
	rep.printResumeMode(spec)
	if err := o.checkNotifiers(cfg); err != nil {
		return err
	}
	w, closeWatch, err := o.start(ctx, cfg, spec, watch.Options{
		About: o.about(spec, args), Open: streamOpener(io), Redactor: redactor,
	}, rep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWatch()) }()
	over := make(chan result, 1)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		st, err := w.Wait(waiting)
		over <- result{st, err}
	}()
	select {
	case sig := <-signals:
		w.End()
		rep.stopCountdown()
		rep.printInfo("ended by %v; run the same command again to continue session %s", sig, spec.Name)
		return exitError{Code: process.CodeSignal + int(sig.(syscall.Signal))} //nolint:forcetypeassert // all signals of this system have that type
	case r := <-over:
		if r.err != nil {
			return r.err
		}
		return rep.reportEnd(w, r.Status, signals)
	}
}

// start starts the watch of a session, with the options that the caller has set, and with those that follow from the
// flags and the configuration. rep reports its events. The function that it returns ends the watch.
func (o *watchOptions) start(ctx context.Context, cfg *config.Config, spec *session.Spec, w watch.Options, rep *watchReporter) (_ *watch.Watch, stop func() error, err error) {
	if w.Outbox, err = outbox.New(outbox.Config{
		Notifiers: cfg.OrderedNotifiers(), Env: cfg.NotifyEnv(), Place: messageOrigin, Retention: cfg.Server.Retention,
	}); err != nil {
		return nil, nil, err
	}
	w.Dir = filepath.Join(cfg.Server.Data, "watch", spec.Name)
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("creating the folder for the state: %w", err)
	}
	w.Logger = slog.New(slog.NewTextHandler(w.Redactor.NewWriter(rep), &slog.HandlerOptions{Level: slog.LevelError}))
	w.Observer = rep.observe
	closeTrail := func() error { return nil }
	if a := cfg.Audit; !a.Off {
		sink, failed := audit.Open(audit.Config{
			Path: filepath.Join(w.Dir, trailFile), MaxSize: a.MaxSize, Keep: a.Keep, Redactor: w.Redactor, Logger: w.Logger,
		})
		if failed != nil {
			return nil, nil, fmt.Errorf("audit log: %w", failed)
		}
		closeTrail = sink.Close
		w.Observer = func(ev retry.Event) {
			sink.Observe(ev)
			rep.observe(ev)
		}
	}
	typeAtReset := o.typeAtReset
	if typeAtReset == nil {
		typeAtReset = &cfg.Watch.TypeAtReset
	}
	if w.Expand == nil {
		w.Expand = cfg.Expand
	}
	w.Spec, w.Accounts, w.Anew, w.Notify = spec, client.AccountsFolder(cfg.Server.Data), o.startNew, o.notify
	w.TypeAtReset, w.Say, w.Version = *typeAtReset, rep.printInfo, thisBuild().String()
	w.Shared = func(s *session.Spec) bool { return s.SharesFolder(otherSessions(cfg, s.Name)) }
	started, err := watch.Start(ctx, w)
	if errors.Is(err, journal.ErrLocked) {
		err = fmt.Errorf("session %s is being watched already: see 'tideover sessions show %s', or choose another --name", spec.Name, spec.Name)
	} else if err != nil {
		err = fmt.Errorf("watch: %w", err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeTrail())
	}
	return started, func() error { return errors.Join(started.Close(), closeTrail()) }, nil
}

// checkNotifiers returns an error if a notifier of the flags is not in the configuration.
func (o *watchOptions) checkNotifiers(cfg *config.Config) error {
	for _, name := range o.notify {
		if cfg.Notifiers[name] == nil {
			return fmt.Errorf("--notify: %s", unknownNotifier(cfg, o.source, name))
		}
	}
	return nil
}

// otherSessions returns the commands of the sessions that could share a folder with the session of
// this name: the other sessions that have a watch folder, and the sessions of the configuration.
func otherSessions(cfg *config.Config, name string) []session.Command {
	list := session.Watched(filepath.Join(cfg.Server.Data, "watch"), name)
	for _, other := range cfg.Sessions {
		list = append(list, other.Commands()...)
	}
	return list
}

type result struct {
	session.Status
	err error
}

// streamOpener returns the function that opens the streams of a command: a terminal of its own if
// tideover runs on a terminal, otherwise the streams of tideover.
func streamOpener(io Streams) func(*session.Spec) (session.Streams, error) {
	if process.IsTerminal(io.In) && process.IsTerminal(io.Out) {
		return session.Terminal(io.In, io.Out, io.Err)
	}
	return session.Pass(io.In, io.Out, io.Err)
}

// reportEnd prints how the session ended, waits until the messages about it are sent, and returns
// the exit code as an error.
func (r *watchReporter) reportEnd(w *watch.Watch, st session.Status, signals <-chan os.Signal) error {
	r.stopCountdown()
	code := 0
	if last := w.Last(); last != nil {
		code = last.Exit
	}
	switch st.State {
	case "completed":
		if st.Commands > 1 {
			r.printInfo("session %s was completed after %d commands", st.Name, st.Commands)
		}
		r.drain(w, signals) // an earlier watch of this session may have left unsent messages
		return nil
	case "gave-up":
		commands := textfmt.Plural(st.Commands, "command")
		r.warn(fmt.Sprintf("session %s gave up (%s) after %s: %s", st.Name, st.Reason, commands, st.Error))
		code = cmp.Or(code, 1)
	default:
		r.printInfo("session %s was stopped", st.Name)
		if !w.StoppedItself() {
			code = process.CodeSignal + int(syscall.SIGTERM)
		}
	}
	r.drain(w, signals)
	return exitError{Code: code}
}

// drain waits until the messages about the session are sent. A signal, or drainTime, ends the wait.
func (r *watchReporter) drain(w *watch.Watch, signals <-chan os.Signal) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), drainTime, lateError(drainTime))
	defer cancel()
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := w.Drain(ctx); err != nil {
		r.warn(fmt.Sprintf("a notification is not sent yet (%v); it is stored and sent when the session is watched again", cmp.Or(context.Cause(ctx), err)))
	}
}

// givenFlags returns the flags of the command line as words of a command that continues the
// session. It leaves out --name, which is stored separately, and --new, which would start a new
// session.
func givenFlags(flags *pflag.FlagSet) (words []string) {
	flags.Visit(func(f *pflag.Flag) {
		list, isList := f.Value.(pflag.SliceValue)
		switch {
		case isList:
			for _, item := range list.GetSlice() {
				words = append(words, "--"+f.Name, item)
			}
		case f.Name == "name" || f.Name == "new":
		case f.Value.Type() == "bool":
			words = append(words, "--"+f.Name+"="+f.Value.String())
		default:
			words = append(words, "--"+f.Name, f.Value.String())
		}
	})
	return words
}

// checkStartable returns an error if the command, or the command of a fallback, is not found or not
// executable. It is called before a session is created.
func checkStartable(spec *session.Spec) error {
	name := spec.Start[0]
	if strings.Contains(name, "{{") {
		return nil // the name is not known yet
	}
	err := process.Startable(spec.Dir, name)
	if e, ok := errors.AsType[*process.StartError](err); ok {
		return &codedError{e, e.Code}
	}
	for _, f := range spec.Fallback {
		if missing := process.Startable(spec.Dir, f.Start[0]); missing != nil && err == nil {
			err = fmt.Errorf("--fallback: %w", missing)
		}
	}
	return err
}

// about returns the data that is stored with the session, to build the command that continues it.
// Relative paths in flags depend on the folder in which the watch was started, so that folder is
// stored, too.
func (o *watchOptions) about(spec *session.Spec, args []string) watch.About {
	a := watch.About{Command: args, Dir: spec.Dir, Flags: o.given}
	if from, err := os.Getwd(); err == nil && from != spec.Dir {
		a.From = from
	}
	return a
}
