package session

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// Messages of the assistant about a limit.
const (
	noTime  = "You've hit your session limit"
	hasTime = "Claude AI usage limit reached|%d"
)

// call is a command of a session.
type call struct {
	session string
	at      time.Time
	limited bool
}

// limitedService is the fake service behind an account, with virtual time.
type limitedService struct {
	mu     sync.Mutex
	resets time.Time                                                  // when the limit ends
	work   time.Duration                                              // duration of a command without a limit
	said   func(session string, n int) (text string, d time.Duration) // message to the n-th command of a session during the limit, and its delay
	calls  []call
}

// launch replaces [Runner.launch].
func (s *limitedService) launch(ctx context.Context, c guard.Command) (guard.Result, error) {
	name := c.Args[len(c.Args)-1]
	s.mu.Lock()
	limited := time.Now().Before(s.resets) // real clock: it runs in a bubble
	n := 1
	for _, before := range s.calls {
		if before.session == name {
			n++
		}
	}
	s.calls = append(s.calls, call{name, time.Now(), limited})
	s.mu.Unlock()
	wait, text, code := s.work, "All done.", 0
	if limited {
		text, wait = s.said(name, n)
		code = 1
	}
	select {
	case <-time.After(wait): // real clock: it runs in a bubble
	case <-ctx.Done():
		return guard.Result{Code: 143, Told: true}, nil
	}
	_, err := io.WriteString(c.Stdout, text+"\n")
	return guard.Result{Code: code}, err
}

// all returns the commands so far.
func (s *limitedService) all() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// sessionHost runs sessions, like serve or watch.
type sessionHost struct {
	t      *testing.T
	store  *memlog.Store
	specs  []*Spec
	flows  []*engine.Workflow
	launch func(context.Context, guard.Command) (guard.Result, error) // of the runner
	said   []string                                                   // warnings of the account store

	accounts string // folder of the account store
	runner   *Runner
	engine   *engine.Engine
	manager  *Manager
}

func newSessionHost(t *testing.T, s *limitedService, accounts string, change func(*Spec), names ...string) *sessionHost {
	t.Helper()
	k := &sessionHost{t: t, store: new(memlog.Store), accounts: accounts}
	if s != nil {
		k.launch = s.launch
	}
	for _, name := range names {
		policy, err := retry.Parse(DefaultPolicy)
		if err != nil {
			t.Fatal(err)
		}
		spec := &Spec{Name: name, Start: []string{"claude", name}, Pack: "claude-code", Policy: policy}
		if change != nil {
			change(spec)
		}
		if err := spec.Validate(); err != nil {
			t.Fatal(err)
		}
		flow, err := spec.Workflow(nil)
		if err != nil {
			t.Fatal(err)
		}
		k.specs, k.flows = append(k.specs, spec), append(k.flows, flow)
	}
	return k
}

// open opens the engine like a new process.
func (k *sessionHost) open() {
	k.t.Helper()
	start := time.Now().Add(-time.Hour)
	k.runner = &Runner{
		Locks: k.t.TempDir(), launch: k.launch,
		Open: func(*Spec) (Streams, error) {
			return Streams{Stdout: io.Discard, Stderr: io.Discard, Close: func() error { return nil }}, nil
		},
		Accounts: &account.Store{
			Dir: k.accounts, Warn: func(text string) { k.said = append(k.said, text) },
			Uptime: func() (time.Duration, string) { return time.Since(start), "virtual" }, // real clock: it runs in a bubble
		},
		Wake:   func(ctx context.Context, run, by string) error { return WakeHeld(ctx, k.engine, run, by) },
		Cancel: func(ctx context.Context, run, by string) error { return k.engine.Cancel(ctx, run, by) },
	}
	var err error
	k.engine, err = engine.Open(k.t.Context(), engine.Config{
		Log: k.store.Open(), Workflows: k.flows, Logger: slog.New(slog.DiscardHandler), Handlers: map[string]engine.Handler{Handler: k.runner.Handle},
	})
	if err != nil {
		k.t.Fatal(err)
	}
	k.manager = &Manager{Engine: k.engine, Runner: k.runner}
	if _, err := k.manager.Set(k.t.Context(), k.specs, k.flows); err != nil {
		k.t.Fatal(err)
	}
}

func (k *sessionHost) close() {
	k.t.Helper()
	if err := k.engine.Close(context.Background()); err != nil {
		k.t.Errorf("Close() = %v", err)
	}
}

func (k *sessionHost) status(name string) Status {
	k.t.Helper()
	st, err := k.manager.Get(k.t.Context(), name)
	if err != nil {
		k.t.Fatal(err)
	}
	return st
}

// wait waits until all sessions have ended, and checks that all are completed.
func (k *sessionHost) wait() {
	k.t.Helper()
	for _, s := range k.specs {
		st := k.status(s.Name)
		i, err := k.engine.Wait(k.t.Context(), st.Run)
		if err != nil {
			k.t.Fatal(err)
		}
		if i.State != "succeeded" {
			k.t.Errorf("session %s is %s: %s", s.Name, i.State, i.Error)
		}
	}
}

// wantTogether checks that all sessions continued within the spread after from, and that at most this
// many commands ran between the first commands of the sessions and from.
func (s *limitedService) wantTogether(t *testing.T, sessions []string, from time.Time, spread time.Duration, most int) {
	t.Helper()
	first, after := map[string]bool{}, map[string]bool{}
	probes := 0
	for _, c := range s.all() {
		switch {
		case !first[c.session]:
			first[c.session] = true
		case c.at.Before(from):
			probes++
		case !after[c.session]:
			after[c.session] = true
			if late := c.at.Sub(from); late > spread {
				t.Errorf("session %s went on %v after %v, want at most %v", c.session, late, from, spread)
			}
		}
	}
	if probes > most {
		t.Errorf("%d commands were run before %v, want at most %d: %v", probes, from, most, s.all())
	}
	for _, name := range sessions {
		if !after[name] {
			t.Errorf("session %s did not go on: %v", name, s.all())
		}
	}
}

var five = []string{"one", "two", "three", "four", "five"}

// toldOnce is an account whose limit ends in half an hour. Only one session gets a message with that
// time. With a delay, the other sessions find the limit before it.
func toldOnce(after time.Duration) *limitedService {
	time.Sleep(time.Until(time.Date(2026, 7, 9, 12, 0, 0, 0, time.UTC))) // virtual time begins in 2000, before all messages
	reset := time.Now().Add(30 * time.Minute).Truncate(time.Second)
	return &limitedService{resets: reset, work: 5 * time.Minute, said: func(session string, _ int) (string, time.Duration) {
		if session == "one" {
			return fmt.Sprintf(hasTime, reset.Unix()), after
		}
		return noTime, 2 * time.Second
	}}
}

// Five sessions use one account. Only one of them gets the end of the limit.
func TestAResetHoldsAllSessionsOfAnAccount(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"told first": time.Second, "told last": 10 * time.Second, "told after a probe": 50 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := toldOnce(after)
				k := newSessionHost(t, s, t.TempDir(), nil, five...)
				k.open()
				defer k.close()
				time.Sleep(15 * time.Minute)
				for _, name := range five[1:] {
					st := k.status(name)
					if st.State != "waiting" || st.WaitBy != "account" || st.Windows != 0 || st.Account != "claude-code" ||
						!strings.Contains(st.WaitFor, "held: account claude-code is limited until ") || !strings.Contains(st.WaitFor, "reported by session one: Claude AI usage limit reached|") ||
						!strings.HasPrefix(st.AccountLimit, "account claude-code is limited until ") {
						t.Errorf("session %s is %s by %s, %d windows, account %q (%s): %s", name, st.State, st.WaitBy, st.Windows, st.Account, st.AccountLimit, st.WaitFor)
					}
				}
				k.wait()
				s.wantTogether(t, five, s.resets.Add(90*time.Second), 30*time.Second, 1)
				spent := 0
				for _, name := range five {
					spent += k.status(name).Spent
				}
				if spent > 2 {
					t.Errorf("%d attempts were spent, want at most that of who learned of the limit first, and of a probe", spent)
				}
			})
		})
	}
}

// The process that runs the sessions ends during the wait, and another one continues.
func TestAResetHoldsAllSessionsAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := toldOnce(time.Second)
		k := newSessionHost(t, s, t.TempDir(), nil, five...)
		k.open()
		time.Sleep(5 * time.Minute)
		k.close()
		time.Sleep(5 * time.Minute)
		k.open()
		defer k.close()
		k.wait()
		s.wantTogether(t, five, s.resets.Add(90*time.Second), 30*time.Second, 1)
	})
}

// Three processes run a session each.
func TestAResetHoldsTheSessionsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, dir := toldOnce(10*time.Second), t.TempDir()
		var list []*sessionHost
		for _, name := range five[:3] {
			k := newSessionHost(t, s, dir, nil, name)
			k.open()
			defer k.close()
			list = append(list, k)
		}
		for _, k := range list {
			k.wait()
		}
		s.wantTogether(t, five[:3], s.resets.Add(90*time.Second), 30*time.Second, 1)
	})
}

// The end of the limit is never stated: one session at a time probes, and the others follow.
func TestOneSessionProbesAnAccount(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]time.Duration{"a short command": 10 * time.Second, "a long command": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &limitedService{resets: time.Now().Add(5 * time.Minute), work: work, said: func(string, int) (string, time.Duration) { return noTime, 5 * time.Second }}
				dir := t.TempDir()
				var list []*sessionHost
				for _, name := range five {
					k := newSessionHost(t, s, dir, nil, name)
					k.open()
					defer k.close()
					list = append(list, k)
				}
				for _, k := range list {
					k.wait()
				}
				var probes []call
				for i, c := range s.all() {
					if i >= len(five) && (c.limited || len(probes) == 0 || probes[len(probes)-1].limited) {
						probes = append(probes, c)
					}
				}
				for i, c := range probes[1:] {
					if c.at.Sub(probes[i].at) < 30*time.Second {
						t.Errorf("probes at %v and %v", probes[i].at, c.at)
					}
				}
				if last := probes[len(probes)-1]; last.limited || len(probes) > 5 {
					t.Fatalf("probes: %v", probes)
				}
				proof := probes[len(probes)-1].at.Add(min(work, account.ProvenAfter))
				s.wantTogether(t, five, probes[len(probes)-1].at, proof.Sub(probes[len(probes)-1].at)+32*time.Second, len(probes)-1)
				for _, c := range s.all()[len(five)+len(probes):] {
					if c.at.Before(proof) {
						t.Errorf("session %s went on at %v, before the probe had shown anything at %v", c.session, c.at, proof)
					}
				}
			})
		})
	}
}

// A session that probes gives up. Another one takes over at once, and is not said to wait for the first.
func TestAnotherSessionProbesAfterOneGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &limitedService{resets: time.Now().Add(5*time.Minute + 20*time.Second), work: time.Minute, said: func(session string, n int) (string, time.Duration) {
			switch {
			case session == "one" && n == 2:
				return "Credit balance is too low", 50 * time.Second
			case session == "one":
				return noTime, time.Second
			}
			return noTime, 3 * time.Second
		}}
		k := newSessionHost(t, s, t.TempDir(), nil, "one", "two")
		k.open()
		defer k.close()
		time.Sleep(5*time.Minute + 40*time.Second)
		if st := k.status("two"); !strings.HasSuffix(st.WaitFor, "; session one is probing it") {
			t.Errorf("session two waits for %q", st.WaitFor)
		}
		i, err := k.engine.Wait(t.Context(), k.status("one").Run)
		if err != nil || i.State != "dead" {
			t.Fatalf("session one is %v, %v", i, err)
		}
		if st := k.status("two"); strings.Contains(st.WaitFor, "is probing it") {
			t.Errorf("session two waits for %q", st.WaitFor)
		}
		k.engine.Wait(t.Context(), k.status("two").Run)
		calls := s.all()
		if late := calls[len(calls)-1].at.Sub(*i.Ended); calls[len(calls)-1].session != "two" || late > 32*time.Second {
			t.Errorf("the last command began %v after session one gave up: %v", late, calls)
		}
		if st := k.status("two"); st.State != "completed" || st.Spent != 0 {
			t.Errorf("session two is %s after %d attempts: %s", st.State, st.Spent, st.Error)
		}
	})
}

// A limit without a stated end lasts nine hours. Three times a process is killed, once in a probe.
func TestALimitWithoutATimeIsProbedAllNight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &limitedService{resets: began.Add(9 * time.Hour), work: time.Hour, said: func(string, int) (string, time.Duration) { return noTime, 20 * time.Second }}
		dir := t.TempDir()
		var list []*sessionHost
		for _, name := range five {
			k := newSessionHost(t, s, dir, nil, name)
			k.open()
			list = append(list, k)
		}
		for _, after := range []time.Duration{5*time.Minute + 10*time.Second, 2 * time.Hour, 4 * time.Hour} {
			sleepUntil(t, began.Add(after))
			for _, k := range list {
				k.close()
				k.open()
			}
		}
		for _, k := range list {
			defer k.close()
			k.wait()
		}
		probes, busy := 0, time.Time{}
		for i, c := range s.all() {
			switch {
			case i < len(five): // the command that finds the limit
			case !c.limited:
				if late := c.at.Sub(s.resets); late > longestProbe+account.ProvenAfter+2*time.Minute {
					t.Errorf("session %s went on %v after the limit", c.session, late)
				}
			default:
				probes++
				if c.at.Before(busy) {
					t.Errorf("session %s probes at %v, before the last probe has ended", c.session, c.at)
				}
				busy = c.at.Add(10 * time.Second) // the first restart interrupts a probe after 10 s
			}
		}
		if probes > 24 || probes < 18 {
			t.Errorf("%d probes: %v", probes, s.all())
		}
		for _, k := range list {
			if st := k.status(k.specs[0].Name); st.Spent != 0 || st.Windows != 0 {
				t.Errorf("session %s has used %d attempts and %d windows", st.Name, st.Spent, st.Windows)
			}
		}
	})
}

// A limit that is never over ends all sessions of the account after a day.
func TestALimitWithoutATimeEndsAfterADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &limitedService{resets: time.Now().Add(48 * time.Hour), said: func(string, int) (string, time.Duration) { return noTime, time.Second }}
		k := newSessionHost(t, s, t.TempDir(), nil, five[:2]...)
		began := time.Now()
		k.open()
		defer k.close()
		for _, name := range five[:2] {
			i, err := k.engine.Wait(t.Context(), k.status(name).Run)
			if err != nil || i.State != "dead" || !strings.Contains(i.Error, "the limit has lasted since ") {
				t.Fatalf("session %s is %v, %v", name, i.Error, err)
			}
			if d := i.Ended.Sub(began); d < probeFor || d > probeFor+longestProbe+2*time.Minute {
				t.Errorf("session %s gave up after %v", name, d)
			}
		}
		if n := len(s.all()); n > 60 {
			t.Errorf("%d commands", n)
		}
	})
}

// An operator makes one session continue. Its success ends the limit for the others at once.
func TestRetryNowIsNotHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := toldOnce(time.Second)
		k := newSessionHost(t, s, t.TempDir(), nil, five...)
		k.open()
		defer k.close()
		time.Sleep(5 * time.Minute)
		s.mu.Lock()
		s.resets = time.Time{} // credits were bought
		s.mu.Unlock()
		// A paused session stays paused.
		if err := k.manager.PauseUntil(t.Context(), "three", time.Now().Add(48*time.Hour), "me"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := k.manager.RetryNow(t.Context(), "two", "me"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(account.ProvenAfter + 35*time.Second)
		resumed := map[string]bool{}
		for _, c := range s.all() {
			if !c.at.Before(began) {
				resumed[c.session] = true
			}
		}
		// The session that got the end of the limit waits until then.
		if len(resumed) != 3 || resumed["three"] || resumed["one"] {
			t.Errorf("sessions %v went on", resumed)
		}
	})
}

// If the limits can't be stored, sessions still work, and there is one warning.
func TestAFolderThatCanNotBeWrittenStopsNothing(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, dir string) error{
		"a file in place of the folder": func(_ *testing.T, dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"other users can write to it": func(_ *testing.T, dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			return os.Chmod(dir, 0o777) //nolint:gosec // that is the point
		},
		"a damaged file": func(_ *testing.T, dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "claude-code.json"), []byte(`{"version":1,"limit":{"wait_ns":9e99`), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "accounts")
				if err := prepare(t, dir); err != nil {
					t.Fatal(err)
				}
				s := toldOnce(time.Second)
				k := newSessionHost(t, s, dir, nil, five...)
				k.open()
				defer k.close()
				k.wait()
				if len(k.said) != 1 {
					t.Errorf("said %q", k.said)
				}
				// The sessions of one process still share limits.
				s.wantTogether(t, five, s.resets.Add(90*time.Second), 30*time.Second, 1)
			})
		})
	}
}

// Sessions with different accounts, and those without one, do not hold each other back.
func TestOtherAccountsAreNotHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := toldOnce(time.Second)
		k := newSessionHost(t, s, t.TempDir(), func(s *Spec) {
			switch s.Name {
			case "two":
				s.Account = "none"
			case "three":
				s.Account = "work"
			}
		}, "one", "two", "three", "four")
		k.open()
		defer k.close()
		time.Sleep(20 * time.Minute)
		calls := map[string]int{}
		for _, c := range s.all() {
			calls[c.session]++
		}
		if calls["one"] != 1 || calls["two"] != 3 || calls["three"] != 3 || calls["four"] != 1 {
			t.Errorf("commands: %v", calls)
		}
		if st := k.status("two"); st.Account != "" || st.AccountLimit != "" || st.State != "waiting" || !strings.Contains(st.WaitFor, "; without a stated end; next probe at ") {
			t.Errorf("session two is %s, account %q: %s", st.State, st.Account, st.AccountLimit)
		}
		for _, name := range []string{"one", "two", "three", "four"} {
			if err := k.manager.Stop(t.Context(), name, "me"); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTheAccountOfASession(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		spec Spec
		want string
	}{
		{Spec{Start: []string{"/usr/bin/claude", "-p", "x"}, Pack: "claude-code"}, "claude-code"},
		{Spec{Start: []string{"claude", "-p", "x"}, Pack: "claude-code", Account: "work"}, "work"},
		{Spec{Start: []string{"claude", "-p", "x"}, Pack: "claude-code", Account: "none"}, ""},
		{Spec{Start: []string{"./night.sh"}, Pack: "codex"}, "codex"},
		{Spec{Start: []string{"./night.sh"}, Pack: "mine", Rules: &detect.Spec{Extends: "codex"}}, "codex"},
		{Spec{Start: []string{"./night.sh"}, Pack: "mine", Rules: &detect.Spec{Extends: "generic"}}, ""},
		{Spec{Start: []string{"claude"}, Pack: "mine", Rules: &detect.Spec{}}, "claude-code"},
		{Spec{Start: []string{"./import"}, Pack: "generic"}, ""},
		{Spec{Start: []string{"./import"}, Pack: "generic", Account: "shop"}, "shop"},
	} {
		if got := tt.spec.AccountName(); got != tt.want {
			t.Errorf("%+v: account %q, want %q", tt.spec, got, tt.want)
		}
	}
}

// The account follows the folder in which the assistant keeps its login, and the login that its
// records name.
func TestTheAccountFollowsTheLogin(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".claude.json", `{"oauthAccount":{"accountUuid":"me","organizationUuid":"home"}}`)
	write(".claude/settings.json", `{}`)
	write("same/.claude.json", `{"oauthAccount":{"accountUuid":"me","organizationUuid":"home"}}`)
	write("work/.claude.json", `{"oauthAccount":{"accountUuid":"me","organizationUuid":"company"}}`)
	write("job/.claude.json", `{"oauthAccount":{"accountUuid":"me","organizationUuid":"company"}}`)
	write("empty/.claude.json", `{}`)
	write("codex/auth.json", `{"tokens":{"account_id":"other"}}`)
	if err := os.Symlink(filepath.Join(base, ".claude"), filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	account := func(start []string, env map[string]string) string {
		s := &Spec{Name: "x", Dir: base, Start: start, Pack: CommandPack(start)}
		s.PlanAccount(func(name string) string {
			if name == "HOME" {
				return base
			}
			return env[name]
		})
		return s.AccountName()
	}
	claude := []string{"claude", "-p", "x"}
	in := func(folder string) string { return account(claude, map[string]string{"CLAUDE_CONFIG_DIR": folder}) }
	work := in(base + "/work")
	if !strings.HasPrefix(work, "claude-code-") || len(work) != len("claude-code-")+8 {
		t.Errorf("another login has the account %s", work)
	}
	for what, pair := range map[string][2]string{
		"no folder":                  {in(""), "claude-code"},
		"the usual folder":           {in(base + "/.claude"), "claude-code"},
		"a link to it":               {in(base + "/link"), "claude-code"},
		"another one, same login":    {in(base + "/same"), "claude-code"},
		"two folders of a login":     {in(base + "/job"), work},
		"a relative folder":          {in("work"), work},
		"a folder in ~":              {in("~/work"), work},
		"set by env":                 {account([]string{"env", "CLAUDE_CONFIG_DIR=" + base + "/work", "claude", "-p", "x"}, nil), work},
		"set in a script":            {account([]string{"sh", "-c", "cd lib && CLAUDE_CONFIG_DIR=" + base + "/work claude -p x"}, nil), work},
		"codex in its usual folder":  {account([]string{"codex", "exec", "x"}, map[string]string{"CLAUDE_CONFIG_DIR": base + "/work"}), "codex"},
		"a program without a folder": {account([]string{"make"}, nil), ""},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: account %q, want %q", what, pair[0], pair[1])
		}
	}
	if empty := in(base + "/empty"); empty == work || empty == "claude-code" {
		t.Errorf("a folder without a login has the account %s", empty)
	}
	if other := account([]string{"codex", "exec", "x"}, map[string]string{"CODEX_HOME": base + "/codex"}); !strings.HasPrefix(other, "codex-") {
		t.Errorf("another login of codex has the account %s", other)
	}
	s := &Spec{Start: claude, Pack: "claude-code", Account: "mine", Login: work}
	if s.AccountName() != "mine" {
		t.Errorf("the account of the file is %s", s.AccountName())
	}
}
