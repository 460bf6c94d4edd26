package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
)

// providersOptions holds the flags that all commands about providers have.
type providersOptions struct{ remote }

const providersLong = `Lists the providers of the gateway. NAME lists only that provider.

  STATE         whether requests are sent to it
  IN-FLIGHT     requests in progress
  WAITING       requests that wait for a retry or a free slot
  TTFB          recent mean time to the first byte
  ATTEMPTS/REQ  mean attempts per request, including those at other providers
  FAILOVERS     requests that another provider took over
  NEXT          time of the next probe of the provider or of a key

With --watch the list is updated in place on a terminal. Otherwise a line is printed
for each provider whose state, failovers, probes or keys have changed.`

const providersExample = `  tideover providers
  tideover providers --watch
  tideover providers show anthropic
  tideover providers drain anthropic
  tideover providers --json | jq -r '.providers[] | select(.state != "up").name'`

func newProviders(io Streams) *cobra.Command {
	o := &providersOptions{newRemote(io)}
	var watch bool
	cmd := &cobra.Command{
		Use: "providers [flags] [NAME]", Short: "Show and control the providers of the gateway", Long: providersLong, Example: providersExample,
		Args: atMostOneProvider, ValidArgsFunction: single(o.completeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args, "")
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				if watch {
					return hintSubcommands(cmd, o.watch(ctx, c, name))
				}
				return hintSubcommands(cmd, o.list(ctx, c, name))
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "update the list every second")
	o.command(cmd)
	cmd.AddCommand(newProvidersShow(io))
	for _, v := range providerVerbs {
		cmd.AddCommand(newProviderVerb(io, v))
	}
	return cmd
}

// hintSubcommands adds the names of the subcommands to the error about an unknown provider.
func hintSubcommands(cmd *cobra.Command, err error) error {
	if p, ok := errors.AsType[*control.Error](err); ok && p.Code == control.CodeNotFound {
		p.Hint += "; the subcommands are " + strings.Join(subcommandNames(cmd), ", ")
	}
	return err
}

// atMostOneProvider accepts the name of a provider, or nothing. Subcommands are handled by cobra.
func atMostOneProvider(cmd *cobra.Command, args []string) error {
	if err := atMostOne("provider")(cmd, args); err != nil {
		return fmt.Errorf("%w; %q is not a subcommand: the subcommands are %s", err, args[0], strings.Join(subcommandNames(cmd), ", "))
	}
	return nil
}

// command adds the common flags and help to a command, and returns it. The error that no server is
// running also suggests 'tideover gateway'.
func (o *providersOptions) command(cmd *cobra.Command) *cobra.Command {
	return o.gatewayCommand(cmd, exits{CodeUnknown: "unknown provider"})
}

// gatewayCommand is command with an error that also suggests 'tideover gateway'.
func (r *remote) gatewayCommand(cmd *cobra.Command, codes exits) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return noGateway(run(cmd, args)) }
	return r.command(cmd, codes)
}

// noGateway replaces the error that no server is running by an error that also suggests to start
// 'tideover gateway'.
func noGateway(err error) error {
	if u, ok := errors.AsType[*client.UnreachableError](err); ok && gone(err) {
		return noGatewayError{u}
	}
	return err
}

type noGatewayError struct{ *client.UnreachableError }

func (e noGatewayError) Unwrap() error { return e.UnreachableError }

func (e noGatewayError) Error() string {
	return fmt.Sprintf("no gateway at %s: start one with `tideover serve` or `tideover gateway`, or name one with --server", e.Where)
}

// providerVerb is a command that changes a provider. It has the name of the button on the page.
type providerVerb struct{ name, action, short, long string }

var providerVerbs = []providerVerb{
	{"block", gateway.Open, "Block all requests to a provider",
		`Blocks all requests to a provider until it is forced or reset. They go to its
fallback, or are rejected.`},
	{"force", gateway.Close, "Force all requests through to a provider",
		`Sends all requests to a provider until it is blocked or reset. It counts as up, even if
requests fail.`},
	{"reset", gateway.Reset, "Return a provider to automatic control",
		`Returns a provider to automatic control. This ends block, force and drain, and clears
the limits and rejections that are recorded for its keys. If the provider is down,
the next request probes it at once.`},
	{"drain", gateway.Drain, "Finish the requests to a provider and accept no new ones",
		`Finishes the requests to a provider that are in progress. New ones go to its fallback,
or are rejected, until it is reset.`},
}

// newProviderVerb returns the command that applies an action to a provider.
func newProviderVerb(io Streams, v providerVerb) *cobra.Command {
	o := &providersOptions{newRemote(io)}
	return o.command(&cobra.Command{
		Use: v.name + " [flags] NAME", Aliases: otherNames(v.name), Short: v.short, Long: v.long,
		Example: "  tideover providers " + v.name + " anthropic", Args: exactlyOne("provider"), ValidArgsFunction: single(o.completeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				st, err := c.ApplyProvider(ctx, args[0], v.action)
				if err != nil {
					return err
				}
				meaning := optional(": ", admin.ProviderMeaning(&st), "")
				return o.printJSONOrLine(&st, "%s %s%s", st.Name, st.State, meaning)
			})
		},
	})
}

// completeNames completes the name of a provider.
func (o *providersOptions) completeNames(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return completeFromServer(&o.remote, func(ctx context.Context, c *client.Client) (names []cobra.Completion) {
		all, _ := c.Providers(ctx)
		for _, st := range all.Providers {
			if strings.HasPrefix(st.Name, prefix) {
				names = append(names, cobra.CompletionWithDesc(visible(st.Name), visible(st.State)))
			}
		}
		return names
	})
}
