package notify_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/retry"
)

func ExampleCompose() {
	m, ok := notify.Compose(retry.Event{
		Kind: retry.GaveUp, Name: "nightly-refactor", Time: time.Now(), Attempt: 5, Attempts: 5,
		Elapsed: 42 * time.Minute, Reason: retry.StopAttempts, Err: errors.New("exit code 1: API Error: overloaded"),
	}, notify.Place{Host: "box"})
	fmt.Println(ok, m.Title)
	fmt.Println(m.Text)
	// Output:
	// true nightly-refactor gave up
	// 5 attempts in 42m; last: exit code 1: API Error: overloaded
}

func ExampleGate() {
	gate := notify.NewGate(&notify.Spec{AtMost: notify.Rate{N: 1, Per: time.Hour}})
	now := time.Date(2026, 1, 2, 14, 0, 0, 0, time.UTC)
	for _, subject := range []string{"a", "b", "c", "d"} {
		m, held := gate.Admit(notify.Message{Event: notify.GaveUp, Subject: subject, Text: subject + " gave up"}, now)
		if held == notify.NotHeld {
			fmt.Println(m.Text)
		}
		now = now.Add(20 * time.Minute)
	}
	// Output:
	// a gave up
	// d gave up
	// and 2 more since 14:20
}

func ExampleSender() {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		fmt.Println(r.Header.Get("Title") + ": " + string(text))
	}))
	defer server.Close()
	cfg, err := config.Load(config.Source{
		Path: "/etc/tideover.yaml", Data: []byte("version: 1\nnotify: {phone: {ntfy: " + server.URL + "/topic}}\n"), Environ: []string{"HOME=/home/me"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	sender, err := notify.New(cfg.Notifiers["phone"], notify.Env{Secrets: cfg.Secrets()})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = sender.Send(context.Background(), notify.Message{Event: notify.GaveUp, Title: "nightly gave up", Text: "5 attempts in 42m"})
	fmt.Println(err)
	// Output:
	// nightly gave up: 5 attempts in 42m
	// <nil>
}

// A mail to several recipients may reach only some of them. The next attempt sends it to
// the others.
func ExampleSendError_Progress() {
	send := func(ctx context.Context, sender *notify.Sender, runner *retry.Runner, m notify.Message) error {
		return runner.Do(ctx, func(ctx context.Context) error {
			err := sender.Send(ctx, m)
			if e, ok := errors.AsType[*notify.SendError](err); ok {
				m = e.Progress()
			}
			return err
		})
	}
	_ = send
}
