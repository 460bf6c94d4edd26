package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// jobWatchOptions holds the flags of nip90 watch.
type jobWatchOptions struct {
	resultPrinter
	relayFlags
	provider singleFlag
	kinds    []int
	since    duration
}

const jobWatchLong = `Prints NIP-90 events on relays, one line each, until it is interrupted: requests,
feedback and results of providers, cancellations, and offers of providers (NIP-89).
Only verified events are printed, each once. If a relay disconnects, the command
reconnects.

A line has the time, the beginning of the request's id, the author and the content.
Without --provider, feedback is printed only for requests that were printed, because
feedback does not state its kind. Cancellations are selected by the kind that they
name; with --provider, only those of printed requests are shown.

With --json each line is an object with a type: request, feedback, result, cancel,
offer. docs/nip90.md lists the fields.`

const jobWatchExample = `  tideover nip90 watch --relay wss://relay.example.com
  tideover nip90 watch -r wss://relay.example.com --provider npub1... --since 1h
  tideover nip90 watch -r wss://relay.example.com --json | jq -r 'select(.type == "result").error.code'`

func newNIP90Watch(io Streams) *cobra.Command {
	o := &jobWatchOptions{resultPrinter: resultPrinter{io: io}, since: duration(10 * time.Minute)}
	cmd := &cobra.Command{
		Use:               "watch [flags]",
		Short:             "Print requests and answers as they are published",
		Long:              jobWatchLong,
		Example:           jobWatchExample,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, err := o.watch()
			if err != nil {
				return err
			}
			return o.run(cmd, w)
		},
	}
	f := orderedFlags(cmd)
	o.provider.kind = "npub"
	o.register(cmd)
	f.Var(&o.provider, "provider", "only events for or by this provider, npub1... or 64 hex digits")
	f.IntSliceVarP(&o.kinds, "kind", "k", []int{dvm.DefaultKind}, "the `kinds` of requests, 5000 to 5999")
	f.Var(&o.since, "since", "also print events of the last `duration`")
	f.BoolVarP(&o.json, "json", "j", false, "print JSON, one object per line")
	completeKinds(cmd)
	completeNoFiles(cmd, "provider", "since")
	return cmd
}

// watch returns the selection of events that the flags describe. The error lists all flags that are
// wrong.
func (o *jobWatchOptions) watch() (*nip90client.Watch, error) {
	var errs flagErrors
	w := &nip90client.Watch{Kinds: o.kinds}
	if o.provider.given {
		var err error
		w.Provider, err = nostr.ParsePublicKey(o.provider.text)
		errs.add("provider", err)
	}
	if len(o.kinds) == 0 {
		errs.add("kind", errors.New("no kind given"))
	}
	for _, k := range o.kinds {
		errs.add("kind", nip90client.CheckKind(k))
	}
	return w, errors.Join(errs...)
}

func (o *jobWatchOptions) run(cmd *cobra.Command, w *nip90client.Watch) error {
	key, err := nostr.GenerateKey() // for relays that require authentication with any key
	if err != nil {
		return &codedError{err, CodeOwn}
	}
	inbox := nip90client.NewInbox(w.Filters()...)
	client, err := o.client(key, o.warn, inbox.Put)
	if err != nil {
		return err
	}
	ctx, stop := contextUntilSignal(cmd.Context())
	defer stop()
	end := startClient(client)
	defer end()
	client.Subscribe("nip90-watch", time.Now().Add(-time.Duration(o.since)), w.Filters()...)
	err = w.Run(ctx, inbox, o.print, func(n int) {
		o.warn("%s dropped: output is too slow", textfmt.Plural(n, "event"))
	})
	if err != nil {
		return err
	}
	return coded(context.Cause(ctx))
}

func (o *jobWatchOptions) print(x *nip90client.Entry) error {
	return o.printRendered(x, func(s *screen) []string {
		line := watchLine(x, s.zone)
		if s.width > 0 {
			line = textfmt.ClipWithin(line, s.width, "…")
		}
		return []string{visible(line)}
	})
}
