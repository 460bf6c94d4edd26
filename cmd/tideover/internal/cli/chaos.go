package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/chaos"
	"github.com/tideover/tideover/cmd/tideover/internal/chaosfile"
	"github.com/tideover/tideover/internal/textfmt"
)

// chaosOptions holds the flags of chaos.
type chaosOptions struct {
	listen             string
	remote, tls        bool
	seed               uint64
	file, preset, cert string
	quiet, json        bool
}

const chaosLong = `Runs an HTTP server that fails on purpose, to test clients. It answers HTTP/1.1
and HTTP/2 on one port, with the faults that SPEC describes. It prints its URL
on the first line, then one line for each request. SIGINT or SIGTERM ends it
with a summary. Without SPEC, --file and --preset it answers every request with
200.

The line of a request has the time since the start, the number of the request,
method, path, and answer. If the script did not choose the answer, the line says
what did: random, over (a limit), down (an outage) or unmatched (no rule). The
summary counts all requests and, for each rule, its requests and how often each
answer was given. Times and counts start over when the rules are set or reset.

A SPEC is a list of rules, separated by semicolons; the first rule that matches a
request applies. A rule is [MATCH:] and words:
  503,503,200             a script: the answers in order; the last is repeated
  429x3,200 cycle         an answer three times; cycle restarts the script
  fail=20% reset=1%       probabilities, drawn from the seed
  delay=50ms..200ms       before the answer; or p50:100ms..p99:2s
  concurrent=8 rate=20/s  limits; above them over=429(retry-after=due);
                          service=50ms+10ms is the time for one request, and
                          the extra time for each concurrent one
  down 30s every 5m       or down from 10s to 25s; as refuse, 503, hang, reset ...
  per=x-request-id        a separate script for each value of the header
MATCH is * or a method, the beginning of a path, and header(NAME=VALUE).

An answer is a status, or hang, reset, close, malformed, fail, with options in
parentheses:
  429(retry-after=2)      or imf:2s, rfc850:2s, epoch:2s, garbage, huge ...
  200(body="hi")          or echo, openai, anthropic, 64KiB; auto goes by the path
  200(cut=50%)            or stall=50%, reset=50%, dribble=10/100ms, chunked
  200(stream=openai events=20 every=50ms error-at=first)
  413(early)              read=1KiB/100ms, padding=16MiB, delay=2s, error=CODE
docs/chaos-reference.md lists all of them.

Presets, for --preset:
PRESETS

The server has a control API below /_chaos/, for this machine only: GET stats,
GET spec, POST spec with new rules, POST reset.

With --json each line is an object: the first has url, control, spec and
certificate; one per request has number, at_ns, method, path, proto, rule, nth,
answer, status and by; the last has summary, in the format of GET stats.`

const chaosExample = `  tideover chaos 503,503,200
  tideover chaos '/v1/messages: 429(retry-after=2)x2,200; *: fail=20% delay=50ms..200ms'
  tideover chaos --preset flaky-llm --listen 127.0.0.1:8080
  tideover chaos --file chaos.yaml --seed 7 --quiet
  tideover chaos --tls --cert chaos.pem 200     # curl --cacert chaos.pem ...
  curl -d '503x2,200' http://127.0.0.1:8080/_chaos/spec
  curl -s http://127.0.0.1:8080/_chaos/stats | jq .requests`

func newChaos(io Streams) *cobra.Command {
	var o chaosOptions
	cmd := &cobra.Command{
		Use:               "chaos [flags] [SPEC...]",
		Short:             "Run a server that fails on purpose, to test clients",
		Long:              strings.Replace(chaosLong, "PRESETS\n", hangingList(chaos.Presets, "  %-10s"), 1),
		Example:           chaosExample,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := o.spec(args)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("seed") {
				spec.Seed = o.seed
			}
			return o.run(cmd.Context(), io, spec)
		},
	}
	f := orderedFlags(cmd)
	f.StringVar(&o.preset, "preset", "", "add the rules of the preset `NAME` after those of SPEC")
	f.StringVarP(&o.file, "file", "f", "", "add the rules in `FILE` after those of SPEC: YAML if the name ends in .yaml, .yml or .json, else text")
	f.Uint64Var(&o.seed, "seed", 0, "seed `N` of the random numbers; the same seed gives the same faults")
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "`address` to listen on; port 0 picks a free one")
	f.BoolVar(&o.remote, "allow-remote", false, "listen on an address that other machines can reach")
	f.BoolVar(&o.tls, "tls", false, "use TLS with a new self-signed certificate")
	f.StringVar(&o.cert, "cert", "", "write that certificate to `FILE`, for clients to trust")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not print a line for each request")
	f.BoolVarP(&o.json, "json", "j", false, "print JSON")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml", "json", "txt")
	_ = cmd.MarkFlagFilename("cert", "pem")
	completeNoFiles(cmd, "listen", "seed")
	_ = cmd.RegisterFlagCompletionFunc("preset", completeNames(chaos.Presets, cobra.ShellCompDirectiveNoFileComp))
	return exitsServer.declare(cmd)
}

// spec returns the rules to serve: the rules in args, followed by the rules of --file or --preset.
// Without any of them, one rule answers every request with 200.
func (o *chaosOptions) spec(args []string) (spec chaos.Spec, err error) {
	if o.cert != "" && !o.tls {
		return spec, errors.New("--cert needs --tls: without it there is no certificate")
	}
	if o.file != "" && o.preset != "" {
		return spec, errors.New("--file and --preset can't be used together: give one of them")
	}
	if len(args) > 0 {
		if spec, err = chaos.Parse(strings.Join(args, "\n")); err != nil {
			return spec, hintMissingQuotes(args, err)
		}
	}
	var more chaos.Spec
	switch {
	case o.preset != "":
		if more, err = chaos.Preset(o.preset); err != nil {
			return spec, fmt.Errorf("--preset: %w", err)
		}
	case o.file != "":
		if more, err = readChaos(o.file); err != nil {
			return spec, fmt.Errorf("--file: %w", err)
		}
	case len(args) == 0:
		more = chaos.MustParse("200")
	}
	spec.Seed = cmp.Or(spec.Seed, more.Seed)
	spec.Rules = append(spec.Rules, more.Rules...)
	return spec, spec.Validate()
}

// hintMissingQuotes adds a hint to err if a rule was probably split into several arguments because
// it was not quoted.
func hintMissingQuotes(args []string, err error) error {
	for i, arg := range args {
		if i > 0 && !strings.Contains(arg, ": ") && !strings.HasSuffix(arg, ":") {
			return fmt.Errorf("%w; a rule is one argument, so put it in quotes: '%s'", err, args[i-1]+" "+arg)
		}
	}
	return err
}

// readChaos reads rules from a file: YAML or JSON by the file's extension, else the text form.
func readChaos(name string) (spec chaos.Spec, err error) {
	file, err := os.Open(name)
	if err != nil {
		return spec, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 1<<20)) // longer than any spec that the parser accepts
	if err != nil {
		return spec, err
	}
	if slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))) {
		spec, err = chaosfile.Parse(text)
	} else {
		spec, err = chaos.Parse(string(text))
	}
	if err != nil {
		return spec, fmt.Errorf("%s: %w", name, err)
	}
	return spec, nil
}

// run starts the server and serves until a signal.
func (o *chaosOptions) run(ctx context.Context, io Streams, spec chaos.Spec) error {
	p := &chaosPrinter{out: io.Out, json: o.json, screen: screenOf(io.Out), manyRules: len(spec.Rules) > 1}
	options := []chaos.Option{chaos.WithSpecParser(chaosfile.ParseAs)}
	if !o.quiet {
		options = append(options, chaos.WithObserver(p.printRequest))
	}
	if o.tls {
		options = append(options, chaos.WithTLS())
	}
	if o.remote {
		options = append(options, chaos.WithRemote())
	}
	server, err := chaos.New(spec, options...)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	signal.Ignore(syscall.SIGPIPE) // keep serving if the reader of standard output is gone
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := server.Start(o.listen); errors.Is(err, chaos.ErrRemote) {
		return fmt.Errorf("--listen: %q can be reached from other machines: add --allow-remote to permit that", o.listen)
	} else if err != nil {
		return err
	}
	certificate, err := o.certificate(server)
	if err != nil {
		return err
	}
	p.printStart(server, certificate)
	<-ctx.Done()
	stop() // a second signal ends the process at once
	stats := server.Stats()
	_ = server.Close()
	p.printSummary(stats)
	return nil
}

// certificate returns the server's certificate as PEM, and writes it to the file that --cert names.
// Without --tls it returns an empty string.
func (o *chaosOptions) certificate(server *chaos.Server) (string, error) {
	cert := server.Certificate()
	if cert == nil {
		return "", nil
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	if o.cert != "" {
		if err := os.WriteFile(o.cert, text, 0o600); err != nil {
			return "", fmt.Errorf("--cert: %w", err)
		}
	}
	return string(text), nil
}

// chaosPrinter prints the URL of the server, then a line for each request. Requests that arrive
// before the URL is printed are queued.
type chaosPrinter struct {
	out       *os.File
	json      bool
	manyRules bool // there is more than one rule
	screen    screen

	mu      sync.Mutex
	started bool
	waiting []string
	since   time.Time // since when the server has counted at the start
	counted bool      // a request was printed
}

// printStart prints the URL, and a line for each request that has arrived before.
func (p *chaosPrinter) printStart(server *chaos.Server, certificate string) {
	url, first := server.URL(), server.URL()
	if p.json {
		first = jsonLine(struct {
			URL         string `json:"url"`
			Control     string `json:"control"`
			Spec        string `json:"spec"`
			Certificate string `json:"certificate,omitempty"`
		}{url, url + "/_chaos/", server.Spec().String(), certificate})
	}
	since := server.Stats().Since
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started, p.since = true, since
	for _, text := range append([]string{first}, p.waiting...) {
		fmt.Fprintln(p.out, text)
	}
}

// jsonLine encodes a value as one line of JSON. v must be encodable.
func jsonLine(v any) string {
	text, _ := json.Marshal(v)
	return string(visibleJSON(text))
}

// printRequest prints a line for a request, or queues it until the URL is printed.
func (p *chaosPrinter) printRequest(a chaos.Arrival) {
	text := p.formatRequest(a)
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.Number == 1 && p.counted && !p.json {
		text = p.screen.paint("2", "the rules were set again: times and numbers start over") + "\n" + text
	}
	p.counted = true
	if !p.started {
		p.waiting = append(p.waiting, text)
		return
	}
	fmt.Fprintln(p.out, text)
}

// formatRequest formats a request as a line.
func (p *chaosPrinter) formatRequest(a chaos.Arrival) string {
	if p.json {
		return jsonLine(a)
	}
	answer := a.Answer
	if answer == chaos.Fail {
		answer = fmt.Sprintf("fail (%d)", a.Status)
	}
	why := ""
	if a.By != chaos.ByScript {
		why = "  " + a.By
	}
	if p.manyRules && a.Rule > 0 {
		why += fmt.Sprintf("  rule %d", a.Rule)
	}
	colour := "33"
	if a.Status >= 200 && a.Status < 400 && a.By == chaos.ByScript {
		colour = "32"
	}
	return fmt.Sprintf("%9.3fs %5d  %s %s  %s%s", a.At.Seconds(), a.Number, visible(a.Method), visible(a.Path), p.screen.paint(colour, answer), p.screen.paint("2", why))
}

// printSummary prints the totals at the end.
func (p *chaosPrinter) printSummary(s chaos.Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.json {
		s.Log = nil
		fmt.Fprintln(p.out, jsonLine(map[string]chaos.Stats{"summary": s}))
		return
	}
	gone := ""
	if s.Gone > 0 {
		gone = fmt.Sprintf("; %d abandoned by the client", s.Gone)
	}
	again := ""
	if s.Since.After(p.since) {
		again = " since the rules were set again"
	}
	fmt.Fprintf(p.out, "%s in %s%s, at most %d at once, on %s%s\n",
		textfmt.Plural(s.Requests, "request"), textfmt.CoarseDuration(time.Since(s.Since)), again, s.Peak, textfmt.Plural(s.Connections, "connection"), gone)
	t := &table{heads: []string{"RULE", "REQUESTS", "ANSWERS"}}
	for _, r := range s.Rules {
		match, _, _ := strings.Cut(r.Rule, ": ")
		t.add(plain(match), plain(fmt.Sprint(r.Requests)), plain(formatCounts(r.Answers)))
	}
	if s.Unmatched > 0 {
		t.add(plain("(none)"), plain(fmt.Sprint(s.Unmatched)), plain("404"))
	}
	fmt.Fprintln(p.out, strings.Join(t.render(&p.screen), "\n"))
}

// formatCounts formats a map of counts as "a × 2, b × 1", sorted by name.
func formatCounts(m map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s × %d", name, m[name]))
	}
	return strings.Join(list, ", ")
}
