package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

type notifyOptions struct {
	resultPrinter
	source configFlags
	retry  bool
}

func newNotify(io Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notify",
		Short: "Test the notifiers of the configuration",
		Long: `Tests the notifiers of the configuration. A notifier sends messages about sessions and
workflows: that one gave up, waits for a long time, or continues.`,
		Example: "  tideover notify test phone",
	}
	cmd.AddCommand(newNotifyTest(io))
	return cmd
}

func newNotifyTest(io Streams) *cobra.Command {
	o := &notifyOptions{resultPrinter: resultPrinter{io: io}}
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test message and print the result",
		Long: `Sends a test message with a notifier of the configuration, ignoring its rate limits and
its selection of events. It makes one attempt, so that an error shows at once; with
--retry it makes as many as the notifier's policy allows.`,
		Example: "  tideover notify test phone",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.test(cmd.Context(), args[0]) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			cfg, _, err := o.source.load(new(secret.Redactor))
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return slices.Sorted(maps.Keys(cfg.Notifiers)), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVarP(&o.source.path, "config", "c", "", "the configuration `file`")
	cmd.Flags().BoolVarP(&o.json, "json", "j", false, "print the outcome as JSON")
	cmd.Flags().BoolVar(&o.retry, "retry", false, "retry by the notifier's policy")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return exits{codeSuccess: "sent", CodeFailed: "not sent", CodeUnknown: "unknown notifier"}.declare(cmd)
}

// notifyOutcome is the JSON output of a test.
type notifyOutcome struct {
	Notifier string `json:"notifier"`
	Kind     string `json:"kind"`
	Sent     bool   `json:"sent"`
	Attempts int    `json:"attempts"`
	Error    string `json:"error,omitempty"`
}

func (o *notifyOptions) test(ctx context.Context, name string) error {
	redactor := new(secret.Redactor)
	cfg, _, err := o.source.load(redactor)
	if err != nil {
		return err
	}
	n := cfg.Notifiers[name]
	if n == nil {
		return &codedError{fmt.Errorf("notify test: %s", unknownNotifier(cfg, o.source, name)), CodeUnknown}
	}
	t, err := newExecNotifier(cfg, n)
	if err != nil {
		return err
	}
	if !o.retry {
		if t.runner, err = retry.New(retry.Policy{Attempts: 1}); err != nil {
			return err
		}
	}
	out := notifyOutcome{Notifier: name, Kind: n.Kind}
	m := notify.TestMessage(name, time.Now(), messageOrigin())
	err = t.send(ctx, m, &out.Attempts)
	if out.Sent = err == nil; err != nil {
		if e, ok := errors.AsType[*notify.SendError](err); ok {
			err = e
		}
		out.Error = redactor.String(err.Error())
	}
	if out.Sent || o.json {
		err = o.printJSONOrLine(out, "sent by %s (%s)", name, n.Kind)
	} else {
		fmt.Fprintf(o.io.Err, "tideover: %s\n", visibleLines(out.Error))
	}
	if !out.Sent {
		return exitError{Code: CodeFailed}
	}
	return err
}

// messageOrigin returns the host name, which messages state as their origin.
func messageOrigin() notify.Place {
	host, _ := os.Hostname() // on an error it is empty, and messages do not state it
	return notify.Place{Host: host}
}

// unknownNotifier returns the error text for a notifier that is not in the configuration. The text
// lists the notifiers of the configuration.
func unknownNotifier(cfg *config.Config, flags configFlags, name string) string {
	src, err := flags.source(new(secret.Redactor))
	if err != nil || src.Path == "" {
		return fmt.Sprintf("unknown notifier %q: no configuration was found: name a file with --config", name)
	}
	names := slices.Sorted(maps.Keys(cfg.Notifiers))
	return fmt.Sprintf("unknown notifier %q: %s defines %s", name, visible(src.Path), cmp.Or(strings.Join(names, ", "), "none"))
}
