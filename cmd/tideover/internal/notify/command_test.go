//go:build unix

package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

func TestACommandGetsTheMessage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	s := sender(t, `{run: [sh, -c, 'exec >"$OUT"; cat; printf "%s|%s|%s|%s" "$TIDEOVER_EVENT" "$TIDEOVER_ATTEMPTS" "$KEY" "$1"', sh, "{{ .title }}"], env: {KEY: "${env:K}", OUT: "`+out+`"}}`, "K=PLANTED")
	if err := send(s); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := json.Marshal(message())
	if got := string(data); got != string(want)+"\ngave-up|8|PLANTED|nightly gave up" {
		t.Errorf("the command saw %s", got)
	}
}

func TestACommandRunsWithoutATemplateThatFails(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	s := sender(t, `{run: [sh, -c, 'exec >"$OUT"; cat; printf "%s|%s|%s|%s" "$#" "$1" "$2" "$TIDEOVER_NOTE"', sh, '`+late+`', "{{ .subject }}"], env: {OUT: "`+out+`"}}`)
	m := message()
	m.Attempt = 7
	if err := s.Send(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	input, arguments, _ := strings.Cut(string(data), "\n")
	var got notify.Message
	if err := json.Unmarshal([]byte(input), &got); err != nil || got.ID != m.ID || !strings.Contains(got.Note, "run[4]: template: ") {
		t.Errorf("input %s, %v", input, err)
	}
	if want := "2||nightly|" + got.Note; arguments != want {
		t.Errorf("arguments %q, want %q", arguments, want)
	}
}

func TestACommandIsToldOfNoLimit(t *testing.T) {
	m := message()
	m.Attempts = retry.Unlimited
	s := sender(t, `{run: [sh, -c, 'test "$TIDEOVER_ATTEMPTS/$0" = unlimited/-1', "{{ .attempts }}"]}`)
	if err := s.Send(context.Background(), m); err != nil {
		t.Error(err)
	}
}

func TestWhatTheEndOfACommandMeans(t *testing.T) {
	for _, c := range []struct {
		name, run, says string
		class           retry.Class
	}{
		{"it fails with a code like a value", `[sh, -c, 'exit 1']`, "exit status 1", retry.ClassTransient},
		{"it fails", `[sh, -c, 'echo oh $KEY no >&2; exit 3']`, "exit status 3: oh *** no", retry.ClassTransient},
		{"it asks for a longer wait", `[sh, -c, 'exit 75']`, "exit status 75", retry.ClassThrottled},
		{"it is not there", `[/no/such/command]`, "no such file", retry.ClassPermanent},
		{"it is not in the path", `[no-such-command-at-all]`, "not found", retry.ClassPermanent},
		{"it is not a program", `[/dev/null]`, "permission denied", retry.ClassPermanent},
		{"what it runs is not there", `[sh, -c, 'exit 127']`, "127", retry.ClassPermanent},
		{"a secret is cut by the limit", `[sh, -c, 'for i in $(seq 3000); do printf %s "$KEY"; done; exit 1']`, "exit status 1", retry.ClassTransient},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := send(sender(t, `{run: `+c.run+`, env: {KEY: "${env:K}", ONE: 1}}`, "K=k3y-PLANTED-value"))
			wantError(t, err, c.says)
			if got := retry.OutcomeOf(err).Class; got != c.class {
				t.Errorf("%v: %v, want %v", err, got, c.class)
			}
		})
	}
}

func TestACommandEndsWhenItsTimeIsUp(t *testing.T) {
	err := send(sender(t, `{timeout: 20ms, run: [sleep, 600]}`))
	wantError(t, err, "timed out after 20ms")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not a DeadlineExceeded", err)
	}
}

// TestACommandDiesWithItsChildren runs a command whose child would run longer than the
// test.
func TestACommandDiesWithItsChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	s := sender(t, `{timeout: 1h, run: [sh, -c, 'sleep 600 & echo $! > "$PIDFILE.new"; mv "$PIDFILE.new" "$PIDFILE"; wait'], env: {PIDFILE: "`+file+`"}}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- s.Send(ctx, message()) }()
	testwait.Until(t, "the command has started its child", func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
	cancel()
	if err := testwait.Receive(t, "the end of Send", sent); !errors.Is(err, context.Canceled) {
		t.Errorf("Send = %v, want it canceled", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the child has ended", func() bool { return dead(pid) })
}

// dead reports whether the process has ended. A zombie that its parent has not yet waited
// for counts as ended.
func dead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}
