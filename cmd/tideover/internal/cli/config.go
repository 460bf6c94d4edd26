package cli

import (
	"cmp"
	"encoding/json"
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
	}
	cmd.AddCommand(newConfigCheck(io), newConfigShow(io))
	return cmd
}

func newConfigCheck(io Streams) *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "check [file]",
		Short: "Check the configuration and list all errors",
		Long: `Reads the configuration as 'tideover serve' does and prints every error with its
line. Nothing is started.

A warning marks a valid setting that is probably a mistake, such as a variable that a
command uses but does not get.

Exit codes: 0 the configuration is valid, 125 it is not.`,
		Example: "  tideover config check tideover.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.path = args[0]
			}
			cfg, src, err := f.load(new(secret.Redactor))
			if err != nil {
				return fmt.Errorf("config: %w", err)
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
	return cmd
}

// contents counts the entries of the configuration by section. Sections without entries are left
// out, except workflows and policies.
func contents(cfg *config.Config) string {
	parts := []string{textfmt.Plural(len(cfg.Workflows), "workflow"), textfmt.PluralOf(len(cfg.Policies), "policy", "policies")}
	for _, p := range []struct {
		n    int
		word string
	}{{len(cfg.Sessions), "session"}, {len(cfg.Providers), "provider"}, {len(cfg.Notifiers), "notifier"}, {len(cfg.Packs), "pack"}} {
		if p.n > 0 {
			parts = append(parts, textfmt.Plural(p.n, p.word))
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
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
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
		return enc.Encode(list)
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
