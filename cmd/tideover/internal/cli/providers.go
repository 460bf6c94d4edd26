package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/gateway"
)

// providersOptions are what all verbs for providers have.
type providersOptions struct{ remote }

const providersLong = `Lists the providers of the gateway: where they are, how many requests they work on
and how many wait, the mean time to the first byte of late, how many attempts a
request takes, here or elsewhere, and how often another provider took one over. NEXT
is when somebody looks whether it is back, or when a key of it may be used again.

With --watch the list stays up to date: on a terminal in place, otherwise as a
line for each provider whose state, failovers, probes or keys have changed.`

const providersExample = `  tideover providers
  tideover providers --watch
  tideover providers show anthropic
  tideover providers drain anthropic
  tideover providers --json | jq -r '.providers[] | select(.state != "up").name'`

const providersCodes = `
Exit codes:
  0      done
  3      there is no such provider
  125    an error of ours: a bad flag, no server, something it refused
  128+n  signal n told us to end`

func newProviders(io Streams) *cobra.Command {
	o := &providersOptions{remote{io: io}}
	var watch bool
	cmd := &cobra.Command{
		Use: "providers [flags] [NAME]", Short: "Look at the providers of the gateway, and tell them what to do", Long: providersLong, Example: providersExample,
		Args: nameOrVerb, ValidArgsFunction: o.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args, "")
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error {
				if watch {
					return noVerb(cmd, o.watch(ctx, c, name))
				}
				return noVerb(cmd, o.list(ctx, c, name))
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "keep the list up to date")
	o.command(cmd)
	cmd.AddCommand(newProvidersShow(io))
	for _, v := range providerVerbs() {
		cmd.AddCommand(v.command(io))
	}
	return cmd
}

// noVerb adds to the error of a provider that there is not that it is no verb either.
func noVerb(cmd *cobra.Command, err error) error {
	if p, ok := errors.AsType[*control.Error](err); ok && p.Code == control.CodeNotFound {
		p.Hint += "; as a verb it would be one of " + strings.Join(verbsOf(cmd), ", ")
	}
	return err
}

// nameOrVerb wants the name of a provider or nothing: verbs are commands of their own.
func nameOrVerb(cmd *cobra.Command, args []string) error {
	if err := atMostOne("provider")(cmd, args); err != nil {
		return fmt.Errorf("%w; and %q is none of the verbs %s", err, args[0], strings.Join(verbsOf(cmd), ", "))
	}
	return nil
}

// atMostOne wants one argument or none.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return one(what)(cmd, args)
		}
		return nil
	}
}

// command adds the flags and the common help to a verb.
func (o *providersOptions) command(cmd *cobra.Command) {
	long := strings.TrimSpace(cmd.Long)
	o.remote.command(cmd)
	o.completeFlags(cmd)
	cmd.Long = long + "\n" + remoteServer + "\n" + providersCodes
}

// ask connects and does something with the server, which may be a gateway alone.
func (o *providersOptions) ask(cmd *cobra.Command, do func(ctx context.Context, c *client.Client) error) error {
	return noGateway(o.remote.ask(cmd, do))
}

// noGateway says who could have answered, if nobody is there.
func noGateway(err error) error {
	if u, ok := errors.AsType[*client.UnreachableError](err); ok && gone(err) {
		text := fmt.Sprintf("no gateway at %s: start one with `tideover serve` or `tideover gateway`, or name another with --server", u.Where)
		return &codedError{errors.New(text), codeOwn}
	}
	return err
}

// providerVerb is a verb that changes a provider.
type providerVerb struct{ action, short, long string }

func providerVerbs() []providerVerb {
	return []providerVerb{
		{
			gateway.Open, "Let nobody pass to a provider",
			`Lets nobody pass to a provider until it is closed or reset: its requests go to its
fallback, or are refused. The words are those of a circuit breaker: open, nobody
passes; closed, everybody does.`,
		},
		{
			gateway.Close, "Let everybody pass to a provider, whatever happens",
			`Lets everybody pass to a provider until it is opened or reset: it counts as up
whatever happens, and no failure keeps requests from it. The words are those of a
circuit breaker: open, nobody passes; closed, everybody does.`,
		},
		{
			gateway.Reset, "Have a provider go by its rules again",
			`Has a provider go by its rules again: what was said by open, close or drain counts no
more, and what was told of its keys is forgotten. If it is down, the next request
looks at once whether it still is.`,
		},
		{
			gateway.Drain, "Finish the requests to a provider, and take no new ones",
			`Finishes the requests to a provider that are under way. New ones go to its fallback, or
are refused, until it is reset.`,
		},
	}
}

func (v providerVerb) command(io Streams) *cobra.Command {
	o := &providersOptions{remote{io: io}}
	cmd := &cobra.Command{
		Use: v.action + " [flags] NAME", Short: v.short, Long: v.long, Example: "  tideover providers " + v.action + " anthropic",
		Args: one("provider"), ValidArgsFunction: o.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error {
				st, err := c.ApplyProvider(ctx, args[0], v.action)
				if err != nil {
					return err
				}
				return o.tell(&st)
			})
		},
	}
	o.command(cmd)
	return cmd
}

// tell prints where a provider is after it was told something.
func (o *providersOptions) tell(st *gateway.Status) error {
	if o.json {
		return o.printJSON(st)
	}
	text := st.Name + " " + st.State
	if meaning := control.ProviderMeaning(st); meaning != "" {
		text += ": " + meaning
	}
	return o.say("%s", text)
}

// completeNames offers the names of providers, for one argument.
func (o *providersOptions) completeNames(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.offer(func(ctx context.Context, c *client.Client) (names []cobra.Completion) {
		all, _ := c.Providers(ctx)
		for _, st := range all.Providers {
			if strings.HasPrefix(st.Name, prefix) {
				names = append(names, cobra.CompletionWithDesc(visible(st.Name), visible(st.State)))
			}
		}
		return names
	})
}
