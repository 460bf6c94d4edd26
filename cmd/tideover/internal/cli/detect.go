package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/internal/secret"
)

// detectOptions holds the flags of detect.
type detectOptions struct {
	resultPrinter
	source  configFlags
	pack    string
	explain bool
	exit    int
	at      string
}

const detectLong = `Finds out why a command stopped, from its output and its exit code: a rate limit and
when it ends, a full context, no credits, an exit by the user, or a crash. FILE
holds the output; - is standard input.

Evidence is trusted in this order:
  1. an event (a line of JSON)
  2. a phrase of that program in the last 20 lines that are not blank
  3. a phrase of any program, such as Retry-After: 120, in the last 8
  4. the exit code
If the exit code is 0, only an event and a phrase of that program count.

A pack is a set of rules with the phrases of a program. It is built in, defined in
the configuration, or a file. Without --pack all packs except files are tried. The
verdict with the most trusted evidence wins, then the one from the latest line, then
the one with a stated time. If no rule matches, the exit code decides.

Times without a zone are local. A time without a date, or a wait such as
"in 2 hours", is relative to --at, the time at which the output was written.

With --json the output is an object:
  reason           rate-limit, context-full, terminal, overloaded, user-exit,
                   completed, crashed, unknown
  terminal         true if waiting does not help
  until            when the command can continue; absent if not stated
  wait_ns          the same as a duration after --at
  stated, as       the words that state the time, and the format they were read as
  note, meaning    remarks on the time and on the exit code
  trust            event, header, line, exit
  pack, rule       the rule that matched
  line, number     the line that decided
  findings         with --explain: number, line, pack, rule, matched, verdict`

const detectExample = `  tideover detect session.log
  tideover detect --explain session.log           all rules that were considered
  claude -p hello 2>&1 | tideover detect --pack claude-code -
  tideover detect --explain --pack ./my-pack.yaml session.log
  tideover detect --config tideover.yaml --pack my-claude session.log
  tideover detect --exit 130 session.log
  tideover detect --at 2026-11-15T12:00:00Z old.log
  tideover detect --json session.log | jq -r .until`

func newDetect(io Streams) *cobra.Command {
	o := &detectOptions{resultPrinter: resultPrinter{io: io}}
	cmd := &cobra.Command{
		Use:     "detect [flags] FILE",
		Short:   "Find out why a command stopped, from its output",
		Long:    detectLong,
		Example: detectExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("exit") {
				o.exit = -1
			} else if o.exit < 0 || o.exit > 255 {
				return fmt.Errorf("--exit: %d is not an exit code: want 0 to 255", o.exit)
			}
			return o.run(args[0])
		},
	}
	f := orderedFlags(cmd)
	f.StringVar(&o.pack, "pack", "", "use the pack `NAME`: "+strings.Join(detect.Names(), ", ")+", one of the configuration, or a file such as ./my-pack.yaml")
	f.StringVarP(&o.source.path, "config", "c", "", "the configuration `file`, whose packs are tried, too")
	f.BoolVar(&o.explain, "explain", false, "show every line that was considered, and the verdict on it")
	f.IntVar(&o.exit, "exit", 0, "exit code `N` of the command (default: unknown)")
	f.StringVar(&o.at, "at", "", "`TIME` at which the output was written, such as 2026-11-15T12:00:00Z or \"2026-11-15 12:00\" (default: now)")
	f.BoolVarP(&o.json, "json", "j", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("pack", o.completePacks)
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	completeNoFiles(cmd, "exit", "at")
	return cmd
}

// completePacks completes the names of rule packs, and files.
func (o *detectOptions) completePacks(*cobra.Command, []string, string) (list []cobra.Completion, _ cobra.ShellCompDirective) {
	packs, _ := o.availablePacks()
	for _, p := range packs {
		list = append(list, cobra.CompletionWithDesc(p.Name(), p.Spec().Description))
	}
	return list, cobra.ShellCompDirectiveDefault
}

// verdict is the output of detect: why the command stopped, and with --explain the lines that were
// considered.
type verdict struct {
	detect.Stop
	Wait     time.Duration    `json:"wait_ns,omitempty"`
	Findings []detect.Finding `json:"findings,omitempty"`
}

func (o *detectOptions) run(name string) error {
	at := time.Now()
	if o.at != "" {
		var err error
		if at, err = parseAt(o.at); err != nil {
			return err
		}
	}
	packs, err := o.packs()
	if err != nil {
		return err
	}
	var detectors []*detect.Detector
	for _, p := range packs {
		detectors = append(detectors, detect.New(p, detect.Options{At: at, Explain: o.explain, Unknown: o.pack == ""}))
	}
	if err := writeToDetectors(o.io.In, name, detectors); err != nil {
		return &codedError{err, CodeOwn}
	}
	got := o.bestVerdict(detectors)
	if !got.Until.IsZero() {
		got.Wait = max(got.Until.Sub(at), 0)
	}
	return o.printRendered(got, func(s *screen) []string {
		s.now = at
		lines := renderStop(got.Stop, s)
		if o.explain {
			lines = append(lines, renderFindings(got.Findings, s)...)
		}
		return lines
	})
}

// parseAt parses the value of --at. A time without a zone is local.
func parseAt(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--at: %q is not a time: want one such as 2026-11-15T12:00:00Z", text)
}

// packs returns the rule packs to try: the pack that --pack names, or all packs. If the
// configuration can't be read, it returns an error only if --config names the file; otherwise it
// prints a warning.
func (o *detectOptions) packs() ([]*detect.Pack, error) {
	if o.pack != "" {
		p, err := o.packByName()
		if err != nil {
			return nil, fmt.Errorf("--pack: %w", err)
		}
		return []*detect.Pack{p}, nil
	}
	packs, err := o.availablePacks()
	if err != nil && o.source.path != "" {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if err != nil { // the configuration was found, not named by --config
		o.warnLines("the packs of the configuration are not used: " + err.Error())
	}
	return packs, nil
}

// availablePacks returns the rule packs of the configuration, followed by the built-in packs. If
// the configuration can't be read, it returns the built-in packs together with the error.
func (o *detectOptions) availablePacks() (list []*detect.Pack, err error) {
	cfg, _, err := o.source.load(new(secret.Redactor))
	if err == nil {
		for _, name := range slices.Sorted(maps.Keys(cfg.Packs)) {
			list = append(list, cfg.Packs[name])
		}
	}
	for _, name := range detect.Names() {
		p, err2 := detect.Builtin(name)
		if err2 != nil {
			return list, err2
		}
		list = append(list, p)
	}
	return list, err
}

// packByName returns the rule pack that --pack names. It reads the configuration only if the pack
// may be defined there.
func (o *detectOptions) packByName() (*detect.Pack, error) {
	if ext := filepath.Ext(o.pack); filepath.Base(o.pack) != o.pack || ext == ".yaml" || ext == ".yml" {
		return detect.Load(o.pack)
	}
	pack, unknown := detect.Builtin(o.pack)
	if unknown == nil && o.source.path == "" {
		return pack, nil
	}
	cfg, _, err := o.source.load(new(secret.Redactor))
	switch {
	case err != nil && unknown != nil:
		return nil, fmt.Errorf("%w; reading the configuration: %w", unknown, err)
	case err != nil:
		return nil, fmt.Errorf("reading the configuration: %w", err)
	case cfg.Packs[o.pack] != nil:
		return cfg.Packs[o.pack], nil
	case unknown != nil && len(cfg.Packs) > 0:
		return nil, fmt.Errorf("%w; the configuration has %s", unknown, strings.Join(slices.Sorted(maps.Keys(cfg.Packs)), ", "))
	default:
		return pack, unknown
	}
}

// writeToDetectors copies the file with this name to all detectors; - is standard input.
func writeToDetectors(in *os.File, name string, detectors []*detect.Detector) error {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	if in == nil {
		return errors.New("standard input is closed")
	}
	writers := make([]io.Writer, len(detectors))
	for i, d := range detectors {
		writers[i] = d.Stream()
	}
	_, err := io.Copy(io.MultiWriter(writers...), in)
	return err
}

// bestVerdict returns the most trusted verdict of the detectors.
func (o *detectOptions) bestVerdict(detectors []*detect.Detector) verdict {
	var stops []detect.Stop
	var findings [][]detect.Finding
	for _, d := range detectors {
		stop, list := d.Explain(o.exit)
		stop.Note = cmp.Or(stop.Note, stop.Misread(d.Tail()))
		stops, findings = append(stops, stop), append(findings, list)
	}
	i := detect.Best(stops)
	got := verdict{Stop: stops[i]}
	if o.explain {
		got.Findings = findings[i]
	}
	return got
}

func renderStop(stop detect.Stop, s *screen) []string {
	head := s.paint("1", stop.Reason.String())
	switch {
	case !stop.Until.IsZero():
		head += fmt.Sprintf(" until %s (%s)", s.stamp(stop.Until), s.when(&stop.Until))
	case stop.Terminal:
		head += "; waiting does not help"
	case stop.Reason == detect.RateLimit:
		head += "; no end is stated"
	}
	lines := []string{head}
	switch {
	case stop.Rule == "" && stop.Reason == detect.Unknown:
		lines = append(lines, "  the output does not say why, and the exit code is unknown (--exit)")
	case stop.Rule == "":
		lines = append(lines, "  from the exit code; the output does not say more")
	default:
		lines = append(lines, visible(fmt.Sprintf("  line %d: %s", stop.Number, stop.Line)),
			fmt.Sprintf("  rule %s of pack %s, evidence: %s", stop.Rule, stop.Pack, describeEvidence(stop)))
	}
	for _, more := range []string{stop.Meaning, stop.Note} {
		if more != "" {
			lines = append(lines, "  "+visible(more))
		}
	}
	return lines
}

// describeEvidence says which evidence a verdict is based on, and where its time comes from.
func describeEvidence(stop detect.Stop) string {
	text := stop.Trust.String()
	switch {
	case stop.As == "rule":
		text += "; the rule sets the wait"
	case stop.As == "rule-time":
		text += "; the rule sets the time, " + stop.Stated
	case !stop.Until.IsZero():
		text += fmt.Sprintf("; time parsed from %s as %s", visible(fmt.Sprintf("%q", stop.Stated)), stop.As)
	}
	return text
}

func renderFindings(list []detect.Finding, s *screen) []string {
	if len(list) == 0 {
		return []string{"", "no line contains a phrase of any rule"}
	}
	t := &table{heads: []string{"LINE", "RULE", "VERDICT", "TEXT"}}
	for _, f := range list {
		rule := plain(f.Rule)
		if !f.Matched {
			rule.colour = "2"
		}
		verdict := f.Verdict
		if f.Layers != "" {
			verdict += " (" + f.Layers + ")"
		}
		t.add(plain(fmt.Sprint(f.Number)), rule, plain(verdict), plain(f.Line))
	}
	return append([]string{""}, t.render(s)...)
}
