package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

func newConfig(io Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and show the configuration",
		Long: `Checks or shows the configuration that 'tideover serve' would use here. Secrets are
shown as the references in the file, never as values.`,
		Example: "  tideover config check\n  tideover config show --origin",
	}
	cmd.AddCommand(newConfigCheck(io), newConfigShow(io))
	return cmd
}

func newConfigCheck(io Streams) *cobra.Command {
	var f configFlags
	p := resultPrinter{io: io}
	cmd := &cobra.Command{
		Use:   "check [flags] [FILE]",
		Short: "Check the configuration and list all errors",
		Long: `Reads the configuration as 'tideover serve' does and prints every error with its
line. Nothing is started.

A warning marks a valid setting that is probably a mistake, such as a variable that a
command uses but does not get.

With --json the output is one object: valid, file, contents (the number of entries of
each section), errors and warnings. Each of these has file, line, column, path and
message.`,
		Example: "  tideover config check tideover.yaml\n  tideover config check --json | jq -r '.errors[].message'",
		Args:    atMostOne("file"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.path = args[0]
			}
			cfg, src, err := f.load(new(secret.Redactor))
			if p.json {
				return p.printCheck(cfg, src.Path, err)
			}
			if err != nil {
				return &codedError{fmt.Errorf("config: %w", err), checkCode(err)}
			}
			for _, w := range cfg.Warnings() {
				fmt.Fprintf(io.Err, "warning: %v\n", w)
			}
			_, err = fmt.Fprintf(io.Out, "%s: valid; %s\n", cmp.Or(src.Path, "no file, defaults only"), contents(cfg))
			return err
		},
	}
	f.add(cmd)
	f.addCluster(cmd)
	cmd.DisableFlagsInUseLine = true // the usage line contains [flags] already
	cmd.Flags().BoolVarP(&p.json, "json", "j", false, "print JSON")
	return exits{codeSuccess: "the configuration is valid", CodeFailed: "it is not"}.declare(cmd)
}

// checkCode returns the exit code for an error of the configuration: that it is not valid, or that it
// can't be read.
func checkCode(err error) int {
	if _, invalid := errors.AsType[strictyaml.FieldErrors](err); invalid {
		return CodeFailed
	}
	return CodeOwn
}

// configProblem is an error or a warning about the configuration, in JSON.
type configProblem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Origin  string `json:"origin,omitempty"` // a variable or a flag, if the value is not in the file
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

func configProblems(list []*strictyaml.FieldError) []configProblem {
	out := make([]configProblem, len(list))
	for i, e := range list {
		out[i] = configProblem{e.File, e.Line, e.Column, e.Origin, e.Path, e.Message}
	}
	return out
}

// configCheck is the JSON output of config check.
type configCheck struct {
	Valid    bool            `json:"valid"`
	File     string          `json:"file,omitempty"` // absent if there is none, and the defaults were checked
	Contents map[string]int  `json:"contents,omitempty"`
	Errors   []configProblem `json:"errors"`
	Warnings []configProblem `json:"warnings"`
}

// printCheck prints the result of config check as JSON. It returns an exit error if the
// configuration is not valid. cfg is nil then.
func (p *resultPrinter) printCheck(cfg *config.Config, file string, err error) error {
	out := configCheck{Valid: err == nil, File: file, Errors: []configProblem{}, Warnings: []configProblem{}}
	if problems, ok := errors.AsType[strictyaml.FieldErrors](err); ok {
		out.Errors = configProblems(problems)
	} else if err != nil {
		out.Errors = []configProblem{{File: file, Message: err.Error()}}
	} else {
		out.Warnings = configProblems(cfg.Warnings())
		out.Contents = map[string]int{}
		for _, s := range sectionsOf(cfg) {
			out.Contents[s.plural] = s.entries
		}
	}
	if err := p.printJSON(out); err != nil || out.Valid {
		return err
	}
	return exitError{Code: checkCode(err)}
}

// section has the number of entries of a section of the configuration.
type section struct {
	entries          int
	singular, plural string // words for entries
	always           bool   // it is named even if it has no entries
}

func sectionsOf(cfg *config.Config) []section {
	return []section{
		{len(cfg.Workflows), "workflow", "workflows", true}, {len(cfg.Policies), "policy", "policies", true},
		{len(cfg.Sessions), "session", "sessions", false}, {len(cfg.Providers), "provider", "providers", false},
		{len(cfg.Notifiers), "notifier", "notifiers", false}, {len(cfg.Packs), "pack", "packs", false},
	}
}

// contents counts the entries of the configuration by section. Sections without entries are left
// out, except workflows and policies.
func contents(cfg *config.Config) string {
	var parts []string
	for _, s := range sectionsOf(cfg) {
		if s.entries > 0 || s.always {
			parts = append(parts, textfmt.PluralOf(s.entries, s.singular, s.plural))
		}
	}
	if cfg.Engine.Clustered() {
		parts = append(parts, "runs are stored in the cluster "+cfg.Engine.Name)
	}
	return strings.Join(parts, ", ")
}

func newConfigShow(io Streams) *cobra.Command {
	var f configFlags
	var origin, asJSON bool
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show all settings in effect",
		Long:    "Shows all settings in effect, including defaults. With --origin it also shows where each\ncomes from: a flag, a variable, the file or a default.",
		Example: "  tideover config show --origin\n  TIDEOVER_SERVER_LISTEN=127.0.0.1:9000 tideover config show --origin",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, _, err := f.load(new(secret.Redactor))
			if err != nil {
				return fmt.Errorf("config: %w", err)
			}
			return showValues(io, cfg.Values(), origin, asJSON)
		},
	}
	f.add(cmd)
	f.addCluster(cmd)
	cmd.Flags().BoolVar(&origin, "origin", false, "show where each value comes from")
	cmd.Flags().BoolVarP(&asJSON, "json", "j", false, "print JSON")
	return cmd
}

func showValues(io Streams, values []strictyaml.Value, origin, asJSON bool) error {
	if asJSON {
		type value struct {
			Path   string `json:"path"`
			Value  string `json:"value"`
			Origin string `json:"origin"`
		}
		list := make([]value, len(values))
		for i, v := range values {
			list[i] = value{v.Path, v.Text, v.Origin}
		}
		enc := json.NewEncoder(io.Out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string][]value{"values": list})
	}
	w := tabwriter.NewWriter(io.Out, 0, 0, 2, ' ', 0)
	for _, v := range values {
		if origin {
			fmt.Fprintf(w, "%s\t%s\t%s\n", v.Path, v.Text, v.Origin)
		} else {
			fmt.Fprintf(w, "%s\t%s\n", v.Path, v.Text)
		}
	}
	return w.Flush()
}

func newSchema(io Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Long: `Prints the JSON Schema of the configuration file. With it, an editor completes keys and
checks values. Save it beside the file and name it on the file's first line:
  # yaml-language-server: $schema=tideover.schema.json`,
		Example: "  tideover schema > tideover.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.Out.Write(config.Schema())
			return err
		},
	}
}
