package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// notifyTimeout limits the time that exec waits at its end for messages to be sent.
const notifyTimeout = time.Minute

// notifierSet sends messages about a command. Messages are not stored: if a message can't be sent
// before exec ends, the error is printed and the message is dropped.
type notifierSet struct {
	list     []*execNotifier
	redactor *secret.Redactor
	warn     func(string)
	ctx      context.Context
	cancel   context.CancelCauseFunc
	pending  sync.WaitGroup
}

// execNotifier sends the messages of one notifier of the configuration, with its policy and its
// rate limit.
type execNotifier struct {
	*notify.Spec
	sender *notify.Sender
	runner *retry.Runner
	gate   *notify.Gate
}

// newNotifierSet creates the notifiers with these names from the configuration at path. Without
// names the configuration is not read.
func newNotifierSet(path string, names []string) (*notifierSet, error) {
	t := &notifierSet{redactor: new(secret.Redactor)}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	if len(names) == 0 {
		return t, nil
	}
	flags := configFlags{path: path}
	cfg, _, err := flags.load(t.redactor)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		n := cfg.Notifiers[name]
		if n == nil {
			return nil, fmt.Errorf("--notify: %s", unknownNotifier(cfg, flags, name))
		}
		made, err := newExecNotifier(cfg, n)
		if err != nil {
			return nil, err
		}
		t.list = append(t.list, made)
	}
	return t, nil
}

// newExecNotifier creates a sender for a notifier of the configuration.
func newExecNotifier(cfg *config.Config, n *notify.Spec) (*execNotifier, error) {
	sender, err1 := notify.New(n, notify.Env{Secrets: cfg.Secrets(), Inherit: cfg.Server.Inherit})
	runner, err2 := retry.New(n.Policy, retry.WithName("notify "+n.Name))
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("notify %q: %w", n.Name, err)
	}
	return &execNotifier{n, sender, runner, notify.NewGate(n)}, nil
}

// send sends a message, with retries by the policy of the notifier. It adds the number of attempts
// to attempts, unless attempts is nil.
func (l *execNotifier) send(ctx context.Context, m notify.Message, attempts *int) error {
	return l.runner.Do(ctx, func(ctx context.Context) error {
		if attempts != nil {
			*attempts++
		}
		err := l.sender.Send(ctx, m)
		if e, ok := errors.AsType[*notify.SendError](err); ok {
			m = e.Progress() // leaves out the recipients that have got the message
		}
		return err
	})
}

// observe starts to send a message about the event with each notifier that is configured for such
// events. It does not wait for the end.
func (t *notifierSet) observe(ev retry.Event) {
	if len(t.list) == 0 || ev.Reason == retry.StopCanceled {
		return
	}
	ev.Err = t.withLastLine(ev.Err)
	m, ok := notify.Compose(ev, messageOrigin())
	if !ok {
		return
	}
	for _, l := range t.list {
		if !notify.Wants(l.On, m) {
			continue
		}
		if admitted, held := l.gate.Admit(m, time.Now()); held == notify.NotHeld {
			t.pending.Go(func() {
				if err := l.send(t.ctx, admitted, nil); err != nil {
					t.warn(t.redactor.String("notification not sent: " + t.describe(err)))
				}
			})
		}
	}
}

// withLastLine returns the error of an event, followed by the last line of the command's standard error
// if exec has read it.
func (t *notifierSet) withLastLine(err error) error {
	f, ok := errors.AsType[*failure](err)
	if !ok || f.LastStderr == "" {
		return err
	}
	if whole, ok := errors.AsType[*retry.Error](err); ok && whole.Last != nil {
		err = whole.Last
	}
	return fmt.Errorf("%w: %s", err, t.redactor.String(f.LastStderr))
}

// lateError says that a message was not sent within a limit of time.
type lateError time.Duration

// Error implements error.
func (e lateError) Error() string { return fmt.Sprintf("not sent within %v", time.Duration(e)) }

// describe returns the text of the error of send. If notifyTimeout is over, the text names that limit
// and the last error of the receiver, not the cancellation.
func (t *notifierSet) describe(err error) string {
	gave, ok := errors.AsType[*retry.Error](err)
	late, over := errors.AsType[lateError](context.Cause(t.ctx))
	if !ok || !over || gave.Reason != retry.StopCanceled {
		return err.Error()
	}
	text := fmt.Sprintf("%s: gave up after %s: %v", gave.Name, textfmt.Plural(gave.Attempts, "attempt"), late)
	for _, f := range slices.Backward(gave.History()) {
		if !errors.Is(f.Err, context.Canceled) {
			return text + ": " + f.Err.Error()
		}
	}
	return text
}

// finish waits until all messages are sent. When the context stop ends, or after notifyTimeout, it
// cancels the messages that are not sent yet.
func (t *notifierSet) finish(stop context.Context) {
	limit := time.AfterFunc(notifyTimeout, func() { t.cancel(lateError(notifyTimeout)) })
	defer limit.Stop()
	defer context.AfterFunc(stop, func() { t.cancel(nil) })()
	t.pending.Wait()
	t.cancel(nil)
}
