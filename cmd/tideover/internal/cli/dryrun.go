package cli

import (
	"github.com/tideover/tideover/cmd/tideover/internal/plan"
	"github.com/tideover/tideover/retry"
)

// printSchedule draws what the policy would do, as the plan verb does. With a
// seed it shows the waits that the same call without --dry-run would make.
func printSchedule(io Streams, o *execOptions) error {
	var options plan.Options
	if o.seeded {
		options.Seed = &o.seed
	}
	name := o.policyText
	if p, err := retry.Parse(name); err != nil || p != o.policy {
		name = o.policy.String() // flags have made another one of it
	}
	p := plan.New(name, o.policy, options)
	return plan.Text(io.Out, []plan.Plan{p}, planStyle(io.Out, planOptions{}))
}
