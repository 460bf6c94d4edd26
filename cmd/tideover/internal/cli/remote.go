package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

// serversHelp is the help topic about the place of the server. [remote.target] finds it.
const serversHelp = `Commands that work with a server find it in the same way.

The server is the first of these that is given:
  --server ADDRESS   unix:/path/to/socket, http://HOST:PORT or https://HOST:PORT
  --config FILE      the configuration of the server, which contains its address
  $TIDEOVER_SERVER   an address
  a file             $TIDEOVER_CONFIG, tideover.yaml in this folder, or
                     tideover/config.yaml in the folder for configurations
  the default        tideover/tideover.sock in $XDG_STATE_HOME or ~/.local/state
A connection over TCP needs $TIDEOVER_TOKEN. For TLS with a private certificate
authority, set $TIDEOVER_CA to a file with its certificate.

The commands under "tideover sessions" ask the server and the sockets of all watches.
Those sockets are in tideover/watch in $XDG_STATE_HOME or ~/.local/state, or in the
folder watch of the data folder in the configuration. --server selects a single
process: a server, or with unix:PATH a watch.`

// newServersHelp returns the help topic "servers".
func newServersHelp() *cobra.Command {
	return &cobra.Command{Use: "servers", Short: "How a command finds the server", Long: serversHelp}
}

// seeServers is the line of a help text that names the topic.
const seeServers = `"tideover help servers" explains how the server is found.`

// Exit codes of several commands that connect to a server.
var (
	exitsRuns     = exits{CodeFailed: "some of the runs could not be changed", CodeUnknown: "unknown run or workflow, or the name matches several"}
	exitsRun      = exits{CodeUnknown: "unknown run, or the name matches several"}
	exitsWorkflow = exits{CodeUnknown: "unknown workflow"}
	exitsSchedule = exits{CodeUnknown: "unknown schedule"}
)

// remote holds the flags of the commands that connect to a server.
type remote struct {
	resultPrinter
	server string
	config string // configuration of the server, which contains its address
}

func newRemote(io Streams) remote { return remote{resultPrinter: resultPrinter{io: io}} }

// command adds the common flags, the end of the help and the exit codes to a command, and returns it.
// If the command has no ValidArgsFunction, it takes no arguments.
func (r *remote) command(cmd *cobra.Command, codes exits) *cobra.Command {
	cmd.Long = strings.TrimSpace(cmd.Long) + "\n\n" + seeServers
	codes.declare(exits{CodeOwn: ""}.declare(cmd))
	f := orderedFlags(cmd)
	f.StringVarP(&r.server, "server", "s", "", "`address` of the server: unix:/path/to/socket, http://127.0.0.1:7878 or https://host:7878")
	f.StringVarP(&r.config, "config", "c", "", "the configuration `file` of the server, which contains its address")
	f.BoolVarP(&r.json, "json", "j", false, "print JSON")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	completeFlags(r, cmd)
	if cmd.ValidArgsFunction == nil {
		cmd.Args, cmd.ValidArgsFunction = noArguments, cobra.NoFileCompletions
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.warnOfOtherName(cmd)
		return coded(run(cmd, args))
	}
	return cmd
}

// currentNames maps other names of commands and flags, most of them former ones, to the name in the help.
var currentNames = map[string]string{"open": "block", "close": "force", "unblock": "reset", "retry-now": "wake", "--words": "--comment"}

// otherNames returns the other names of a command.
func otherNames(name string) (list []string) {
	for other, current := range currentNames {
		if current == name {
			list = append(list, other)
		}
	}
	return list
}

// warnOfOtherName prints a line that has the name to use, if the command line has another one.
func (r *remote) warnOfOtherName(cmd *cobra.Command) {
	for other, name := range currentNames {
		flag, isFlag := strings.CutPrefix(other, "--")
		if isFlag && cmd.Flags().Changed(flag) || cmd.CalledAs() == other && cmd.Name() == name {
			r.warn("use %s instead of %s", name, other)
		}
	}
}

// problemCodes maps errors of the server to exit codes. The exit code of all other errors is
// CodeOwn.
var problemCodes = map[control.Code]int{
	control.CodeNotFound: CodeUnknown, control.CodeAmbiguous: CodeUnknown,
	control.CodeDead: CodeFailed, control.CodeReplaced: CodeFailed, control.CodeCanceled: codeCanceled,
}

// problemCode returns the exit code for an error of the server. A request to start an unknown workflow
// is a bad request in the API; for the user, nothing has the name.
func problemCode(p *control.Error) int {
	if p.Code == control.CodeBadRequest && p.Field == "workflow" {
		return CodeUnknown
	}
	return cmp.Or(problemCodes[p.Code], CodeOwn)
}

// coded returns err with its exit code, if it comes from the server, from the connection, or from a
// signal. It returns any other error unchanged.
func coded(err error) error {
	if p, ok := errors.AsType[*control.Error](err); ok {
		return &codedError{err, problemCode(p)}
	}
	if _, unlocated := errors.AsType[*unlocatedError](err); unlocated || unreachable(err) {
		return &codedError{err, CodeOwn}
	}
	if t, ok := errors.AsType[*interruptedError](err); ok {
		return exitError{Code: codeSignal + int(t.signal), Signal: t.signal}
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

// target returns the address of the server, in the order of serversHelp: that of --server or
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
