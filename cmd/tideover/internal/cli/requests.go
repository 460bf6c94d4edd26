package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// requestsOptions holds the flags of requests.
type requestsOptions struct {
	providersOptions
	filter gateway.RequestFilter
}

const requestsLong = `Lists recent requests of the gateway, or shows one from its arrival to its response:
its attempts with the names of their keys, its waits and their sources, its failovers.
ID is the number in the header X-Tideover-Call of the response.

The server keeps the latest requests that failed, waited, or moved to another key or
provider, those that it rejected, and a sample of those that succeeded at once. They
are in memory: a restart of the server loses them.`

const requestsExample = `  tideover requests
  tideover requests 6412873465128734
  tideover requests --provider openai --status 5xx --min-duration 2s
  tideover requests --outcome failed --json | jq '.requests[] | {call, route, error}'`

func newRequests(io Streams) *cobra.Command {
	o := &requestsOptions{providersOptions: providersOptions{newRemote(io)}}
	cmd := &cobra.Command{
		Use: "requests [flags] [ID]", Short: "List recent requests of the gateway, or show one", Long: requestsLong, Example: requestsExample,
		Args: atMostOne("request"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			for _, name := range []string{"provider", "status", "outcome", "min-duration", "limit"} {
				if len(args) == 1 && cmd.Flags().Changed(name) {
					return fmt.Errorf("--%s selects requests of the list, and can't be used with the id of one", name)
				}
			}
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				if len(args) == 1 {
					r, err := c.Request(ctx, args[0])
					return printFetched(&o.resultPrinter, &r, err, renderRequest)
				}
				list, err := c.Requests(ctx, o.filter)
				return printFetched(&o.resultPrinter, &list, err, renderRequests)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.filter.Provider, "provider", "", "only requests for the provider with this `name`, or with an attempt at it")
	f.StringVar(&o.filter.Status, "status", "", "only requests whose caller got this `status`, such as 429 or 5xx")
	f.StringVar(&o.filter.Outcome, "outcome", "", "only requests with this `outcome`: "+strings.Join(gateway.Outcomes, ", "))
	f.Var((*duration)(&o.filter.Least), "min-duration", "only requests that took at least this `duration`")
	f.IntVarP(&o.filter.Limit, "limit", "n", 20, "list at most `N` requests; the maximum is 1000")
	return o.gatewayCommand(cmd, exits{CodeUnknown: "unknown request"})
}

// check returns an error for a flag with a wrong value.
func (o *requestsOptions) check() error {
	if n := o.filter.Limit; n < 1 || n > admin.MaxRequests {
		return fmt.Errorf("--limit: %d is not between 1 and %d", n, admin.MaxRequests)
	}
	if err := admin.CheckRequestFilter(o.filter); err != nil {
		e := control.AsError(err)
		return fmt.Errorf("--%s: %s%s", strings.ReplaceAll(e.Field, "_", "-"), e.Message, optional("; ", e.Hint, ""))
	}
	return nil
}

// outcomeColours has the terminal code of the colour of each outcome and result.
var outcomeColours = map[string]string{
	gateway.RequestSucceeded: "32", gateway.RequestFailed: "31", gateway.RequestRejected: "31", gateway.RequestCutShort: "31",
	gateway.RequestCanceled: "2", gateway.InProgress: "36", gateway.AttemptThrottled: "33",
}

const noRequests = "no requests: the server has kept none that match, since its start"

// renderRequests renders a list of requests as lines.
func renderRequests(list *admin.RequestList, s *screen) []string {
	if list.Off {
		return []string{"no requests: " + admin.NoRequestsKept}
	}
	if len(list.Requests) == 0 {
		return []string{noRequests}
	}
	t := &table{heads: []string{"CALL", "AGE", "PROVIDER", "OUTCOME", "STATUS", "ATTEMPTS", "WAITED", "TOOK", "REQUEST", "ERROR"}}
	for i := range list.Requests {
		r := &list.Requests[i]
		t.add(plain(strconv.FormatUint(r.Call, 10)), plain(s.ago(r.Time)), plain(requestProviders(r)), cell{r.Outcome, outcomeColours[r.Outcome]},
			plain(httpStatus(r.Status)), plain(strconv.Itoa(r.Attempts)), plain(latency(r.Waited)), plain(latency(r.Seconds)), plain(r.Route), plain(r.Error))
	}
	return t.render(s)
}

// requestProviders returns the provider in the URL of a request, and the one that answered if it
// is another.
func requestProviders(r *gateway.RequestInfo) string {
	if r.From == "" || r.From == r.Provider {
		return r.Provider
	}
	return r.Provider + " → " + r.From
}

// httpStatus returns a status, and an empty string if there is none.
func httpStatus(code int) string {
	if code == 0 {
		return ""
	}
	return strconv.Itoa(code)
}

// renderRequest renders one request as lines.
func renderRequest(r *gateway.RequestInfo, s *screen) []string {
	p := &details{screen: s}
	p.line("%s  %s  %s", p.paint("1", strconv.FormatUint(r.Call, 10)), p.paint(outcomeColours[r.Outcome], visible(r.Outcome)), visible(r.Route))
	p.field("arrived", p.moment(&r.Time))
	p.field("provider", r.Provider)
	p.field("model", r.Model)
	p.field("status", httpStatus(r.Status))
	p.field("answered by", r.From)
	p.field("code", r.Code)
	p.field("gave up", r.Reason)
	p.field("error", r.Error)
	p.field("took", latency(r.Seconds))
	p.field("waited", latency(r.Waited))
	p.field("bytes", fmt.Sprintf("%s in, %s out", textfmt.FormatSize(r.RequestBytes), textfmt.FormatSize(r.ResponseBytes)))
	if r.InputTokens > 0 || r.OutputTokens > 0 {
		p.field("tokens", fmt.Sprintf("%d in, %d out", r.InputTokens, r.OutputTokens))
	}
	if r.Omitted > 0 {
		p.field("omitted", textfmt.Plural(r.Omitted, "step")+" in the middle")
	}
	addTable(p, "steps", []string{"AT", "STEP", "PROVIDER", "KEY", "RESULT", "STATUS", "TOOK", "WHY"}, r.Steps, requestStepRow)
	return p.lines
}

func requestStepRow(s gateway.RequestStep) []cell {
	step, provider, result, why := s.Kind, s.Provider, s.Result, s.Why
	switch s.Kind {
	case gateway.StepWait:
		result, why = "by "+s.By, admin.WaitMeaning(s.By)
	case gateway.StepFailover:
		provider += " → " + s.To
	}
	if s.Hedge {
		step += ", hedge"
	}
	if s.Probe {
		step += ", probe"
	}
	if s.Open {
		result = strings.TrimSpace(result + " (not over)")
	}
	at := "+" + textfmt.MeasuredDuration(time.Duration(s.At*float64(time.Second)))
	return []cell{plain(at), plain(step), plain(provider), plain(s.Key), {result, outcomeColours[s.Result]}, plain(httpStatus(s.Status)), plain(latency(s.Seconds)), plain(why)}
}
