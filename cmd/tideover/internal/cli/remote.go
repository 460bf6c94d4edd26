package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

// Exit codes of the commands that connect to a server, besides codeOwn.
const (
	codeDead     = 1
	codeCanceled = 2
	codeNoRun    = 3
)

// remoteServer is the part of help texts that says how the server is found. [remote.target] does it.
const remoteServer = `
The server is the first of these that is given:
  --server ADDRESS   unix:/path/to/socket, http://HOST:PORT or https://HOST:PORT
  --config FILE      the configuration of the server, which contains its address
  $TIDEOVER_SERVER   an address
  a file             $TIDEOVER_CONFIG, tideover.yaml in this folder, or
                     tideover/config.yaml in the folder for configurations
  the default        tideover/tideover.sock in $XDG_STATE_HOME or ~/.local/state
A connection over TCP needs $TIDEOVER_TOKEN. For TLS with a private certificate
authority, set $TIDEOVER_CA to a file with its certificate.`

// Lines about exit codes, for serverHelp.
const (
	exitSomeFailed      = "  1      some of the runs could not be changed"
	exitUnknownRun      = "  3      unknown run, or the name matches several"
	exitUnknownName     = "  3      unknown run or workflow, or the name matches several"
	exitUnknownWorkflow = "  3      unknown workflow (--workflow)"
	exitOwnError        = "  125    tideover's own error: a bad flag, no server, a request that the server rejected"
	exitBySignal        = "  128+n  ended by signal n"
)

// serverHelp returns the last part of the help text of a command that connects to a server: how the
// server is found, and the exit codes of this command besides 0, 125 and 128+n.
func serverHelp(codes ...string) string {
	return exitHelp(remoteServer, append(codes, exitOwnError, exitBySignal)...)
}

// exitHelp returns a text about places, followed by exit codes; the first is 0.
func exitHelp(places string, codes ...string) string {
	return places + "\n\nExit codes:\n" + strings.Join(append([]string{"  0      success"}, codes...), "\n")
}

// codedError ends the program with an exit code and a message. The message does not point to the
// help, because the command line was correct.
type codedError struct {
	err  error
	code int
}

// Error returns the message. That of a server's error lists the runs that match an ambiguous name.
func (e *codedError) Error() string {
	p, ok := errors.AsType[*control.Error](e.err)
	if !ok {
		return e.err.Error()
	}
	text := visible(p.Error())
	for _, id := range p.Candidates {
		text += "\n  " + visible(id)
	}
	return text
}

func (e *codedError) Unwrap() error { return e.err }

// remote holds the flags of the commands that connect to a server. Several commands define methods
// of remote, each in its own file.
type remote struct {
	resultPrinter
	server string
	config string // configuration of the server, which contains its address
}

func newRemote(io Streams) remote { return remote{resultPrinter: resultPrinter{io: io}} }

// command adds the common flags and the end of the help to a command, and returns it. If the
// command has no ValidArgsFunction, it takes no arguments.
func (r *remote) command(cmd *cobra.Command, help string) *cobra.Command {
	cmd.Long = strings.TrimSpace(cmd.Long) + "\n" + help
	f := orderedFlags(cmd)
	f.StringVarP(&r.server, "server", "s", "", "`address` of the server: unix:/path/to/socket, http://127.0.0.1:7878 or https://host:7878")
	f.StringVarP(&r.config, "config", "c", "", "the configuration `file` of the server, which contains its address")
	f.BoolVarP(&r.json, "json", "j", false, "print JSON")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	r.completeFlags(cmd)
	if cmd.ValidArgsFunction == nil {
		cmd.Args, cmd.ValidArgsFunction = noArguments, cobra.NoFileCompletions
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return coded(run(cmd, args)) }
	return cmd
}

// problemCodes maps errors of the server to exit codes. The exit code of all other errors is
// codeOwn.
var problemCodes = map[control.Code]int{
	control.CodeNotFound: codeNoRun, control.CodeAmbiguous: codeNoRun,
	control.CodeDead: codeDead, control.CodeReplaced: codeDead, control.CodeCanceled: codeCanceled,
}

// coded returns err with its exit code, if it comes from the server, from the connection, or from a
// signal. It returns any other error unchanged.
func coded(err error) error {
	if p, ok := errors.AsType[*control.Error](err); ok {
		return &codedError{err, cmp.Or(problemCodes[p.Code], codeOwn)}
	}
	if _, unlocated := errors.AsType[*unlocatedError](err); unlocated || unreachable(err) {
		return &codedError{err, codeOwn}
	}
	if t, ok := errors.AsType[*interruptedError](err); ok {
		return exitError{Code: 128 + int(t.signal), Signal: t.signal}
	}
	return err
}

// dial returns a client for the server.
func (r *remote) dial() (*client.Client, error) {
	target, err := r.target()
	if err != nil {
		return nil, err
	}
	return r.dialTo(target)
}

func (r *remote) dialTo(target client.Target) (*client.Client, error) {
	target.By = httpserver.LocalName()
	c, err := client.Dial(target)
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	c.OnReconnect = func(err error, wait time.Duration) {
		if err != nil && wait > time.Second {
			r.warn("%s; retrying in %s", err, textfmt.ReadableDuration(wait))
		}
	}
	return c, nil
}

// target returns the address of the server, in the order of remoteServer: that of --server or
// --config, else $TIDEOVER_SERVER, else the socket in the configuration at a default place, else the
// default socket. It returns an
// error if the configuration can't be read, because the default may be the address of another
// server.
func (r *remote) target() (client.Target, error) {
	server := r.server
	if server != "" && r.config != "" {
		return client.Target{}, errors.New("--server and --config both name a server: give one of them")
	}
	if server == "" && (r.config != "" || os.Getenv(client.ServerVar) == "") {
		socket, _, err := configuredPaths(r.config)
		if err != nil {
			return client.Target{}, err
		}
		if socket != "" {
			server = "unix:" + socket
		}
	}
	return client.TargetOf(server, os.Getenv)
}

// configuredPaths returns the socket and the data folder that a configuration file sets. If file is
// empty, it uses the configuration at a default place. It ignores errors in the rest of the file.
// Both results are empty if there is neither a file nor a home folder.
func configuredPaths(file string) (socket, data string, err error) {
	src, err := (&configFlags{path: file}).source(new(secret.Redactor))
	if err != nil {
		return "", "", &unlocatedError{err}
	}
	if socket, data, err = config.Locate(src); err != nil && src.Path == "" {
		return "", "", nil
	} else if err != nil {
		return "", "", &unlocatedError{err}
	}
	return socket, data, nil
}

// unlocatedError says why the address of the server can't be read from the configuration.
type unlocatedError struct{ err error }

// Error returns one line: the first problem of the configuration, without the excerpt from the
// file.
func (e *unlocatedError) Error() string {
	text := e.err.Error()
	if problems, ok := errors.AsType[strictyaml.FieldErrors](e.err); ok && len(problems) > 0 {
		first := *problems[0]
		first.Excerpt = ""
		text = first.Error()
	}
	return text + "; the address of the server is unknown: name it with --server"
}

func (e *unlocatedError) Unwrap() error { return e.err }

// interruptedError is the cause of a context that ended because of a signal.
type interruptedError struct{ signal syscall.Signal } //nolint:errname // not a failure

func (t *interruptedError) Error() string { return "ended by a signal" }

// contextUntilSignal returns a context that ends with the first SIGINT or SIGTERM. A second one
// ends the process.
func contextUntilSignal(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			signal.Stop(signals)
			sig, _ := s.(syscall.Signal)
			cancel(&interruptedError{sig})
		case <-ctx.Done():
			signal.Stop(signals)
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// withClient connects to the server and calls do.
func (r *remote) withClient(cmd *cobra.Command, do func(ctx context.Context, c *client.Client) error) error {
	c, err := r.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := contextUntilSignal(cmd.Context())
	defer stop()
	return do(ctx, c)
}

// query returns the RunE function of a command that prints a value from the server. get fetches the
// value, and render formats it as lines.
func query[T any](
	r *remote, get func(ctx context.Context, c *client.Client, args []string) (T, error), render func(T, *screen) []string,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return r.withClient(cmd, func(ctx context.Context, c *client.Client) error {
			v, err := get(ctx, c, args)
			return printFetched(&r.resultPrinter, v, err, render)
		})
	}
}

// resultPrinter prints the result of a command.
type resultPrinter struct {
	io   Streams
	json bool // --json is given
}

// printRendered prints a value: with --json as a line of JSON, otherwise the lines that render returns.
func (p *resultPrinter) printRendered(v any, render func(*screen) []string) error {
	if p.json {
		return p.printJSON(v)
	}
	s := screenOf(p.io.Out)
	_, err := p.io.Out.WriteString(strings.Join(render(&s), "\n") + "\n")
	return err
}

// printFetched prints a value like printRendered. If err is not nil, it prints nothing and returns
// err.
func printFetched[T any](p *resultPrinter, v T, err error, render func(T, *screen) []string) error {
	if err != nil {
		return err
	}
	return p.printRendered(v, func(s *screen) []string { return render(v, s) })
}

// printJSONOrLine prints a value: with --json as a line of JSON, otherwise as a line of text.
func (p *resultPrinter) printJSONOrLine(v any, format string, args ...any) error {
	if p.json {
		return p.printJSON(v)
	}
	return p.printLine(format, args...)
}

// printJSON prints a value as a line of JSON.
func (p *resultPrinter) printJSON(v any) error { return writeJSON(p.io.Out, v) }

// writeJSON writes a value as a line of JSON.
func writeJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(visibleJSON(text), '\n'))
	return err
}

// printLine prints a line to standard output, with control characters made visible.
func (p *resultPrinter) printLine(format string, args ...any) error {
	_, err := fmt.Fprintln(p.io.Out, visible(fmt.Sprintf(format, args...)))
	return err
}

// warnSilentShards warns that the list lacks the runs of shards that did not answer. It prints
// nothing if shards is empty.
func (p *resultPrinter) warnSilentShards(shards []int) {
	if text := control.Silent(shards); text != "" {
		p.warn("%s", text)
	}
}

// warnLines is warn for a text of several lines, such as an error with an excerpt of a file.
func (p *resultPrinter) warnLines(text string) {
	if p.json {
		p.warn("%s", text)
		return
	}
	fmt.Fprintf(p.io.Err, "tideover: warning: %s\n", visibleLines(text))
}

// warn prints a line to standard error: with --json as {"warning": {"message": "…"}}.
func (p *resultPrinter) warn(format string, args ...any) {
	if p.json {
		_ = writeJSON(p.io.Err, map[string]any{"warning": map[string]string{"message": fmt.Sprintf(format, args...)}})
		return
	}
	fmt.Fprintf(p.io.Err, "tideover: %s\n", visible(fmt.Sprintf(format, args...)))
}
