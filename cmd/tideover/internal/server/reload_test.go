package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/internal/secret"
)

// TestANewRuleOfTheAlarmIsUsed has a load that is a storm only by the rule of the
// next configuration.
func TestANewRuleOfTheAlarmIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n uint64
		s := new(server)
		s.alarm = storm.New(storm.Rule{Amplification: 10, For: 30 * time.Second, MinAttempts: 1}, func() map[storm.Subject]storm.Count {
			n++
			return map[storm.Subject]storm.Count{{Layer: "workflow", Name: "order"}: {Attempts: 5 * n, First: n}}
		}, func(storm.Change) {})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.alarm.Run(ctx) }()
		time.Sleep(2 * time.Minute)
		if got := s.alarm.Storms(); len(got) != 0 {
			t.Errorf("by the first rule: %v", got)
		}
		s.use(&config.Config{Alarm: storm.Rule{Amplification: 4, For: 30 * time.Second, MinAttempts: 1}})
		time.Sleep(2 * time.Minute)
		if got := s.alarm.Storms(); len(got) != 1 {
			t.Errorf("by the next one: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsToldOfTheFile(t *testing.T) {
	t.Parallel()
	redactor := new(secret.Redactor)
	redactor.Add("s3cret-value")
	s := &server{Options: Options{Source: config.Source{Redactor: redactor}}}
	if got := s.file(); got != (control.ConfigFile{}) {
		t.Errorf("before it was read again: %+v", got)
	}
	_, err := config.Load(config.Source{Path: "t.yaml", Data: []byte("version: 1\npolicys: {}\nserver: {listen: s3cret-value}\n"), Environ: []string{"HOME=/"}, Redactor: redactor})
	s.note(err)
	got := s.file()
	if got.Read.IsZero() || !strings.HasPrefix(got.Problem, "t.yaml:2:1: key \"policys\" is unknown") || strings.Contains(got.Problem, "\n") || got.More != 1 {
		t.Errorf("of a file that is wrong: %+v", got)
	}
	s.note(errors.New("first s3cret-value\nsecond"))
	if got := s.file(); strings.Contains(got.Problem, "s3cret-value") || strings.Contains(got.Problem, "\n") {
		t.Errorf("of another error: %+v", got)
	}
	s.note(nil)
	if got := s.file(); got.Read.IsZero() || got.Problem != "" || got.More != 0 {
		t.Errorf("of a file that is right: %+v", got)
	}
}

func TestWhatIsLoggedOfTheFile(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		errors.New("t.yaml:1:2: a\nt.yaml:3:4: b"):      `msg="the configuration stays as it was" error="t.yaml:1:2: a; t.yaml:3:4: b" hint="tideover config check t.yaml"`,
		&scantError{"t.yaml"}:                           `msg="the configuration stays as it was" error="there are no providers: name some under providers: in t.yaml"`,
		errors.Join(errors.New("a"), errors.New("b")):   `msg="the configuration stays as it was" error=a more=1 hint="tideover config check t.yaml"`,
		&partlyError{errors.New("schedules: no space")}: `msg="the configuration is not in effect as a whole" error="taken over in part, until it is loaded again: schedules: no space"`,
	} {
		var out strings.Builder
		s := &server{Options: Options{Source: config.Source{Path: "t.yaml"}, Log: slog.New(slog.NewTextHandler(&out, nil))}}
		s.keep(err)
		if got := out.String(); !strings.HasSuffix(got, want+"\n") || strings.Count(got, "\n") != 1 {
			t.Errorf("%v: logged %q, want %q at its end", err, got, want)
		}
	}
}
