package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// closeGrace is how long a command may take to end when the watch ends.
const closeGrace = 10 * time.Second

// Options configure a watch.
type Options struct {
	Spec     *session.Spec
	About    About                                        // stored to continue the session later
	Dir      string                                       // folder for the state; created if it does not exist
	Accounts string                                       // folder for the limits of accounts; "" means that nothing is shared
	Anew     bool                                         // end the stored session and start a new one
	Open     func(*session.Spec) (session.Streams, error) // as in [session.Runner]
	Expand   func(string) (string, error)                 // as in [session.Runner]
	Outbox   *outbox.Outbox                               // sends messages
	Notify   []string                                     // names of the notifiers for this session
	Observer func(retry.Event)                            // called with each event of the engine

	TypeAtReset bool // type the prompt to continue when a limit on the screen is over

	Say      func(format string, args ...any) // prints a line for the user
	Shared   func(*session.Spec) bool         // as in [session.Runner]
	Redactor *secret.Redactor
	Logger   *slog.Logger
	Version  string
}

// Watch is a session that is being watched.
type Watch struct {
	Options
	engine  *engine.Engine
	manager *session.Manager
	flow    *engine.Workflow
	run     string
	runner  *session.Runner
	ready   chan struct{} // closed when commands may start
	server  *http.Server
	parts   sync.WaitGroup

	last   atomic.Pointer[session.Stop]
	itself atomic.Bool // the session was ended by its own command
}

// About describes how a session was watched, so that it can be continued later.
type About struct {
	Command []string `json:"command"`         // as typed by the user
	Dir     string   `json:"dir,omitempty"`   // its working folder
	From    string   `json:"from,omitempty"`  // working folder of the watch, if it is another
	Flags   []string `json:"flags,omitempty"` // flags of the watch, without --name
}

// Socket is the name of the control API's socket in the folder.
const Socket = "control.sock"

// Start opens the folder and continues the session in it, or starts one.
func Start(ctx context.Context, o Options) (_ *Watch, err error) {
	w := &Watch{Options: o, ready: make(chan struct{})}
	if err := os.MkdirAll(filepath.Join(o.Dir, "locks"), 0o700); err != nil {
		return nil, err
	}
	alarm, err := o.Outbox.Listen(o.Spec, o.Notify)
	if err != nil {
		return nil, err
	}
	if w.flow, err = o.Spec.Workflow(alarm); err != nil {
		return nil, err
	}
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.engine.Close(context.Background()))
		}
	}()
	continued, err := w.begin(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.writeAbout(); err != nil {
		return nil, err
	}
	w.serve() // before the first command, which may call the API at once
	if continued != "" {
		w.Say("%s", continued)
	}
	close(w.ready)
	return w, nil
}

// open opens the engine.
func (w *Watch) open(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	locks := filepath.Join(w.Dir, "locks")
	logs := session.Logs{Dir: w.Dir, Redactor: w.Redactor}
	if err := guard.Sweep(ctx, locks, session.Grace, w.Logger); err != nil {
		return err
	}
	w.runner = &session.Runner{
		Self: self, Locks: locks, Open: logs.Tee(w.Open), Expand: w.Expand, Redactor: w.Redactor, Ready: w.ready, Shared: w.Shared,
		Control: "unix:" + filepath.Join(w.Dir, Socket), Quotas: client.UserFolder("quota"), Warn: func(text string) { w.Say("%s", text) },
		Stopped: func(_ string, s session.Stop) { w.last.Store(&s) },
		Cancel: func(ctx context.Context, run, by string) error {
			w.itself.Store(true)
			return w.engine.Cancel(ctx, run, by)
		},
		Wake: func(ctx context.Context, run, by string) error { return session.WakeHeld(ctx, w.engine, run, by) },
	}
	if w.TypeAtReset {
		w.runner.TypeAtReset = cmp.Or(w.Spec.Windows, session.DefaultWindows)
	}
	if w.Accounts != "" {
		w.runner.Accounts = &account.Store{Dir: w.Accounts, Warn: func(text string) { w.Say("%s", text) }}
	}
	handlers := w.Outbox.Handlers()
	handlers[session.Handler] = w.runner.Handle
	w.engine, err = engine.Open(ctx, engine.Config{
		Dir: w.Dir, Workflows: append(w.Outbox.Workflows(), w.flow), Handlers: handlers, Logger: w.Logger, Redact: w.Redactor.String,
		Observer: func(ev retry.Event) {
			w.Observer(ev)
			w.Outbox.Observe(ev)
		},
		Grace: closeGrace + 5*time.Second,
	})
	if err != nil {
		return err
	}
	w.Outbox.Attach(w.engine)
	w.manager = &session.Manager{Engine: w.engine, Output: logs.Tail, Read: logs.Read, Runner: w.runner}
	return nil
}

// begin continues the session of the folder, or starts one. It returns the line that tells the
// user how a session continues; "" for a new one.
func (w *Watch) begin(ctx context.Context) (continued string, err error) {
	before, err := w.manager.Set(ctx, []*session.Spec{w.Spec}, []*engine.Workflow{w.flow})
	if err != nil {
		return "", err
	}
	w.recoverMessages(ctx)
	name := w.Spec.Name
	st, err := w.manager.Get(ctx, name)
	if err != nil {
		return "", err
	}
	if before && !w.Anew && (!st.Over() || st.State == "gave-up") {
		if err := w.checkSame(ctx, st); err != nil {
			return "", err
		}
	}
	switch {
	case !before:
	case w.Anew:
		err = w.beginAnew(ctx, st)
	case st.State == "gave-up":
		continued = gaveUpLine(st)
		err = w.manager.Resume(ctx, name, "watch")
	case st.Over():
		err = w.manager.Begin(ctx, name, "watch")
	default:
		continued = continuedLine(st)
	}
	if err != nil {
		return "", err
	}
	st, err = w.manager.Get(ctx, name)
	w.run = st.Run
	return continued, err
}

// recoverMessages stores the message about the state of the session, if it is not stored yet.
func (w *Watch) recoverMessages(ctx context.Context) {
	for run := range w.manager.Runs(ctx) {
		w.Outbox.Recover(run)
	}
}

// beginAnew ends the session and starts it again from the beginning.
func (w *Watch) beginAnew(ctx context.Context, st session.Status) error {
	if !st.Over() {
		if err := w.manager.Stop(ctx, w.Spec.Name, "watch --new"); err != nil {
			return err
		}
	}
	return w.manager.Begin(ctx, w.Spec.Name, "watch --new")
}

// gaveUpLine returns the line that tells the user how a session that gave up continues.
func gaveUpLine(st session.Status) string {
	if st.NoResume != "" {
		return fmt.Sprintf("session %s gave up (%s); starting it again with its first prompt", st.Name, st.Error)
	}
	return fmt.Sprintf("session %s gave up (%s); continuing with new attempts. Use --new to start another one", st.Name, st.Error)
}

// checkSame returns an error if the stored session is for another command.
func (w *Watch) checkSame(ctx context.Context, st session.Status) error {
	i, err := w.engine.Get(ctx, st.Run)
	if err != nil {
		return err
	}
	if was, same := w.Spec.Same(i.Input); !same {
		return fmt.Errorf("session %s belongs to another command, %q in %s, and is %s: choose another --name, or use --new to end that one",
			st.Name, strings.Join(was.Start, " "), was.Dir, st.State)
	}
	if was, now := i.Steps[0].Policy, w.Spec.Policy.String(); was != now {
		w.Say("session %s keeps the policy that it was started with: %s", st.Name, was)
	}
	return nil
}

// continuedLine says in which state a session continues.
func continuedLine(st session.Status) string {
	where := st.State
	if st.Next != nil {
		where = fmt.Sprintf("waiting until %s", st.Next.Local().Format("Jan 2 15:04:05"))
	}
	attempts := strconv.Itoa(st.MaxAttempts)
	if st.MaxAttempts < 0 {
		attempts = "unlimited"
	}
	return fmt.Sprintf("continuing session %s: %s, %d of %d windows and %d of %s attempts used. Use --new to start another one",
		st.Name, where, st.Windows, st.MaxWindows, st.Spent, attempts)
}

// writeAbout writes the description of the session into the folder.
func (w *Watch) writeAbout() error {
	text, err := json.Marshal(w.About)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.Dir, session.AboutFile), append(text, '\n'), 0o600)
}

// serve serves the control API on a socket. If the path is too long for a socket, the session runs
// without it.
func (w *Watch) serve() {
	service := admin.New(admin.Config{Engine: w.engine, Sessions: w.manager, Version: w.Version, Logger: w.Logger, Data: w.Dir})
	w.server = httpserver.NewServer(httpserver.Timely(api.New(api.Options{Control: service, Logger: w.Logger})))
	l, err := httpserver.ListenUnix(filepath.Join(w.Dir, Socket))
	if err != nil {
		w.Say("other commands can't control this session: %v", err)
		return
	}
	w.parts.Go(func() { _ = w.server.Serve(l) })
}

// Last returns why the last command of this process stopped; nil before the first stop.
func (w *Watch) Last() *session.Stop { return w.last.Load() }

// StoppedItself reports whether the session was ended by its own command, and not by an operator.
func (w *Watch) StoppedItself() bool { return w.itself.Load() }

// End announces that Close follows because of a signal. The command may have received the same signal;
// it then counts as interrupted, not as ended by its user.
func (w *Watch) End() { w.runner.End() }

// Wait waits until the session has ended.
func (w *Watch) Wait(ctx context.Context) (session.Status, error) {
	if _, err := w.engine.Wait(ctx, w.run); err != nil {
		return session.Status{}, err
	}
	return w.manager.Get(ctx, w.Spec.Name)
}

// If the next retry of a message is at least later away, Drain does not wait for it.
const later = 2 * time.Second

// errNotSent means that messages could not be sent. They stay stored.
var errNotSent = errors.New("sending failed and is not retried soon")

// Drain waits until the messages about the end of the session are sent. It returns an error if all
// messages that are left have failed and are not retried soon, because their notifiers are down.
func (w *Watch) Drain(ctx context.Context) error {
	w.recoverMessages(ctx) // the outbox may not have observed the end of the session yet
	for {
		stats, err := w.engine.Stats(ctx)
		if err != nil {
			return err
		}
		open := 0
		for _, f := range stats.Workflows {
			for state, n := range f.States {
				if state != "dead" {
					open += n
				}
			}
		}
		if open == 0 {
			return nil
		}
		page, err := w.engine.List(ctx, engine.Filter{States: []string{engine.StateWaiting}, Limit: open, Fresh: true})
		if err != nil {
			return err
		}
		soon := func(i engine.Info) bool { return i.Next == nil || time.Until(*i.Next) < later }
		if len(page.Runs) == open && !slices.ContainsFunc(page.Runs, soon) {
			return errNotSent
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the watch. A session that has not ended continues the next time.
func (w *Watch) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	answered, done := context.WithTimeout(ctx, time.Second) // let a request that stopped us get its answer
	defer done()
	if w.server.Shutdown(answered) != nil {
		_ = w.server.Close()
	}
	w.parts.Wait()
	return w.engine.Close(ctx)
}

// Folders returns the folders with the state of watches: the default one, and the one in the data
// folder if data is not "".
func Folders(data string) (list []string) {
	if socket, err := client.DefaultSocket(os.Getenv); err == nil {
		list = append(list, filepath.Join(filepath.Dir(socket), "watch"))
	}
	if data != "" {
		list = append(list, filepath.Join(data, "watch"))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Sockets returns the sockets of all watches in the folders, including those that are not running.
func Sockets(folders []string) (list []string) {
	for _, folder := range folders {
		entries, _ := os.ReadDir(folder) // on an error, no watch has run yet
		for _, e := range entries {
			path := filepath.Join(folder, e.Name(), Socket)
			if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
				list = append(list, path)
			}
		}
	}
	return list
}
