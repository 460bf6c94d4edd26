package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/server"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/secret"
)

const doctorLong = `Checks the installation and prints what to fix: every setting that could lose
acknowledged work, expose the server or stop it. It changes nothing.

It reads the configuration as 'tideover serve' does and runs the checks itself,
whether or not a server is running. If --server or $TIDEOVER_SERVER names a server,
and no flag names a configuration, that server runs the checks instead. A server of a
cluster checks its own machine, and reports its last check of the cluster, which is at
most 5 minutes old.

  folder   durability, disk space, permissions, clock; the log and its snapshots are
           read, and with --deep also archives and the view
  address  reachable from other machines without TLS, expiry of the certificate
  cluster  (engine.nats) number of copies, sync of each message, copies that are
           behind, clocks, configuration of streams
  server   schedules whose last start was rejected, blocked functions (only with --server)

Whether NATS servers sync each message is visible only with the system account:
engine.system-credentials, or system-user and system-password.

Each finding is broken, weak, or a note. Notes need no action.`

const doctorExample = `  tideover doctor
  tideover doctor --config /etc/tideover.yaml
  tideover doctor --server unix:/run/tideover/tideover.sock
  tideover doctor --json | jq -r '.findings[] | select(.severity != "note").do'`

func newDoctor(io Streams) *cobra.Command {
	var f configFlags
	var deep bool
	r := newRemote(io)
	cmd := &cobra.Command{
		Use: "doctor [flags]", Short: "Check the installation and print what to fix", Long: doctorLong, Example: doctorExample,
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			own := f != (configFlags{}) || deep
			if r.server != "" && own {
				return errors.New("--server can't be used with flags of the configuration: the server has its own; leave out one of them")
			}
			if r.server != "" || os.Getenv(client.ServerVar) != "" && !own {
				return coded(r.withClient(cmd, func(ctx context.Context, c *client.Client) error { return checkServer(ctx, c, &r.resultPrinter) }))
			}
			ctx, stop := contextUntilSignal(cmd.Context())
			defer stop()
			return coded(checkLocally(ctx, &f, deep, &r.resultPrinter))
		},
	}
	f.add(cmd)
	f.addCluster(cmd)
	cmd.Flags().StringVarP(&r.server, "server", "s", "", "`address` of a server that runs the checks: unix:/path/to/socket, http://127.0.0.1:7878 or https://host:7878")
	cmd.Flags().BoolVar(&deep, "deep", false, "also read the archives of finished runs and the view, which may take minutes")
	cmd.Flags().BoolVarP(&r.json, "json", "j", false, "print JSON")
	return exits{codeSuccess: "no finding is weak or broken", CodeFailed: "at least one finding is weak or broken"}.declare(cmd)
}

// checkServer lets a server check itself and prints the result.
func checkServer(ctx context.Context, c *client.Client, r *resultPrinter) error {
	d, err := c.Doctor(ctx)
	if err != nil {
		return err
	}
	d.Engine += " (checked by the server at " + c.Where() + ")"
	return printDiagnosis(r, d)
}

// checkLocally runs the checks in this process, with the configuration that the flags select.
func checkLocally(ctx context.Context, f *configFlags, deep bool, r *resultPrinter) error {
	redactor := new(secret.Redactor)
	src, err := f.source(redactor)
	if err != nil {
		return err
	}
	cfg, err := config.Load(src)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	quiet := time.AfterFunc(waitNoticeDelay, func() { printWaitNotice(r.io.Err, cfg) })
	d, err := diagnose(ctx, cfg, redactor, deep)
	quiet.Stop()
	if err != nil {
		return fmt.Errorf("doctor: %s", redactor.String(err.Error()))
	}
	if src.Path == "" && len(src.Flags) == 0 {
		d.Findings = append(d.Findings, doctor.Finding{
			Severity: journal.Note, What: "no configuration file was found: the defaults were checked", Why: "a running server may use other settings",
			Do: "name the file with --config, or the server with --server",
		})
	}
	return printDiagnosis(r, d)
}

// printDiagnosis prints the findings. It returns an exit error if a finding has the severity weak
// or broken.
func printDiagnosis(r *resultPrinter, d admin.Diagnosis) error {
	err := r.printRendered(d, func(s *screen) []string { return renderDiagnosis(d, s) })
	if err == nil && doctor.Weakens(d.Findings) {
		return exitError{Code: CodeFailed}
	}
	return err
}

// waitNoticeDelay is the time after which a notice names the NATS servers that have not answered
// the checks yet.
const waitNoticeDelay = 2 * time.Second

// printWaitNotice prints the addresses of the NATS servers that the checks wait for.
func printWaitNotice(w io.Writer, cfg *config.Config) {
	for _, v := range cfg.Values() {
		if v.Path == "engine.nats" {
			fmt.Fprintln(w, "tideover: waiting for NATS at "+visible(v.Text))
		}
	}
}

// diagnose checks the cluster, the folder and the addresses of the configuration.
func diagnose(ctx context.Context, cfg *config.Config, redactor *secret.Redactor, deep bool) (d admin.Diagnosis, err error) {
	d.Findings = []doctor.Finding{}
	e := &cfg.Engine
	folder := doctor.Folder{Path: cfg.Server.Data, Keeps: !e.Clustered(), Lazy: cfg.Server.Durability == "os", Deep: deep}
	d.Engine = "the folder " + cfg.Server.Data
	if e.Clustered() {
		d.Engine = "the cluster " + e.Name
		log := slog.New(slog.DiscardHandler) // problems are reported as findings
		list, err := cluster.Examine(ctx, cluster.Options{Config: &cfg.Engine, Secrets: cfg.Secrets(), Dir: cfg.Server.Data, Log: log, Redact: redactor.String})
		if err != nil {
			return d, err
		}
		d.Findings = append(d.Findings, list...)
	}
	d.Findings = append(d.Findings, folder.Check(ctx)...)
	d.Findings = append(d.Findings, checkAddresses(cfg, time.Now())...)
	return d, nil
}

// checkAddresses checks the addresses on which serve, or a gateway without serve, listens. With TLS
// it checks only the address of serve, and the certificate.
func checkAddresses(cfg *config.Config, now time.Time) []doctor.Finding {
	serve, gateway := server.ListenAddress(cfg, false), server.ListenAddress(cfg, true)
	if !cfg.Server.TLS.On() {
		return append(serve.Check(now), gateway.Check(now)...)
	}
	if pair, err := cfg.Server.TLS.Load(now); err == nil {
		serve.Certificate = pair.Leaf
	} else {
		serve.Refused = err
	}
	return serve.Check(now)
}

// severityColours has the terminal code of each severity's colour. The codes are among the 16
// colours that every terminal has.
var severityColours = map[string]string{journal.Broken: "31", journal.Weak: "33", journal.Note: "2"}

func renderDiagnosis(d admin.Diagnosis, s *screen) []string {
	lines := []string{visible("runs are stored in " + d.Engine)}
	counts := map[string]int{}
	for _, f := range d.Findings {
		counts[f.Severity]++
		lines = append(lines, "", s.paint(severityColours[f.Severity], fmt.Sprintf("%-6s", f.Severity))+"  "+visible(f.What))
		lines = append(lines, "        why  "+visible(f.Why), "        do   "+visible(f.Do))
	}
	if !doctor.Weakens(d.Findings) {
		return append(lines, "", s.paint("32", "no problems found"))
	}
	return append(lines, "", fmt.Sprintf("%d broken, %d weak", counts[journal.Broken], counts[journal.Weak]))
}
