package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/demo"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/server"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

const serveLong = `Runs a server with everything in the configuration file: workflows and their
schedules, sessions, the gateway to the providers, the control API and the web page.

The state is in one folder and survives the end of the process: runs that were
accepted continue when serve is started again. Only one serve or gateway at a time
can use a folder, even with different sockets and addresses.

With engine.nats in the file, or --nats, the state is stored in a cluster on NATS
JetStream instead and shared by all servers of that cluster. Each server works on a
part of it; when one ends, the others take over. Serve waits for NATS servers
that are not reachable yet. See docs/cluster.md, "tideover doctor" and "tideover
cluster".

If the log has lost acknowledged entries, because a file is damaged or was replaced by
an older copy, serve refuses to start, changes nothing, and says what is lost. Restore
a backup, which replaces the whole folder, or start once with --accept-loss.

The API listens on a Unix socket in the folder that only this user can open, and on a
loopback address that requires the token. server.tls adds TLS; the certificate can
be renewed while the server runs. The address of the web page is printed at the
start: on a terminal as a link that contains the token; otherwise, because the output
may be a log, with the name of the file that contains the token. Log lines go to
standard error.

SIGTERM or SIGINT ends the server: attempts are interrupted and made again at the
next start; a second signal does not wait for them. SIGHUP, and any change of the
file, reloads the configuration; if it is invalid, the old one stays in effect. Runs
in progress keep the definition that they were started with.

The file is --config, else $TIDEOVER_CONFIG, else ./tideover.yaml, else
tideover/config.yaml in the user's configuration folder. Flags, and variables such as
TIDEOVER_SERVER_LISTEN, override its server and engine sections; "tideover config show
--origin" shows where each value comes from.`

const serveExample = `  # a demo that needs no configuration and stores nothing
  tideover serve --demo

  # with a configuration file
  tideover serve --config tideover.yaml

  # in another terminal
  tideover run nightly-report --wait
  tideover runs --watch`

type serveOptions struct {
	source configFlags
	demo   bool
	accept bool // a loss of acknowledged entries
	level  string
	asJSON bool
}

// exitsServer has the exit codes of a command that serves until a signal ends it.
var exitsServer = exits{
	codeSuccess: "ended by SIGINT or SIGTERM",
	CodeOwn:     "tideover's own error: a bad flag or configuration, a folder or an address in use, a failure that ended it",
	codeSignal:  "ended by another signal n",
}

// configFlags holds the flags of all commands that read the configuration.
type configFlags struct {
	path, listen, data, socket string
	cert, key                  string
	nats                       string
}

func (f *configFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.path, "config", "c", "", "the configuration `file`")
	cmd.Flags().StringVar(&f.listen, "listen", "", "`address` of the API and the page (default 127.0.0.1:7878)")
	cmd.Flags().StringVar(&f.data, "data", "", "`folder` for the state")
	cmd.Flags().StringVar(&f.socket, "socket", "", "`path` of the API's Unix socket")
	cmd.Flags().StringVar(&f.cert, "tls-cert", "", "`file` with the TLS certificate of that address")
	cmd.Flags().StringVar(&f.key, "tls-key", "", "`file` with the key of the certificate")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.MarkFlagFilename("tls-cert", "pem", "crt")
	_ = cmd.MarkFlagFilename("tls-key", "pem", "key")
	_ = cmd.MarkFlagDirname("data")
}

// addCluster adds the flag --nats, for commands that depend on where runs are stored.
func (f *configFlags) addCluster(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.nats, "nats", "", "`addresses` of the NATS servers of a cluster, separated by commas (default: runs are stored in the folder)")
}

// source returns the sources of the configuration: the flags, and the path of the file. The path is
// --config, else $TIDEOVER_CONFIG, else the first file that exists at a default place, else empty.
func (f *configFlags) source(redactor *secret.Redactor) (config.Source, error) {
	src := config.Source{Flags: map[string]string{}, Redactor: redactor}
	for key, value := range map[string]string{
		"listen": f.listen, "data": f.data, "socket": f.socket, "tls-cert": f.cert, "tls-key": f.key, "engine.nats": f.nats,
	} {
		if value != "" {
			src.Flags[key] = value
		}
	}
	if src.Path = cmp.Or(f.path, os.Getenv("TIDEOVER_CONFIG")); src.Path != "" {
		return src, nil
	}
	candidates := []string{"tideover.yaml"}
	if dir, err := os.UserConfigDir(); err == nil {
		candidates = append(candidates, filepath.Join(dir, "tideover", "config.yaml"))
	}
	for _, path := range candidates {
		_, err := os.Stat(path)
		if err == nil {
			src.Path = path
			return src, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return src, err
		}
	}
	return src, nil
}

// load loads the configuration. Without a file, all settings that the flags and the environment do
// not set have their defaults.
func (f *configFlags) load(redactor *secret.Redactor) (*config.Config, config.Source, error) {
	src, err := f.source(redactor)
	if err != nil {
		return nil, src, err
	}
	cfg, err := config.Load(src)
	return cfg, src, err
}

func newServe(io Streams) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:     "serve [flags]",
		Short:   "Run a server: workflows, sessions, gateway, API and web page",
		Long:    serveLong,
		Example: serveExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), io, o) },
	}
	o.source.add(cmd)
	o.source.addCluster(cmd)
	cmd.Flags().BoolVar(&o.demo, "demo", false, "run a demo in a temporary folder: workflows, providers, a session and more that fail and recover")
	addAcceptLoss(cmd, &o.accept)
	o.logs(cmd)
	cmd.Flags().Lookup("log-level").Usage += "; warn with --demo"
	return exitsServer.declare(cmd)
}

// addAcceptLoss adds the flag that opens a log in spite of a loss.
func addAcceptLoss(cmd *cobra.Command, accept *bool) {
	cmd.Flags().BoolVar(accept, "accept-loss", false, "open a log that has lost acknowledged entries, and record that; without it such a log is refused")
}

// logs adds the flags for logging.
func (o *serveOptions) logs(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.level, "log-level", "", "log `level`: debug, info, warn or error; default info")
	cmd.Flags().BoolVar(&o.asJSON, "log-json", false, "log JSON lines")
	completeFixed(cmd, "log-level", "debug", "info", "warn", "error")
}

func runServe(ctx context.Context, io Streams, o *serveOptions) error {
	redactor := new(secret.Redactor)
	if o.demo && o.level == "" {
		o.level = "warn" // the web page shows what the demo does
	}
	log, err := newLogger(io, o, redactor)
	if err != nil {
		return err
	}
	src, err := o.source.source(redactor)
	if err != nil {
		return err
	}
	if o.demo && o.source.path == "" {
		dir, err := os.MkdirTemp("", "tideover-demo-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if err := useDemoConfig(&src, dir); err != nil {
			return err
		}
	} else if src.Path == "" {
		return errors.New("serve: no configuration found: name a file with --config, write one with 'tideover init', or try --demo")
	}
	return runServer(ctx, io, "serve", server.Options{
		Source: src, Demo: o.demo, AcceptLoss: o.accept, AnyPort: o.demo && o.source.listen == "", Log: log,
		Ready: func(p server.Page) {
			if o.demo {
				fmt.Fprintln(io.Out, "tideover: this is a demo: nothing is stored, and its failures are simulated.")
			}
			if printPageAddress(io, p, o.demo) {
				fmt.Fprintln(io.Out, "tideover: press Ctrl-C to stop.")
			}
			if o.demo {
				socket := cmp.Or(src.Flags["socket"], filepath.Join(src.Flags["data"], "tideover.sock"))
				fmt.Fprintf(io.Out, "tideover: to use other commands with it, run in another terminal: export TIDEOVER_SERVER=unix:%s\n", visible(textfmt.ShellWord(socket)))
			}
		},
	})
}

// runServer runs a server until a signal ends it. command is the name of the command in errors. It
// changes the standard logger and the handling of signals of this process.
func runServer(ctx context.Context, io Streams, command string, o server.Options) error {
	log.SetFlags(0)
	log.SetOutput(stdLogWriter{o.Log})
	ctx, hurry, reload, stop := serveSignals(ctx, o.Log)
	defer stop()
	ready := o.Ready
	o.Version, o.Reload = thisBuild().String(), reload
	o.Ready = func(p server.Page) {
		if o.Source.Path != "" {
			fmt.Fprintf(io.Out, "tideover: the configuration is %s\n", visible(o.Source.Path))
		}
		ready(p)
	}
	if err := server.Run(ctx, hurry, o); err != nil {
		text := fmt.Errorf("%s: %s", command, o.Source.Redactor.String(err.Error()))
		if _, ok := errors.AsType[strictyaml.FieldErrors](err); ok {
			return text
		}
		return &codedError{text, CodeOwn}
	}
	return nil
}

// printPageAddress prints the address of the web page, and reports whether it has printed the
// token, too. It prints the token only on a terminal or in the demo, because other output may end
// up in a log.
func printPageAddress(io Streams, p server.Page, demo bool) (withToken bool) {
	if !demo && !process.IsTerminal(io.Out) {
		if filepath.IsAbs(p.TokenAt) {
			fmt.Fprintf(io.Out, "tideover: the page is at %s?token=$(cat %s)\n", p.Address, textfmt.ShellWord(p.TokenAt))
			return false
		}
		fmt.Fprintf(io.Out, "tideover: the page is at %s?token=, followed by the token in %s\n", p.Address, p.TokenAt)
		return false
	}
	fmt.Fprintf(io.Out, "tideover: the page is at %s?token=%s\n", p.Address, p.Token.Reveal())
	return true
}

// newLogger returns the logger of a server process, which redacts secrets.
func newLogger(io Streams, o *serveOptions, redactor *secret.Redactor) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cmp.Or(o.level, "info"))); err != nil {
		return nil, fmt.Errorf("--log-level: %q is not debug, info, warn or error", o.level)
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindString || a.Value.Kind() == slog.KindAny {
			a.Value = slog.StringValue(redactor.String(a.Value.String()))
		}
		return a
	}}
	if o.asJSON {
		return slog.New(slog.NewJSONHandler(io.Err, opts)), nil
	}
	return slog.New(slog.NewTextHandler(io.Err, opts)), nil
}

// serveSignals returns ctx, which ends with the first SIGINT or SIGTERM, hurry, which ends with the
// second, and a channel that gets a value for each SIGHUP. stop ends the handling of signals.
func serveSignals(parent context.Context, log *slog.Logger) (ctx, hurry context.Context, reload <-chan struct{}, stop func()) {
	ctx, end := context.WithCancel(parent)
	hurry, now := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 4)
	loads := make(chan struct{}, 1)
	signal.Ignore(syscall.SIGPIPE) // keep serving if the reader of the log is gone
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-signals:
				switch {
				case sig == syscall.SIGHUP:
					select {
					case loads <- struct{}{}:
					default: // a reload is pending already
					}
				case ctx.Err() == nil:
					log.Info("shutting down; another signal ends attempts at once", "signal", sig.String())
					end()
				default:
					now()
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, hurry, loads, func() {
		signal.Stop(signals)
		close(done)
		end()
		now()
	}
}

// newGuard returns the hidden command under which tideover runs other commands: it ends them when
// tideover ends. See package guard.
func newGuard() *cobra.Command {
	return exits{codeOfCommand: ""}.declare(&cobra.Command{
		Use: guard.Name, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := guard.Main(args); code != 0 {
				return exitError{Code: code}
			}
			return nil
		},
	})
}

// useDemoConfig writes the configuration of the demo into dir and makes src use it instead of the
// user's own configuration.
func useDemoConfig(src *config.Source, dir string) (err error) {
	if src.Flags["engine.nats"] != "" {
		return errors.New("serve: --demo and --nats can't be used together: the demo stores its runs in a folder")
	}
	if src.Path, err = demo.Write(dir); err != nil {
		return err
	}
	if src.Flags["data"] == "" {
		src.Flags["data"] = filepath.Join(dir, "data")
	}
	// The demo ignores a cluster and a certificate from the environment.
	src.Environ = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TIDEOVER_ENGINE_") || strings.HasPrefix(v, "TIDEOVER_SERVER_TLS_")
	})
	return nil
}

// stdLogWriter writes the lines of the standard logger, which net/http uses, to log. It removes
// quoted text, which comes from clients and may contain a secret that the redactor does not know.
type stdLogWriter struct{ log *slog.Logger }

// Write logs a line as a warning, without the quoted text in it.
func (n stdLogWriter) Write(line []byte) (int, error) {
	n.log.Warn(secret.Unquoted(strings.TrimSpace(string(line))))
	return len(line), nil
}
