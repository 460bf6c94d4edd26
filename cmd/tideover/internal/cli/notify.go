package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// codeNotSent is the exit code when a test message could not be sent.
const codeNotSent = 1

type notifyOptions struct {
	source configFlags
	json   bool
	retry  bool
}

func newNotify(io Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notify",
		Short: "Try the notifiers of the configuration",
		Long: `The notifiers of the configuration tell somebody what happens: that a session or a
workflow gave up, that it waits for long, that it goes on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNotifyTest(io))
	return cmd
}

func newNotifyTest(io Streams) *cobra.Command {
	o := &notifyOptions{}
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test message, and say what happened",
		Long: `Sends a test message by a notifier of the configuration. Neither its limits nor its
events count. One attempt is made, so that an error shows at once; with --retry as
many as its policy grants.

Exit codes: 0 sent, 1 not sent, 125 an error of ours, such as a name that is not
in the configuration.`,
		Example: "  tideover notify test phone",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			return runNotifyTest(ctx, io, o, args[0])
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			cfg, err := o.load(new(secret.Redactor))
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return slices.Sorted(maps.Keys(cfg.Notifiers)), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVarP(&o.source.path, "config", "c", "", "the configuration `file`")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the outcome as JSON")
	cmd.Flags().BoolVar(&o.retry, "retry", false, "try again, by the notifier's policy")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

func (o *notifyOptions) load(redactor *secret.Redactor) (*config.Config, error) {
	src, err := o.source.source(redactor)
	if err != nil {
		return nil, err
	}
	return config.Load(src)
}

// notifyOutcome is the JSON of a test.
type notifyOutcome struct {
	Notifier string `json:"notifier"`
	Kind     string `json:"kind"`
	Sent     bool   `json:"sent"`
	Attempts int    `json:"attempts"`
	Error    string `json:"error,omitempty"`
}

func runNotifyTest(ctx context.Context, io Streams, o *notifyOptions, name string) error {
	redactor := new(secret.Redactor)
	cfg, err := o.load(redactor)
	if err != nil {
		return err
	}
	n := cfg.Notifiers[name]
	if n == nil {
		return fmt.Errorf("notify test: %s", noNotifier(cfg, o.source, name))
	}
	t, err := newTeller(cfg, n)
	if err != nil {
		return err
	}
	if !o.retry {
		if t.runner, err = retry.New(retry.Policy{Attempts: 1}); err != nil {
			return err
		}
	}
	out := notifyOutcome{Notifier: name, Kind: n.Kind}
	m := notify.TestMessage(name, time.Now(), origin())
	err = t.send(ctx, m, &out.Attempts)
	if out.Sent = err == nil; err != nil {
		if e, ok := errors.AsType[*notify.SendError](err); ok {
			err = e
		}
		out.Error = redactor.String(err.Error())
	}
	switch {
	case o.json:
		text, _ := json.Marshal(out) // texts and numbers
		fmt.Fprintf(io.Out, "%s\n", text)
	case out.Sent:
		fmt.Fprintf(io.Out, "sent by %s (%s)\n", name, n.Kind)
	default:
		fmt.Fprintf(io.Err, "tideover: %s\n", visibleLines(out.Error))
	}
	if !out.Sent {
		return exitError{Code: codeNotSent}
	}
	return nil
}
