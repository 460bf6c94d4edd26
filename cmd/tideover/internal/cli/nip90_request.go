package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// requestOptions holds the flags of nip90 request.
type requestOptions struct {
	resultPrinter
	relayFlags
	to, timeout    singleFlag
	kind           int
	bid            int64
	inputs, params []string
	key, keyFile   string
	wait           duration
	detach         bool
}

const requestLong = `Sends a task to a provider, shows its progress, and prints the result.

The request is published to all relays until at least one has accepted it. A relay
that rejects it is named with its reason. Feedback of the provider goes to standard
error. The result goes to standard output, unchanged; on a terminal, control
characters are made visible. Only answers that the provider has signed count. If a
relay disconnects, the command reconnects and fetches the answers that it missed.

TASK is the text of the request, or - for standard input, at most 64 KiB. Anyone can
read it. Without --key and --key-file, a new key is used for this request.

An interrupt cancels the request, waits a moment for the provider to confirm, and
ends; a second interrupt ends at once.

With --json each line is an object with a type: first sent, with id, relays and
the reply of each; then feedback, with status, message, retry, progress, eta_s; then
result, with status, content, runtime_ms, error; and end, with ending, code and
message. docs/nip90.md lists all fields.`

const requestExample = `  tideover nip90 request --relay wss://relay.example.com --to npub1... "Write a haiku about rain"

  # an input, a parameter, at most two minutes for an attempt
  tideover nip90 request -r wss://a.example.com -r wss://b.example.com --to npub1... \
    --input https://example.com/article,url --param lang=de --timeout 2m "Translate it"

  # the task from a pipe, with your own key, and the result into a file
  cat task.txt | tideover nip90 request -r wss://a.example.com --to npub1... --key '${env:NOSTR_KEY}' - > answer.txt

  # only the error, if there is one
  tideover nip90 request -r wss://a.example.com --to npub1... --json "..." | jq 'select(.type == "result").error'`

func newNIP90Request(io Streams) *cobra.Command {
	o := &requestOptions{resultPrinter: resultPrinter{io: io}, wait: duration(10 * time.Minute)}
	cmd := &cobra.Command{
		Use:               "request [flags] TASK",
		Short:             "Send a task to a provider and wait for the result",
		Long:              requestLong,
		Example:           requestExample,
		Args:              exactlyOne("task"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.detach && cmd.Flags().Changed("wait") {
				return errors.New("--detach and --wait can't be used together: give one of them")
			}
			ask, key, err := o.buildRequest()
			if err != nil {
				return err
			}
			return o.run(cmd, ask, key, args[0])
		},
	}
	o.flags(cmd)
	return exits{
		codeSuccess:    "the result was printed",
		CodeFailed:     "the provider failed; its code and message are on standard error",
		codeCanceled:   "the provider reports that the request was canceled",
		codeNoAnswer:   "no result within --wait; the provider may still be working",
		codePartial:    "the result is only partial; it is on standard output",
		codeUnreadable: "no relay delivers the answers; the replies are on standard error",
		codeTimeout:    "the provider exceeded the time limit of an attempt",
		CodeOwn:        "tideover's own error: a bad flag, and nothing was sent; or no relay accepted the request",
	}.declare(cmd)
}

func (o *requestOptions) flags(cmd *cobra.Command) {
	f := orderedFlags(cmd)
	o.to.kind, o.timeout.kind = "npub", "duration"
	o.register(cmd)
	f.Var(&o.to, "to", "public key of the provider, npub1... or 64 hex digits")
	groupFlags(f, "Provider", "relay", "to")
	f.IntVarP(&o.kind, "kind", "k", dvm.DefaultKind, "`kind` of the request, 5000 to 5999")
	f.Var(&o.timeout, "timeout", "time limit of an attempt, in whole seconds; the provider may reduce it (default: the provider's, usually 30s)")
	f.Int64Var(&o.bid, "bid", 0, "maximum price in thousandths of a satoshi (`msat`); this command pays nothing")
	f.StringArrayVarP(&o.inputs, "input", "i", nil, "input of the job, as `DATA[,type]`; types are text, url, event, job; can be repeated")
	f.StringArrayVar(&o.params, "param", nil, "parameter of the job, as `name=value`; can be repeated")
	f.StringVar(&o.key, "key", "", "your secret key, by `reference`: ${env:NOSTR_KEY} or ${file:path}")
	f.StringVar(&o.keyFile, "key-file", "", "`file` with your secret key, as keygen --out writes it")
	groupFlags(f, "Task", "kind", "timeout", "bid", "input", "param", "key", "key-file")
	f.Var(&o.wait, "wait", "how long to wait for the result, and before that for a relay to accept the request")
	f.BoolVar(&o.detach, "detach", false, "print the id of the request when a relay has accepted it, and do not wait for the result")
	f.BoolVarP(&o.json, "json", "j", false, "print JSON, one object per line")
	groupFlags(f, "Waiting and output", "wait", "detach", "json")
	setGroupedHelp(cmd, "Provider", "Task", "Waiting and output")
	completeKinds(cmd)
	completeNoFiles(cmd, "to", "bid", "input", "param", "timeout", "wait")
	_ = cmd.RegisterFlagCompletionFunc("key", cobra.FixedCompletions([]cobra.Completion{"${env:", "${file:"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	_ = cmd.MarkFlagFilename("key-file")
}

// buildRequest builds the request from the flags, without its task, and returns the key to sign it
// with. The error lists all flags that are wrong.
func (o *requestOptions) buildRequest() (*nip90client.Ask, nostr.SecretKey, error) {
	ask := &nip90client.Ask{Kind: o.kind}
	var errs flagErrors
	var err error
	if ask.Provider, err = nostr.ParsePublicKey(o.to.text); !o.to.given {
		err = errors.New("no provider given: want its public key")
	}
	errs.add("to", err)
	errs.add("kind", nip90client.CheckKind(ask.Kind))
	ask.Timeout, err = readTimeout(&o.timeout)
	errs.add("timeout", err)
	if ask.Bid = o.bid; o.bid < 0 {
		errs.add("bid", fmt.Errorf("%d is negative", o.bid))
	}
	if o.wait <= 0 {
		errs.add("wait", errors.New("must be longer than 0"))
	}
	for _, text := range o.inputs {
		in, err := nip90client.ParseInput(text)
		errs.add("input", err)
		ask.Inputs = append(ask.Inputs, in)
	}
	for _, text := range o.params {
		p, err := nip90client.ParseParam(text)
		errs.add("param", err)
		ask.Params = append(ask.Params, p)
	}
	key, err := readKey(o.key, o.keyFile, new(secret.Redactor))
	return ask, key, errors.Join(append(errs, err)...)
}

// readTimeout parses a timeout of at least 1 s. It returns 0 if the flag is not given.
func readTimeout(text *singleFlag) (time.Duration, error) {
	var d duration
	switch err := d.Set(text.text); {
	case !text.given:
		return 0, nil
	case err != nil:
		return 0, err
	case d == 0:
		return 0, errors.New("0s is too short: want 1s or more")
	}
	return time.Duration(d), nip90client.CheckTimeout(time.Duration(d))
}

// readTask returns text, or the contents of standard input if text is -. It stops reading when the
// task is too long.
func readTask(text string, stdin *os.File) (string, error) {
	if text != "-" {
		return text, nil
	}
	data, err := io.ReadAll(io.LimitReader(stdin, nostr.MaxContent+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the task from standard input: %w", err)
	case len(data) > nostr.MaxContent:
		return "", fmt.Errorf("the task on standard input is too long: want at most %d bytes", nostr.MaxContent)
	}
	return string(data), nil
}

// run sends the request and prints its progress and result.
func (o *requestOptions) run(cmd *cobra.Command, ask *nip90client.Ask, key nostr.SecretKey, task string) error {
	report := &jobReporter{resultPrinter: &o.resultPrinter, draw: process.IsTerminal(o.io.Err)}
	ephemeral := key.IsZero()
	if ephemeral {
		var err error
		if key, err = nostr.GenerateKey(); err != nil {
			return &codedError{err, CodeOwn}
		}
	}
	var inbox *nip90client.Inbox // set before the client runs
	client, err := o.client(key, report.printNotice, func(e *nostr.Event) error { return inbox.Put(e) })
	if err != nil {
		return err
	}
	ask.Relays = client.Relays() // URLs without credentials, because the request is public
	if ask.Task, err = readTask(task, o.io.In); err != nil {
		return err
	}
	request, err := ask.Event(key, time.Now())
	if err != nil {
		return err
	}
	inbox = nip90client.NewInbox(nip90client.Answers(request))
	if ephemeral && !o.json {
		report.printNotice("no --key: the request is signed with a new key that is not stored")
	}
	return report.trackRequest(cmd.Context(), client, request, &nip90client.Customer{
		Link: nip90client.Over(client), Inbox: inbox, Key: key, Wait: time.Duration(o.wait), Detach: o.detach,
	})
}

// trackRequest publishes the request and prints the answers, until the request ends or a signal
// arrives.
func (p *jobReporter) trackRequest(parent context.Context, client *nostr.Client, request *nostr.Event, c *nip90client.Customer) error {
	c.Sent = func(list []nostr.Receipt) { p.printSent(request, list) }
	c.Show = p.printAnswer
	c.Taken = func() {
		p.printNotice("canceling request %s; interrupt again to end at once", request.ID[:shownID])
	}
	ctx, stop := contextUntilSignal(parent)
	defer stop()
	end := startClient(client)
	defer end()
	out, err := c.Ask(ctx, request)
	if err != nil {
		return &codedError{err, CodeOwn}
	}
	return p.printEnd(request, &out, context.Cause(ctx))
}
