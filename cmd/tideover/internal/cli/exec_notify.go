package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// tellTime is how long exec waits at its end for those who are to be told.
const tellTime = time.Minute

// tellers tell somebody what happens to a command. There is no engine here: what
// can't be sent before the end is said on standard error.
type tellers struct {
	list     []*teller
	redactor *secret.Redactor
	warn     func(string)
	ctx      context.Context
	cancel   context.CancelFunc
	pending  sync.WaitGroup
}

type teller struct {
	*notify.Spec
	sender *notify.Sender
	runner *retry.Runner
	gate   *notify.Gate
}

// newTellers makes those that the flags name.
func newTellers(path string, names []string) (*tellers, error) {
	t := &tellers{redactor: new(secret.Redactor)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	if len(names) == 0 {
		return t, nil
	}
	flags := configFlags{path: path}
	src, err := flags.source(t.redactor)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(src)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		n := cfg.Notifiers[name]
		if n == nil {
			return nil, fmt.Errorf("--notify: %s", noNotifier(cfg, flags, name))
		}
		made, err := newTeller(cfg, n)
		if err != nil {
			return nil, err
		}
		t.list = append(t.list, made)
	}
	return t, nil
}

func newTeller(cfg *config.Config, n *notify.Spec) (*teller, error) {
	sender, err1 := notify.New(n, notify.Env{Secrets: cfg.Secrets(), Inherit: cfg.Server.Inherit})
	runner, err2 := retry.New(n.Policy, retry.WithName("notify "+n.Name))
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("notify %q: %w", n.Name, err)
	}
	return &teller{n, sender, runner, notify.NewGate(n)}, nil
}

// send sends the message, and counts its attempts if that is wanted.
func (l *teller) send(ctx context.Context, m notify.Message, attempts *int) error {
	return l.runner.Do(ctx, func(ctx context.Context) error {
		if attempts != nil {
			*attempts++
		}
		err := l.sender.Send(ctx, m)
		if e, ok := errors.AsType[*notify.SendError](err); ok {
			m = e.Progress() // those who have it don't get it again
		}
		return err
	})
}

// observe starts to tell those who want to know. The command does not wait.
func (t *tellers) observe(ev retry.Event) {
	if len(t.list) == 0 || ev.Reason == retry.StopCanceled {
		return
	}
	m, ok := notify.Compose(ev, origin())
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
					t.warn(t.redactor.String(fmt.Sprintf("nobody was told: %v", err)))
				}
			})
		}
	}
}

// finish waits for those who are being told, but not for ever.
func (t *tellers) finish(stop context.Context) {
	limit := time.AfterFunc(tellTime, t.cancel)
	defer limit.Stop()
	defer context.AfterFunc(stop, t.cancel)()
	t.pending.Wait()
	t.cancel()
}
