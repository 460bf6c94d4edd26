package cli

import (
	"cmp"
	"encoding/json"
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
	"github.com/tideover/tideover/internal/textfmt"
)

// detectOptions is what the flags of detect say.
type detectOptions struct {
	source  configFlags
	pack    string
	explain bool
	exit    int
	at      string
	json    bool
}

const detectLong = `Says why a command stopped, from what it printed and its exit code: a rate limit,
and until when; a full context; no credits; its owner; a crash. FILE is what it
printed, - is standard input.

What is trusted, most first: an event (a line of JSON), what the program is known
to say, in the last 20 lines that are not blank, what any program may say, such as
Retry-After: 120, in the last 8, the exit code. If that is 0, only an event and
the program's own last words are.

A pack knows what a program says. It is built in, one of the configuration, or a
file. Without --pack all but files are tried, and the verdict is that of the one
that rests on the most trusted ground, then on the last line, then states a time;
if none matches anything, the exit code decides.

Times without a zone are local. Those without a date, and waits such as
"in 2 hours", are counted from --at, which is when the output was written.

With --json the output is an object:
  reason           rate-limit, context-full, terminal, overloaded, user-exit,
                   completed, crashed, unknown
  terminal         true if no wait helps
  until            when it may go on; absent if that is not stated
  wait_ns          the same as a duration after --at
  stated, as       the words it was read from, and the form they were taken for
  note, meaning    what else there is to say, of a time and of the exit code
  trust            event, header, line, exit
  pack, rule       what matched
  line, number     the line that decided
  findings         with --explain: number, line, pack, rule, matched, verdict

Exit codes: 0 the input could be read, 125 it could not.`

const detectExample = `  tideover detect session.log
  tideover detect --explain session.log           why, and why not
  claude -p hello 2>&1 | tideover detect --pack claude-code -
  tideover detect --explain --pack ./my-pack.yaml session.log
  tideover detect --config tideover.yaml --pack my-claude session.log
  tideover detect --exit 130 session.log
  tideover detect --at 2026-11-15T12:00:00Z old.log
  tideover detect --json session.log | jq -r .until`

func newDetect(io Streams) *cobra.Command {
	var o detectOptions
	cmd := &cobra.Command{
		Use:                   "detect [flags] FILE",
		Short:                 "Say why a command stopped, from what it printed",
		Long:                  detectLong,
		Example:               detectExample,
		Args:                  cobra.ExactArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("exit") {
				o.exit = -1
			} else if o.exit < 0 || o.exit > 255 {
				return fmt.Errorf("--exit: %d is not an exit code; want 0 to 255", o.exit)
			}
			return runDetect(io, o, args[0])
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.pack, "pack", "", "use the pack `NAME`: "+strings.Join(detect.Names(), ", ")+", one of the configuration, or a file such as ./my-pack.yaml")
	f.StringVarP(&o.source.path, "config", "c", "", "the configuration `file`, whose packs may be used too")
	f.BoolVar(&o.explain, "explain", false, "show every line that was considered, and what became of it")
	f.IntVar(&o.exit, "exit", 0, "the command's exit code was `N`; not known if not given")
	f.StringVar(&o.at, "at", "", "the output was written at `TIME`, such as 2026-11-15T12:00:00Z or \"2026-11-15 12:00\"; now if not given")
	f.BoolVar(&o.json, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("pack", o.complete)
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.RegisterFlagCompletionFunc("exit", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("at", cobra.NoFileCompletions)
	return cmd
}

// complete completes the packs; if none begins so, it may be a file.
func (o *detectOptions) complete(*cobra.Command, []string, string) (list []cobra.Completion, _ cobra.ShellCompDirective) {
	packs, _ := o.known()
	for _, p := range packs {
		list = append(list, cobra.CompletionWithDesc(p.Name(), p.Spec().Description))
	}
	return list, cobra.ShellCompDirectiveDefault
}

// detected is a verdict with its explanation.
type detected struct {
	detect.Stop
	Wait     time.Duration    `json:"wait_ns,omitempty"`
	Findings []detect.Finding `json:"findings,omitempty"`
}

func runDetect(io Streams, o detectOptions, name string) error {
	s := screenOf(io.Out)
	if o.at != "" {
		at, err := parseAt(o.at)
		if err != nil {
			return err
		}
		s.now = at
	}
	packs, err := o.packs(io)
	if err != nil {
		return err
	}
	var detectors []*detect.Detector
	for _, p := range packs {
		detectors = append(detectors, detect.New(p, detect.Options{At: s.now, Explain: o.explain}))
	}
	if err := feed(io.In, name, detectors); err != nil {
		return &codedError{err, codeOwn}
	}
	got := o.best(detectors)
	if !got.Until.IsZero() {
		got.Wait = max(got.Until.Sub(s.now), 0)
	}
	if o.json {
		text, err := json.Marshal(got)
		if err != nil {
			return err
		}
		_, err = io.Out.Write(append(visibleJSON(text), '\n'))
		return err
	}
	lines := renderStop(got.Stop, &s)
	if o.explain {
		lines = append(lines, renderFindings(got.Findings, &s)...)
	}
	_, err = fmt.Fprintln(io.Out, strings.Join(lines, "\n"))
	return err
}

// parseAt reads a time, which is local if it names no zone.
func parseAt(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--at: %q is not a time such as 2026-11-15T12:00:00Z", text)
}

// packs returns those that are to be tried.
func (o *detectOptions) packs(io Streams) ([]*detect.Pack, error) {
	if o.pack != "" {
		p, err := o.named()
		if err != nil {
			return nil, fmt.Errorf("--pack: %w", err)
		}
		return []*detect.Pack{p}, nil
	}
	packs, err := o.known()
	if err != nil && o.source.path != "" {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if err != nil { // it was not asked for
		fmt.Fprintf(io.Err, "tideover: the packs of the configuration are not tried: %s\n", visibleLines(err.Error()))
	}
	return packs, nil
}

// known returns the packs of the configuration and those that are built in, even
// if there is an error.
func (o *detectOptions) known() (list []*detect.Pack, err error) {
	cfg, _, err := loadConfig(&o.source)
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

// named returns the pack of the flag. The configuration is read only if the pack
// may be one of it.
func (o *detectOptions) named() (*detect.Pack, error) {
	if ext := filepath.Ext(o.pack); filepath.Base(o.pack) != o.pack || ext == ".yaml" || ext == ".yml" {
		return detect.Load(o.pack)
	}
	pack, unknown := detect.Builtin(o.pack)
	if unknown == nil && o.source.path == "" {
		return pack, nil
	}
	cfg, _, err := loadConfig(&o.source)
	switch {
	case err != nil && unknown != nil:
		return nil, fmt.Errorf("%w; and the configuration can't be read: %w", unknown, err)
	case err != nil:
		return nil, fmt.Errorf("the configuration can't be read: %w", err)
	case cfg.Packs[o.pack] != nil:
		return cfg.Packs[o.pack], nil
	case unknown != nil && len(cfg.Packs) > 0:
		return nil, fmt.Errorf("%w, and of the configuration %s", unknown, strings.Join(slices.Sorted(maps.Keys(cfg.Packs)), ", "))
	default:
		return pack, unknown
	}
}

// feed gives the file to all detectors.
func feed(in *os.File, name string, detectors []*detect.Detector) error {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	if in == nil {
		return errors.New("there is no standard input")
	}
	writers := make([]io.Writer, len(detectors))
	for i, d := range detectors {
		writers[i] = d.Stream()
	}
	_, err := io.Copy(io.MultiWriter(writers...), in)
	return err
}

// best returns the verdict to believe, of those of the detectors.
func (o *detectOptions) best(detectors []*detect.Detector) detected {
	var stops []detect.Stop
	var findings [][]detect.Finding
	for _, d := range detectors {
		stop, list := d.Explain(o.exit, false)
		stop.Note = cmp.Or(stop.Note, stop.Misread(d.Tail()))
		stops, findings = append(stops, stop), append(findings, list)
	}
	i := detect.Best(stops)
	got := detected{Stop: stops[i]}
	if o.explain {
		got.Findings = findings[i]
	}
	return got
}

func renderStop(stop detect.Stop, s *screen) []string {
	head := s.paint("1", stop.Reason.String())
	switch {
	case !stop.Until.IsZero():
		head += fmt.Sprintf(" until %s (%s)", s.stamp(stop.Until), relative(stop.Until.Sub(s.now)))
	case stop.Terminal:
		head += ", and no wait helps"
	case stop.Reason == detect.RateLimit:
		head += ", until when is not stated"
	}
	lines := []string{head}
	switch {
	case stop.Rule == "" && stop.Reason == detect.Unknown:
		lines = append(lines, "  nothing that was printed says why, and the exit code is not known (--exit)")
	case stop.Rule == "":
		lines = append(lines, "  by the exit code: nothing that was printed says more")
	default:
		lines = append(lines, visible(fmt.Sprintf("  line %d: %s", stop.Number, stop.Line)),
			fmt.Sprintf("  rule %s of pack %s, by %s", stop.Rule, stop.Pack, ground(stop)))
	}
	for _, more := range []string{stop.Meaning, stop.Note} {
		if more != "" {
			lines = append(lines, "  "+visible(more))
		}
	}
	return lines
}

// ground says what a verdict rests on.
func ground(stop detect.Stop) string {
	text := stop.Trust.String()
	switch {
	case stop.As == "rule":
		text += "; the wait is the rule's"
	case stop.As == "rule-time":
		text += "; the time is the rule's, " + stop.Stated
	case !stop.Until.IsZero():
		text += fmt.Sprintf("; the time is read from %s as %s", visible(fmt.Sprintf("%q", stop.Stated)), stop.As)
	}
	return text
}

func relative(d time.Duration) string {
	if d <= 0 {
		return "now"
	}
	return "in " + textfmt.CoarseDuration(d)
}

func renderFindings(list []detect.Finding, s *screen) []string {
	if len(list) == 0 {
		return []string{"", "no line has words of a rule"}
	}
	t := &table{heads: []string{"LINE", "RULE", "VERDICT", "TEXT"}}
	for _, f := range list {
		rule := cell{f.Rule, ""}
		if !f.Matched {
			rule = cell{f.Rule, "2"}
		}
		t.add(plain(fmt.Sprint(f.Number)), rule, plain(f.Verdict), plain(f.Line))
	}
	return append([]string{""}, t.render(s)...)
}
