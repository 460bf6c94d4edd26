package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

// Exit codes of the verbs that ask a server, besides codeOwn.
const (
	codeDead     = 1
	codeCanceled = 2
	codeNoRun    = 3
)

const remoteCodes = `
Exit codes:
  0      done
  1      the run is dead; of several runs, some could not be changed
  2      the run was canceled
  3      there is no such run, or the name may stand for several
  125    an error of ours: a bad flag, no server, something it refused
  128+n  signal n told us to end; the run goes on`

const remoteServer = `
The server is found by --server, by --config, by $TIDEOVER_SERVER, by the
configuration that serve would use here, or at its default place, tideover/tideover.sock in
$XDG_STATE_HOME or ~/.local/state. One that is asked over TCP wants
$TIDEOVER_TOKEN. $TIDEOVER_CA is a file with the certificate of the authority of
one that speaks TLS, if this machine does not know it.`

// codedError ends the program with a code of its own, and does not lead to the
// help: nothing was wrong with the command line.
type codedError struct {
	err  error
	code int
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// remote is what all verbs that ask a server have.
type remote struct {
	io     Streams
	server string
	config string // the server's, which says where it is
	json   bool
}

// command adds the flags and the common help to a verb.
func (r *remote) command(cmd *cobra.Command) {
	cmd.Long = strings.TrimSpace(cmd.Long) + "\n" + remoteServer + "\n" + remoteCodes
	cmd.DisableFlagsInUseLine = true
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.server, "server", "", "`address` of the server: unix:/path/to/socket, http://127.0.0.1:7878 or https://host:7878")
	f.StringVarP(&r.config, "config", "c", "", "the configuration `file` of the server, which says where it is")
	f.BoolVar(&r.json, "json", false, "print JSON")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return coded(run(cmd, args)) }
	}
}

// coded gives what the server answers its exit code.
func coded(err error) error {
	if p, ok := errors.AsType[*control.Error](err); ok {
		code := codeOwn
		switch p.Code {
		case control.CodeNotFound, control.CodeAmbiguous:
			code = codeNoRun
		case control.CodeDead, control.CodeReplaced:
			code = codeDead
		case control.CodeCanceled:
			code = codeCanceled
		}
		text := []string{visible(p.Error())}
		for _, id := range p.Candidates {
			text = append(text, visible(id))
		}
		return &codedError{errors.New(strings.Join(text, "\n  ")), code}
	}
	if _, ok := errors.AsType[*client.UnreachableError](err); ok {
		return &codedError{err, codeOwn}
	}
	if _, ok := errors.AsType[*unlocatedError](err); ok {
		return &codedError{err, codeOwn}
	}
	if t, ok := errors.AsType[*toldToEnd](err); ok {
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
	target.By = whoami()
	c, err := client.Dial(target)
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	c.OnReconnect = func(err error, wait time.Duration) {
		if err != nil && wait > time.Second {
			fmt.Fprintf(r.io.Err, "tideover: %s; trying again in %s\n", visible(err.Error()), textfmt.ReadableDuration(wait))
		}
	}
	return c, nil
}

// target returns where the server is: as it is told, or where a server with the
// configuration that would be found here has its socket. A configuration that can't
// be read is an error: what is meant for its server must not go to another.
func (r *remote) target() (client.Target, error) {
	server := r.server
	if server != "" && r.config != "" {
		return client.Target{}, errors.New("--server and --config both say where the server is; give one of them")
	}
	if server == "" && (r.config != "" || os.Getenv(client.ServerVar) == "") {
		socket, _, err := whereabouts(r.config)
		if err != nil {
			return client.Target{}, err
		}
		if socket != "" {
			server = "unix:" + socket
		}
	}
	return client.TargetOf(server, os.Getenv)
}

// whereabouts returns where a server with the configuration that is named, or found
// here, has its socket and its data. Nothing else of it has to be right. They are empty if
// there is neither a file nor a home.
func whereabouts(file string) (socket, data string, err error) {
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

// unlocatedError is why the configuration does not say where the server is.
type unlocatedError struct{ err error }

// Error says it on one line, by the first of several problems.
func (e *unlocatedError) Error() string {
	text := e.err.Error()
	if problems, ok := errors.AsType[strictyaml.FieldErrors](e.err); ok && len(problems) > 0 {
		first := *problems[0]
		first.Excerpt = ""
		text = first.Error()
	}
	return text + "; so it is not known where the server is: name it with --server"
}

func (e *unlocatedError) Unwrap() error { return e.err }

// whoami returns who is at the command line, for the history of runs.
func whoami() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	name = strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' {
			return -1
		}
		return c
	}, name)
	return "cli:" + name[:min(len(name), 60)]
}

// toldToEnd is why we end when a signal says so.
type toldToEnd struct{ signal syscall.Signal } //nolint:errname // not what went wrong

func (t *toldToEnd) Error() string { return "told to end by a signal" }

// context returns a context that ends when we are told to.
func (r *remote) context(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return untilTold(cmd.Context())
}

// untilTold returns a context that ends at the first signal that says so. The
// second does what it does to a program that does not listen.
func untilTold(parent context.Context) (context.Context, context.CancelFunc) {
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithCancelCause(parent)
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			signal.Stop(signals)
			sig, _ := s.(syscall.Signal)
			cancel(&toldToEnd{sig})
		case <-ctx.Done():
			signal.Stop(signals)
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// ask connects and does something with the server.
func (r *remote) ask(cmd *cobra.Command, do func(ctx context.Context, c *client.Client) error) error {
	c, err := r.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := r.context(cmd)
	defer stop()
	return do(ctx, c)
}

// printJSON prints a value as a line.
func (r *remote) printJSON(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = r.io.Out.Write(append(visibleJSON(text), '\n'))
	return err
}

// say prints a line of what others may have written.
func (r *remote) say(format string, args ...any) error {
	_, err := fmt.Fprintln(r.io.Out, visible(fmt.Sprintf(format, args...)))
	return err
}

// missing warns of shards that did not answer: a list without their runs must not
// look like one of all.
func (r *remote) missing(shards []int) {
	if text := control.Silent(shards); text != "" {
		r.warn("%s", text)
	}
}

// warn prints a line of ours to standard error.
func (r *remote) warn(format string, args ...any) {
	fmt.Fprintf(r.io.Err, "tideover: %s\n", visible(fmt.Sprintf(format, args...)))
}
