package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// The lengths to which texts are shortened.
const (
	shownText        = 300   // characters of a text from another party
	shownID, shownPK = 8, 12 // characters of an id, of a public key
)

func newNIP90(io Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nip90",
		Short: "Delegate tasks to providers on Nostr (NIP-90)",
		Long: `Delegates tasks to providers on Nostr (NIP-90). A request is published to relays; the
provider publishes its progress and the result. See docs/nip90.md.

Requests and results are public: anyone can read them.`,
		Example: `  tideover nip90 request --relay wss://relay.example.com --to npub1... "Write a haiku"
  tideover nip90 watch --relay wss://relay.example.com`,
	}
	cmd.AddCommand(newNIP90Request(io), newNIP90Watch(io), newNIP90Keygen(io))
	return cmd
}

// readKey reads the secret key that ref (--key, such as ${env:NOSTR_KEY}) or file (--key-file)
// names. It returns the zero key if both are empty. It rejects a key on the command line, because
// other users of the machine can see it in the list of processes.
func readKey(ref, file string, redactor *secret.Redactor) (key nostr.SecretKey, err error) {
	var where secret.Ref
	flag := "--key"
	switch {
	case ref != "" && file != "":
		return key, errors.New("--key and --key-file can't be used together: give one of them")
	case ref != "":
		if where, err = secret.ParseRef(ref); err != nil {
			return key, errors.New("--key: not a reference: want ${env:NOSTR_KEY} or ${file:path}; the key itself would be visible in the list of processes")
		}
	case file != "":
		flag, where = "--key-file", secret.Ref{Kind: "file", Name: file}
	default:
		return key, nil
	}
	text, err := secret.Resolver{Redactor: redactor}.Resolve(where, "")
	if err == nil {
		key, err = nostr.ParseSecretKey(strings.TrimSpace(text.Reveal()))
	}
	if err != nil {
		return nostr.SecretKey{}, fmt.Errorf("%s: %w", flag, err)
	}
	return key, nil
}

// shortText shortens a text from another party and makes control characters visible.
func shortText(text string) string { return textfmt.ClipWithin(visible(text), shownText, "…") }

// shortKey returns the beginning of a public key.
func shortKey(npub string) string { return textfmt.ClipWithin(npub, shownPK, "…") }

// completeKinds makes the flag --kind complete the default kind of requests.
func completeKinds(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("kind", completeWords([]string{fmt.Sprint(dvm.DefaultKind)}))
}

// relayFlags holds the flag --relay of commands that connect to relays.
type relayFlags struct{ relays []string }

func (r *relayFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&r.relays, "relay", "r", nil, "`URL` of a relay, wss://...; can be repeated")
	_ = cmd.RegisterFlagCompletionFunc("relay", cobra.FixedCompletions([]cobra.Completion{"wss://"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// client returns a client for the relays of --relay. It reports problems of relays to warn, and
// passes received events to handle.
func (r *relayFlags) client(key nostr.SecretKey, warn func(string, ...any), handle func(*nostr.Event) error) (*nostr.Client, error) {
	if len(r.relays) == 0 {
		return nil, errors.New("--relay: no relay given: name at least one, such as wss://relay.example.com")
	}
	client, err := nostr.NewClient(nostr.ClientConfig{
		Relays: r.relays, Key: key, Overlap: nip90client.ClockSlip, Logger: slog.New(&relayLog{warn: warn}),
		Handle: func(_ string, e *nostr.Event) error { return handle(e) },
	})
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "relays[", "--relay["))
	}
	return client, nil
}

// startClient runs the client in the background until end is called. end waits until the client has
// stopped.
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
	warn  func(string, ...any)
	relay string // URL of the relay, from the attributes of the logger
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
	l.warn("%s", shortText(fmt.Sprintf("%s: %s", l.relay, text)))
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
