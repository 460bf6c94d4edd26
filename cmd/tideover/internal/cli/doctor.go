package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/secret"
	"github.com/tideover/tideover/engine/jetstream"
)

const doctorLong = `Looks for whatever makes the promise weaker that what was acknowledged is not lost,
and says what to do about it. It reads the configuration as serve would, looks by
itself, whether a server runs or not, and changes nothing.

Of a folder it looks at its durability, its disk, who may read and write it, and the
clock. Of a cluster (engine.nats) it asks the NATS servers how many copies they keep,
whether they sync each message, whether all copies are current, whether clocks agree
and streams are as they should be. Whether they sync is seen with the system account
only: engine.system-credentials, or system-user and system-password.

Each finding is broken, weak, or a note that is only worth knowing.

Exit codes:
  0    nothing weakens the promise; there may be notes
  1    something is weak or broken
  125  an error of ours: a bad flag, a configuration that can't be read`

const doctorExample = `  tideover doctor
  tideover doctor --config /etc/tideover.yaml
  tideover doctor --json | jq -r '.findings[] | select(.severity != "note").do'`

func newDoctor(io Streams) *cobra.Command {
	var f configFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "doctor [flags]", Short: "Say what makes the promise weaker, and what to do", Long: doctorLong, Example: doctorExample,
		Args: none, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := &remote{io: io}
			ctx, stop := r.context(cmd)
			defer stop()
			return coded(examine(ctx, io, &f, asJSON))
		},
	}
	f.add(cmd)
	f.addCluster(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// diagnosis is what the doctor says.
type diagnosis struct {
	Engine   string           `json:"engine"` // where runs are kept, in words
	Findings []doctor.Finding `json:"findings"`
}

func examine(ctx context.Context, streams Streams, f *configFlags, asJSON bool) error {
	redactor := new(secret.Redactor)
	src, err := f.source(redactor)
	if err != nil {
		return err
	}
	cfg, err := config.Load(src)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	quiet := time.AfterFunc(quietTime, func() { waiting(streams.Err, cfg) })
	d, err := diagnose(ctx, cfg, redactor)
	quiet.Stop()
	if err != nil {
		return fmt.Errorf("doctor: %s", redactor.String(err.Error()))
	}
	if asJSON {
		text, err := json.Marshal(d)
		if err != nil {
			return err
		}
		_, err = streams.Out.Write(append(visibleJSON(text), '\n'))
		if err != nil {
			return err
		}
	} else {
		s := screenOf(streams.Out)
		if _, err := fmt.Fprintln(streams.Out, strings.Join(renderDiagnosis(d, &s), "\n")); err != nil {
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
		list, err := cluster.Examine(ctx, cluster.Options{Config: cfg, Dir: cfg.Server.Data, Log: log, Redact: redactor.String})
		if err != nil {
			return d, err
		}
		d.Findings = append(d.Findings, list...)
	}
	d.Findings = append(d.Findings, folder.Check()...)
	return d, nil
}

// severityColours are of the 16 that every terminal has.
var severityColours = map[string]string{jetstream.Broken: "31", jetstream.Weak: "33", jetstream.Note: "2"}

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
	return append(lines, "", fmt.Sprintf("%d broken, %d weak", counts[jetstream.Broken], counts[jetstream.Weak]))
}
