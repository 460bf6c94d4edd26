package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/quota"
)

// A session with pause-at starts no command until the quota is reset, and then checks the quota again.
// If the quota is still used up, it waits further.
func TestNothingBeginsBeforeTheQuotaIsReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, func(s *Spec) { s.Pack, s.PauseAt = "codex", 90 }, "0")
		began := time.Now()
		reset, free := began.Add(3*time.Hour), began.Add(3*time.Hour+12*time.Minute)
		asked := 0
		p.runner.readQuota = func(context.Context, *Spec, []string) ([]quota.Window, error) {
			asked++
			if time.Now().Before(free) {
				return []quota.Window{{Name: "weekly", Used: 3, Resets: began.Add(100 * time.Hour)}, {Name: "5-hour", Used: 91, Resets: reset}}, nil
			}
			return []quota.Window{{Name: "5-hour", Used: 1, Resets: began.Add(8 * time.Hour)}}, nil
		}
		p.open()
		defer p.close()
		p.start()
		synctest.Wait()
		i := p.info()
		if i.Next == nil || !i.Next.Equal(reset) {
			t.Errorf("it waits until %v, want %v", i.Next, reset)
		}
		st := statusOf("test", i)
		if want := "91% of the 5-hour quota is used; the session pauses at 90%"; !strings.Contains(st.WaitFor, want) {
			t.Errorf("it waits for %q, want %q", st.WaitFor, want)
		}
		i = p.wait()
		if len(p.begun) != 1 || p.begun[0].Before(free) || p.begun[0].After(free.Add(quotaRecheck)) {
			t.Errorf("commands were begun at %v, want one within %v after %v", p.begun, quotaRecheck, free)
		}
		if s := i.Steps[0]; i.State != "succeeded" || s.Spent != 0 || s.Windows != 0 || asked != 5 {
			t.Errorf("%s; %d attempts and %d windows were spent; asked %d times", i.State, s.Spent, s.Windows, asked)
		}
	})
}

// An unreadable quota is a warning and delays nothing.
func TestAQuotaThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSessionTest(t, func(s *Spec) { s.Pack, s.PauseAt = "codex", 90 }, "0")
		p.runner.readQuota = func(context.Context, *Spec, []string) ([]quota.Window, error) {
			return nil, errors.New("not logged in")
		}
		var said []string
		p.runner.Warn = func(text string) { said = append(said, text) }
		p.open()
		defer p.close()
		p.start()
		if i := p.wait(); i.State != "succeeded" || len(said) != 1 || !strings.Contains(said[0], "pause-at has no effect: not logged in") {
			t.Errorf("%s; said %q", i.State, said)
		}
	})
}

func TestPauseAtNeedsAToolThatCanBeAsked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pack string
		at   float64
		want string
	}{
		{"codex", 90, ""}, {"claude-code", 100, ""},
		{"aider", 90, "pause-at: the quota of aider can't be read"}, {"codex", 101, "pause-at: 101% is not between"},
	} {
		s := &Spec{Start: []string{"x"}, Pack: tt.pack, PauseAt: tt.at}
		s.Fill()
		err := s.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s at %g%%: %v, want %q", tt.pack, tt.at, err, tt.want)
		}
	}
}

// The quota is that of the session's account, for every pack.
func TestTheQuotaOfAnAccountIsRead(t *testing.T) {
	t.Parallel()
	r := &Runner{Quotas: t.TempDir()}
	for account, used := range map[string]float64{"claude-code": 10, "work": 20} {
		if err := quota.Save(r.Quotas, account, []quota.Window{{Name: "5-hour", Used: used, Resets: time.Now().Add(time.Hour)}}); err != nil {
			t.Fatal(err)
		}
	}
	extended := detect.Spec{Name: "mine", Extends: "claude-code"}
	for _, tt := range []struct {
		spec Spec
		used float64
		want string // part of the error
	}{
		{Spec{Pack: "claude-code"}, 10, ""},
		{Spec{Pack: "claude-code", Account: account.None}, 10, ""},
		{Spec{Pack: "claude-code", Account: "work"}, 20, ""},
		{Spec{Pack: "mine", Rules: &extended}, 10, ""},
		{Spec{Pack: "claude-code", Account: "home"}, 0, "tideover sessions status-line --account home"},
	} {
		tt.spec.Start = []string{"claude", "-p", "x"}
		got, err := r.askQuota(t.Context(), &tt.spec, nil)
		switch {
		case tt.want != "":
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v: %v, %v, want an error with %q", tt.spec, got, err, tt.want)
			}
		case err != nil || len(got) != 1 || got[0].Used != tt.used:
			t.Errorf("%+v: %v, %v, want %g%%", tt.spec, got, err, tt.used)
		}
	}
}

// The app-server is started like the tool: at the same path, and with the same settings folder.
func TestTheAppServerRunsWhereTheToolDoes(t *testing.T) {
	t.Parallel()
	for start, want := range map[string]string{
		"/opt/codex exec x":              "/opt/codex app-server",
		"env CODEX_HOME=/a codex exec x": "env CODEX_HOME=/a codex app-server",
		"./nightly.sh":                   "codex app-server",
	} {
		if got := strings.Join(appServer(strings.Fields(start)), " "); got != want {
			t.Errorf("%s: %s, want %s", start, got, want)
		}
	}
	got := appServer([]string{"sh", "-c", "CODEX_HOME=/a codex exec x"})
	if want := []string{"sh", "-c", "CODEX_HOME=/a codex app-server"}; !slices.Equal(got, want) {
		t.Errorf("inside a shell: %q, want %q", got, want)
	}
}
