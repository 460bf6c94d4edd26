package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
)

// relayFlags holds the flag --relay of commands that connect to relays.
type relayFlags struct{ relays []string }

func (r *relayFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&r.relays, "relay", "r", nil, "`URL` of a relay, wss://...; can be repeated")
	_ = cmd.RegisterFlagCompletionFunc("relay", cobra.FixedCompletions([]cobra.Completion{"wss://"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// client returns a client for the relays. It reports problems of relays with say, and passes events
// to take.
func (r *relayFlags) client(key nostr.SecretKey, say func(string, ...any), take func(*nostr.Event) error) (*nostr.Client, error) {
	if len(r.relays) == 0 {
		return nil, errors.New("--relay: no relay given: name at least one, such as wss://relay.example.com")
	}
	client, err := nostr.NewClient(nostr.ClientConfig{
		Relays: r.relays, Key: key, Overlap: nip90client.ClockSlip, Logger: slog.New(&relayLog{say: say}),
		Handle: func(_ string, e *nostr.Event) error { return take(e) },
	})
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "relays[", "--relay["))
	}
	return client, nil
}

// startClient runs the client until the returned function is called.
func startClient(client *nostr.Client) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = client.Run(ctx) // returns only when ctx ends
	}()
	return func() { cancel(); <-done }
}

// relayLog is a log handler that prints warnings of the client as lines of text.
type relayLog struct {
	say   func(string, ...any)
	relay string
}

// Enabled implements [slog.Handler]: only warnings and errors are printed.
func (*relayLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (l *relayLog) Handle(_ context.Context, rec slog.Record) error {
	text := rec.Message
	rec.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "error", "answer":
			text += ": " + a.Value.String()
		case "wait":
			text += "; retrying in " + textfmt.ReadableDuration(a.Value.Duration())
		}
		return true
	})
	l.say("%s", shortText(fmt.Sprintf("%s: %s", l.relay, text)))
	return nil
}

// WithAttrs implements [slog.Handler].
func (l *relayLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	of := *l
	for _, a := range attrs {
		if a.Key == "relay" {
			of.relay = a.Value.String()
		}
	}
	return &of
}

// WithGroup implements [slog.Handler]. Groups are ignored.
func (l *relayLog) WithGroup(string) slog.Handler { return l }
