package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/internal/secret"
)

// A load that is no storm by the first configuration becomes one when a reload changes the rule.
func TestAReloadChangesTheAlarmRule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n uint64
		alarm := storm.New(storm.Rule{Amplification: 10, For: 30 * time.Second, MinAttempts: 1}, func() map[storm.Subject]storm.Count {
			n++
			return map[storm.Subject]storm.Count{{Layer: "workflow", Name: "order"}: {Attempts: 5 * n, First: n}}
		}, func(storm.Change) {})
		r := &reloader{observer: &observer{alarm: alarm}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- alarm.Run(ctx) }()
		time.Sleep(2 * time.Minute)
		if got := alarm.Storms(); len(got) != 0 {
			t.Errorf("with the first rule: %v", got)
		}
		r.setCurrent(&config.Config{Alarm: storm.Rule{Amplification: 4, For: 30 * time.Second, MinAttempts: 1}})
		time.Sleep(2 * time.Minute)
		if got := alarm.Storms(); len(got) != 1 {
			t.Errorf("with the second rule: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestTheResultOfAReload(t *testing.T) {
	t.Parallel()
	redactor := new(secret.Redactor)
	redactor.Add("s3cret-value")
	r := &reloader{options: Options{Source: config.Source{Redactor: redactor}}}
	if got := r.file(); got != (admin.ConfigFile{}) {
		t.Errorf("before a reload: %+v", got)
	}
	_, err := config.Load(config.Source{Path: "t.yaml", Data: []byte("version: 1\npolicys: {}\nserver: {listen: s3cret-value}\n"), Environ: []string{"HOME=/"}, Redactor: redactor})
	r.setResult(err)
	got := r.file()
	if got.Read.IsZero() || !strings.HasPrefix(got.Problem, "t.yaml:2:1: key \"policys\" is unknown") || strings.Contains(got.Problem, "\n") || got.More != 1 {
		t.Errorf("invalid file: %+v", got)
	}
	r.setResult(errors.New("first s3cret-value\nsecond"))
	if got := r.file(); strings.Contains(got.Problem, "s3cret-value") || strings.Contains(got.Problem, "\n") {
		t.Errorf("another error: %+v", got)
	}
	r.setResult(nil)
	if got := r.file(); got.Read.IsZero() || got.Problem != "" || got.More != 0 {
		t.Errorf("valid file: %+v", got)
	}
}

func TestTheLogLineOfAFailedReload(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		errors.New("t.yaml:1:2: a\nt.yaml:3:4: b"):       `msg="the configuration was not reloaded" error="t.yaml:1:2: a; t.yaml:3:4: b" hint="tideover config check t.yaml"`,
		&noProvidersError{"t.yaml"}:                      `msg="the configuration was not reloaded" error="there are no providers: name some under providers: in t.yaml"`,
		errors.Join(errors.New("a"), errors.New("b")):    `msg="the configuration was not reloaded" error=a more=1 hint="tideover config check t.yaml"`,
		&partialError{errors.New("schedules: no space")}: `msg="the configuration was reloaded in part" error="applied in part, retrying: schedules: no space"`,
	} {
		var out strings.Builder
		r := &reloader{options: Options{Source: config.Source{Path: "t.yaml"}, Log: slog.New(slog.NewTextHandler(&out, nil))}}
		r.logError(err)
		if got := out.String(); !strings.HasSuffix(got, want+"\n") || strings.Count(got, "\n") != 1 {
			t.Errorf("%v: logged %q, want %q at its end", err, got, want)
		}
	}
}
