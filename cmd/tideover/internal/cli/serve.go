package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/server"
	"github.com/tideover/tideover/internal/secret"
)

const serveLong = `Runs everything that lives long and is in the configuration file: workflows and
their schedules, sessions, the gateway to the providers, the control API and the
page.

The state is in one folder, and survives the end of the process: runs that were
accepted go on when serve is started again. One serve or gateway at a time can use
a folder, whatever its socket and its address.

With engine.nats in the file, or --nats, the state is shared instead with all other
servers that name the same cluster on NATS JetStream: each works on a part, and what
one had goes on at the others when it ends. Servers of NATS that are not there yet
are waited for. See docs/cluster.md, "tideover doctor" and "tideover cluster".

The API is on a socket in that folder, for this user only, and on a loopback
address for whoever has the token, with TLS if server.tls has a certificate, which
may be renewed while it is used. The page's address is printed at the start, on
standard output: a link with the token in it if that is a terminal. Otherwise it
may end up in somebody's log, and says in which file the token is. The log is on
standard error.

SIGTERM or SIGINT ends everything in order: attempts are told to end and begin
again next time; a second signal does not wait for them. SIGHUP, and any change of
the file, loads the configuration again; if it is wrong, the old one stays. Runs
in progress go on as they began.

The file is --config, or $TIDEOVER_CONFIG, or ./tideover.yaml, or
tideover/config.yaml in the folder for configuration, whichever is there first.
Values of its server and engine sections may be set by flags, or by variables such as
TIDEOVER_SERVER_LISTEN; "tideover config show --origin" says which counts.`

const serveExample = `  # see it work, without any configuration; nothing is kept
  tideover serve --demo

  # what is in a file
  tideover serve --config tideover.yaml

  # in another window
  tideover run nightly-report --wait
  tideover runs --watch`

type serveOptions struct {
	source configFlags
	demo   bool
	level  string
	asJSON bool
}

// configFlags are the flags of all commands that read the configuration.
type configFlags struct {
	path   string
	listen string
	data   string
	socket string
	cert   string
	key    string
	nats   string
}

func (f *configFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.path, "config", "c", "", "the configuration `file`")
	cmd.Flags().StringVar(&f.listen, "listen", "", "`address` of the API and the page (default 127.0.0.1:7878)")
	cmd.Flags().StringVar(&f.data, "data", "", "`folder` that keeps the state")
	cmd.Flags().StringVar(&f.socket, "socket", "", "`path` of the socket of the API")
	cmd.Flags().StringVar(&f.cert, "tls-cert", "", "`file` with the certificate with which TLS is spoken at that address")
	cmd.Flags().StringVar(&f.key, "tls-key", "", "`file` with its key")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.MarkFlagFilename("tls-cert", "pem", "crt")
	_ = cmd.MarkFlagFilename("tls-key", "pem", "key")
	_ = cmd.MarkFlagDirname("data")
}

// addCluster adds the flag of those who care where runs are kept.
func (f *configFlags) addCluster(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.nats, "nats", "", "`addresses` of the NATS servers of a cluster, with commas; without them runs are kept in the folder")
}

// source returns where the configuration comes from. It may come from nowhere.
func (f *configFlags) source(redactor *secret.Redactor) (config.Source, error) {
	src := config.Source{Path: f.path, Flags: map[string]string{}, Redactor: redactor}
	for key, value := range map[string]string{
		"listen": f.listen, "data": f.data, "socket": f.socket, "tls-cert": f.cert, "tls-key": f.key, "engine.nats": f.nats,
	} {
		if value != "" {
			src.Flags[key] = value
		}
	}
	if src.Path != "" {
		return src, nil
	}
	if src.Path = os.Getenv("TIDEOVER_CONFIG"); src.Path != "" {
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

func newServe(io Streams) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:     "serve [flags]",
		Short:   "Run workflows, the API and the page",
		Long:    serveLong,
		Example: serveExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), io, o) },
	}
	o.source.add(cmd)
	o.source.addCluster(cmd)
	cmd.Flags().BoolVar(&o.demo, "demo", false, "show what it does, in a temporary folder: workflows, providers, a session and more that fail and get through")
	o.logs(cmd)
	cmd.Flags().Lookup("log-level").Usage += "; warn for the demo"
	return cmd
}

// logs adds the flags for what is logged.
func (o *serveOptions) logs(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.level, "log-level", "", "debug, info, warn or error; info unless said")
	cmd.Flags().BoolVar(&o.asJSON, "log-json", false, "log JSON lines")
	_ = cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]cobra.Completion{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
}

func runServe(ctx context.Context, io Streams, o *serveOptions) error {
	if ctx == nil {
		ctx = context.Background()
	}
	redactor := new(secret.Redactor)
	if o.demo && o.level == "" {
		o.level = "warn" // the page tells the rest
	}
	log, err := newLogger(io, o, redactor)
	if err != nil {
		return err
	}
	adoptNetLog(log)
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
		if err := demonstrate(&src, dir); err != nil {
			return err
		}
	} else if src.Path == "" {
		return errors.New("serve: there is no configuration: name one with --config, write one with 'tideover init', or see it work with --demo")
	}
	ctx, hurry, reload, stop := serveSignals(ctx, log)
	defer stop()
	err = server.Run(ctx, hurry, server.Options{
		Source: src, Demo: o.demo, AnyPort: o.demo && o.source.listen == "", Version: thisBuild().String(), Log: log, Reload: reload,
		Ready: func(p server.Page) {
			announceFile(io, src.Path)
			announce(io, o, p)
			if o.demo {
				socket := cmp.Or(src.Flags["socket"], filepath.Join(src.Flags["data"], "tideover.sock"))
				fmt.Fprintf(io.Out, "tideover: for the verbs, in another terminal: export TIDEOVER_SERVER=unix:%s\n", visible(shellWord(socket)))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("serve: %s", redactor.String(err.Error()))
	}
	return nil
}

// announceFile says which configuration is in use, if it is one that was found.
func announceFile(io Streams, path string) {
	if path != "" {
		fmt.Fprintf(io.Out, "tideover: the configuration is %s\n", visible(path))
	}
}

// announce says where the page is. The link has the token in it, unless it would
// end up in somebody's log.
func announce(io Streams, o *serveOptions, p server.Page) {
	if o.demo {
		fmt.Fprintln(io.Out, "tideover: the demo runs; nothing of it is kept, and its failures are staged.")
	}
	if !o.demo && !process.IsTerminal(io.Out) {
		fmt.Fprintf(io.Out, "tideover: the page is at %s?token=, followed by the token in %s\n", p.Address, p.TokenAt)
		return
	}
	fmt.Fprintf(io.Out, "tideover: the page is at %s?token=%s\n", p.Address, p.Token.Reveal())
	fmt.Fprintln(io.Out, "tideover: Ctrl-C ends it.")
}

// newLogger returns the log of a process that serves.
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

// serveSignals returns a context that ends with the first signal to end, one that
// ends with the second, and a channel for those to load the configuration again.
func serveSignals(parent context.Context, log *slog.Logger) (ctx, hurry context.Context, reload <-chan struct{}, stop func()) {
	ctx, end := context.WithCancel(parent)
	hurry, now := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 4)
	loads := make(chan struct{}, 1)
	signal.Ignore(syscall.SIGPIPE) // a reader of the log that goes away is no reason to end
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
					default: // one is waiting already, or there is nothing to load
					}
				case ctx.Err() == nil:
					log.Info("told to end; another signal does not wait for attempts to end", "signal", sig.String())
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

// newGuard is the command under which steps run their commands.
func newGuard() *cobra.Command {
	return &cobra.Command{
		Use: guard.Name, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := guard.Main(args); code != 0 {
				return exitError{Code: code}
			}
			return nil
		},
	}
}
