package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/server"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/secret"
)

const doctorLong = `Looks for whatever makes the promise weaker that what was acknowledged is not lost,
and says what to do about it. It changes nothing. It reads the configuration as serve
would, and looks by itself, whether a server runs or not. A server that --server or
$TIDEOVER_SERVER names is asked instead, unless a flag says which configuration is
meant; of a cluster it sees its own machine only.

Of a folder it looks at its durability, its disk, who may read and write it, and the
clock; of the address, whether others can reach it without TLS, and whether its
certificate will end soon. Of a cluster (engine.nats) it asks the NATS servers how
many copies they keep, whether they sync each message, whether all copies are
current, whether clocks agree and streams are as they should be. Whether they sync is
seen with the system account only: engine.system-credentials, or system-user and
system-password.

A server that is asked also names its schedules whose last start was refused.

Each finding is broken, weak, or a note that is only worth knowing.

Exit codes:
  0    nothing weakens the promise; there may be notes
  1    something is weak or broken
  125  an error of ours: a bad flag, a configuration that can't be read, no server`

const doctorExample = `  tideover doctor
  tideover doctor --config /etc/tideover.yaml
  tideover doctor --server unix:/run/tideover/tideover.sock
  tideover doctor --json | jq -r '.findings[] | select(.severity != "note").do'`

func newDoctor(io Streams) *cobra.Command {
	var f configFlags
	r := &remote{io: io}
	cmd := &cobra.Command{
		Use: "doctor [flags]", Short: "Say what makes the promise weaker, and what to do", Long: doctorLong, Example: doctorExample,
		Args: none, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			own := f != (configFlags{})
			if r.server != "" && own {
				return errors.New("--server asks a server that has its configuration; leave out the flags that say another")
			}
			if r.server != "" || os.Getenv(client.ServerVar) != "" && !own {
				return coded(r.ask(cmd, r.examineServer))
			}
			ctx, stop := r.context(cmd)
			defer stop()
			return coded(r.examine(ctx, &f))
		},
	}
	f.add(cmd)
	f.addCluster(cmd)
	cmd.Flags().StringVar(&r.server, "server", "", "`address` of a server that is asked instead: unix:/path/to/socket, http://127.0.0.1:7878 or https://host:7878")
	cmd.Flags().BoolVar(&r.json, "json", false, "print JSON")
	return cmd
}

// diagnosis is what the doctor says.
type diagnosis = control.Diagnosis

// examineServer has a server look at itself.
func (r *remote) examineServer(ctx context.Context, c *client.Client) error {
	d, err := c.Doctor(ctx)
	if err != nil {
		return err
	}
	d.Engine += ", says the server at " + c.Where()
	return r.prescribe(d)
}

func (r *remote) examine(ctx context.Context, f *configFlags) error {
	redactor := new(secret.Redactor)
	src, err := f.source(redactor)
	if err != nil {
		return err
	}
	cfg, err := config.Load(src)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	quiet := time.AfterFunc(quietTime, func() { waiting(r.io.Err, cfg) })
	d, err := diagnose(ctx, cfg, redactor)
	quiet.Stop()
	if err != nil {
		return fmt.Errorf("doctor: %s", redactor.String(err.Error()))
	}
	if src.Path == "" && len(src.Flags) == 0 {
		d.Findings = append(d.Findings, doctor.Finding{
			Severity: journal.Note, What: "there is no configuration file: this is about the defaults", Why: "a server that runs may use others",
			Do: "name its file with --config, or the server with --server",
		})
	}
	return r.prescribe(d)
}

// prescribe prints what was found.
func (r *remote) prescribe(d diagnosis) error {
	if r.json {
		if err := r.printJSON(d); err != nil {
			return err
		}
	} else {
		s := screenOf(r.io.Out)
		if _, err := fmt.Fprintln(r.io.Out, strings.Join(renderDiagnosis(d, &s), "\n")); err != nil {
			return err
		}
	}
	if doctor.Weakens(d.Findings) {
		return exitError{Code: codeWeak}
	}
	return nil
}

// quietTime is after how long somebody wants to know why nothing happens.
const quietTime = 2 * time.Second

// waiting says whom it waits for.
func waiting(w io.Writer, cfg *config.Config) {
	for _, v := range cfg.Values() {
		if v.Path == "engine.nats" {
			fmt.Fprintln(w, "tideover: waiting for NATS at "+visible(v.Text))
		}
	}
}

// codeWeak is the exit code when something weakens the promise.
const codeWeak = 1

// diagnose looks at everything that the configuration names.
func diagnose(ctx context.Context, cfg *config.Config, redactor *secret.Redactor) (d diagnosis, err error) {
	d.Findings = []doctor.Finding{}
	e := &cfg.Engine
	folder := doctor.Folder{Path: cfg.Server.Data, Keeps: !e.Clustered(), Lazy: cfg.Server.Durability == "os"}
	d.Engine = "the folder " + cfg.Server.Data
	if e.Clustered() {
		d.Engine = "the cluster " + e.Name
		log := slog.New(slog.DiscardHandler) // what matters is found
		list, err := cluster.Examine(ctx, cluster.Options{Config: &cfg.Engine, Secrets: cfg.Secrets(), Dir: cfg.Server.Data, Log: log, Redact: redactor.String})
		if err != nil {
			return d, err
		}
		d.Findings = append(d.Findings, list...)
	}
	d.Findings = append(d.Findings, folder.Check()...)
	d.Findings = append(d.Findings, doors(cfg, time.Now())...)
	return d, nil
}

// doors looks at where the server is asked, and a gateway that runs alone.
func doors(cfg *config.Config, now time.Time) []doctor.Finding {
	serve, gateway := server.Door(cfg, false), server.Door(cfg, true)
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

// severityColours are of the 16 that every terminal has.
var severityColours = map[string]string{journal.Broken: "31", journal.Weak: "33", journal.Note: "2"}

func renderDiagnosis(d diagnosis, s *screen) []string {
	lines := []string{visible("runs are kept in " + d.Engine)}
	counts := map[string]int{}
	for _, f := range d.Findings {
		counts[f.Severity]++
		lines = append(lines, "", s.paint(severityColours[f.Severity], fmt.Sprintf("%-6s", f.Severity))+"  "+visible(f.What))
		for _, more := range []struct{ name, text string }{{"why", f.Why}, {"do", f.Do}} {
			lines = append(lines, fmt.Sprintf("        %-3s  %s", more.name, visible(more.text)))
		}
	}
	if !doctor.Weakens(d.Findings) {
		return append(lines, "", s.paint("32", "nothing weakens the promise"))
	}
	return append(lines, "", fmt.Sprintf("%d broken, %d weak", counts[journal.Broken], counts[journal.Weak]))
}
