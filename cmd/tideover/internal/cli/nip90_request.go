package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// requestOptions is what the flags of nip90 request say.
type requestOptions struct {
	remote
	relayFlags
	to      once
	kind    int
	timeout once
	bid     int64
	inputs  []string
	params  []string
	key     string
	keyFile string
	wait    duration
	detach  bool
}

const requestLong = `Asks a provider to do a task, shows how it goes, and prints the result.

The answers are subscribed to first; then the request is published to all relays,
again and again until at least one has taken it. A relay that refuses it, for now or
for good, is named with its reason. What the provider says meanwhile goes to standard
error, the result to standard output, as it is; on a terminal, characters that would
do something to it are made visible. An answer counts only if the provider has signed
it. Should relays go away, they are waited for, and what was said meanwhile is asked
for.

TASK is the text of the request, or - for standard input, at most 64 KiB. Everybody
can read it. Without --key and --key-file a key is made for this one request.

An interrupt takes the request back, waits a moment for the provider to say that it
has stopped, and ends; a second one does not wait.

With --json each line is an object, with a type: first sent, with id, relays and
what each said; then feedback, with status, message, retry, progress, eta_s; then
result, with status, content, runtime_ms, error; and end, with ending, code and
message. docs/nip90.md has them all.

Exit codes:
  0      there is a result
  1      the provider could not do it; its code and message are on standard error
  2      the provider says that the request was cancelled
  3      no relay took the request; what each said is on standard error
  4      there was no result within --wait; the provider may still be at it
  5      the result is a part only; it is on standard output
  6      no relay lets us read the answers; what each said is on standard error
  124    the provider could not do it in the time that an attempt may take
  125    an error of ours: a bad flag, and nothing was sent
  128+n  signal n told us to end`

const requestExample = `  tideover nip90 request --relay wss://relay.example.com --to npub1... "Write a haiku about rain"

  # an input, a parameter, at most two minutes for an attempt
  tideover nip90 request -r wss://a.example.com -r wss://b.example.com --to npub1... \
    --input https://example.com/article,url --param lang=de --timeout 2m "Translate it"

  # from a pipe, as a customer who is known, and into a file
  cat task.txt | tideover nip90 request -r wss://a.example.com --to npub1... --key '${env:NOSTR_KEY}' - > answer.txt

  # only what failed, and why
  tideover nip90 request -r wss://a.example.com --to npub1... --json "..." | jq 'select(.type == "result").error'`

func newNIP90Request(io Streams) *cobra.Command {
	o := &requestOptions{remote: remote{io: io}, wait: duration(10 * time.Minute)}
	cmd := &cobra.Command{
		Use:                   "request [flags] TASK",
		Short:                 "Ask a provider to do a task, and wait for the result",
		Long:                  requestLong,
		Example:               requestExample,
		DisableFlagsInUseLine: true,
		Args:                  one("task"),
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.detach && cmd.Flags().Changed("wait") {
				return errors.New("--detach and --wait: one of them is enough")
			}
			ask, key, err := o.ask()
			if err != nil {
				return err
			}
			return o.run(cmd, ask, key, args[0])
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *requestOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	o.to.kind, o.timeout.kind = "npub", "duration"
	o.register(cmd)
	f.Var(&o.to, "to", "public key of the provider, npub1... or 64 hex digits")
	group(f, "Whom to ask", "relay", "to")
	f.IntVarP(&o.kind, "kind", "k", dvm.DefaultKind, "`kind` of the request, 5000 to 5999")
	f.Var(&o.timeout, "timeout", "how long an attempt may take, whole seconds; the provider may cut it (default: the provider's, usually 30s)")
	f.Int64Var(&o.bid, "bid", 0, "the most that you would pay, in thousandths of a satoshi (`msat`); nothing is paid by this command")
	f.StringArrayVarP(&o.inputs, "input", "i", nil, "what to work on, as `DATA[,type]`; types are text, url, event, job; may be given again")
	f.StringArrayVar(&o.params, "param", nil, "a parameter of the job, as `name=value`; may be given again")
	f.StringVar(&o.key, "key", "", "your secret key, by `reference`: ${env:NOSTR_KEY} or ${file:path}")
	f.StringVar(&o.keyFile, "key-file", "", "`file` with your secret key, as keygen --out writes it")
	group(f, "What to ask", "kind", "timeout", "bid", "input", "param", "key", "key-file")
	f.Var(&o.wait, "wait", "how long to wait for the result, and before that for a relay to take the request")
	f.BoolVar(&o.detach, "detach", false, "print the id of the request when a relay has taken it, and do not wait for the result")
	f.BoolVar(&o.json, "json", false, "print JSON, one object on a line")
	group(f, "How to wait", "wait", "detach", "json")
	groupedHelp(cmd, "Whom to ask", "What to ask", "How to wait")
	completeKinds(cmd)
	for _, name := range []string{"to", "bid", "input", "param", "timeout", "wait"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	_ = cmd.RegisterFlagCompletionFunc("key", cobra.FixedCompletions([]cobra.Completion{"${env:", "${file:"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	_ = cmd.MarkFlagFilename("key-file")
}

// ask puts the request together, without its task. All that is wrong is said at
// once.
func (o *requestOptions) ask() (*nip90client.Ask, nostr.SecretKey, error) {
	ask := &nip90client.Ask{Kind: o.kind}
	var errs []error
	flag := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", name, err))
		}
	}
	var err error
	if !o.to.given {
		flag("to", errors.New("whom? name the provider by its public key"))
	} else {
		ask.Provider, err = nostr.ParsePublicKey(o.to.text)
		flag("to", err)
	}
	flag("kind", nip90client.CheckKind(ask.Kind))
	ask.Timeout, err = readTimeout(&o.timeout)
	flag("timeout", err)
	if ask.Bid = o.bid; o.bid < 0 {
		flag("bid", fmt.Errorf("%d is negative", o.bid))
	}
	if o.wait <= 0 {
		flag("wait", errors.New("it must be longer than 0"))
	}
	for _, text := range o.inputs {
		in, err := nip90client.ParseInput(text)
		flag("input", err)
		ask.Inputs = append(ask.Inputs, in)
	}
	for _, text := range o.params {
		p, err := nip90client.ParseParam(text)
		flag("param", err)
		ask.Params = append(ask.Params, p)
	}
	key, err := readKey(o.key, o.keyFile, new(secret.Redactor))
	return ask, key, errors.Join(append(errs, err)...)
}

// readTimeout reads a timeout, which if it is given is not 0.
func readTimeout(text *once) (time.Duration, error) {
	var d duration
	switch err := d.Set(text.text); {
	case !text.given:
		return 0, nil
	case err != nil:
		return 0, err
	case d == 0:
		return 0, errors.New("0s is not 1s or more")
	}
	return time.Duration(d), nip90client.CheckTimeout(time.Duration(d))
}

// readTask returns the task, which - says is on standard input. It is read only as
// far as is needed to know that it is too long.
func readTask(text string, stdin *os.File) (string, error) {
	if text != "-" {
		return text, nil
	}
	data, err := io.ReadAll(io.LimitReader(stdin, nostr.MaxContent+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("the task on standard input: %w", err)
	case len(data) > nostr.MaxContent:
		return "", fmt.Errorf("the task on standard input has more than %d bytes", nostr.MaxContent)
	}
	return string(data), nil
}
