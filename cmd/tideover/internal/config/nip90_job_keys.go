package config

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

var timeoutScopes = []string{"attempt", "total"}

// jobStepKeys are those of a step that is alone, with run and http first.
var jobStepKeys = append(slices.DeleteFunc(slices.Concat(actionKeys, stepKeys[:len(stepKeys)-len(actionKeys)]), func(k key[*workflowReader, stepDraft]) bool {
	return k.Name == "id" || k.Name == "needs" || k.Name == "policy"
}), key[*workflowReader, stepDraft]{
	Name: "policy", Doc: "Retry policy: a text, the name of a policy, or a map. At most 20 attempts; timeouts are not allowed. Default: task.", Schema: policySchema,
	Set: func(*workflowReader, place, *stepDraft) {}, // read when it is known whether it is a command
})

// jobTimeKeys has max-timeout first: the others are compared with it.
var jobTimeKeys = []key[*workflowReader, stepDraft]{
	{
		Name: "max-timeout", Default: "10m", Doc: "Longest timeout that a request may state; longer ones are reduced to it. Whole seconds, at most 24h.", Schema: strictyaml.DurationSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) { d.job.MaxTimeout = readWholeSeconds(at) },
	},
	{
		Name: "timeout", Doc: "Timeout for requests that state none, in whole seconds. Default: 30s, or max-timeout if that is less.", Schema: strictyaml.DurationSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) { d.job.Timeout = readWholeSeconds(at) },
	},
	{
		Name: "max-total", Doc: "Time limit for a whole job, with all attempts and waits, if timeout-scope is attempt. Default: 1h, or max-timeout if that is more.", Schema: strictyaml.DurationSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) { d.job.MaxTotal = strictyaml.ReadDuration(at) },
	},
}

// jobKeys are the keys of a kind of jobs.
var jobKeys = slices.Concat(jobStepKeys, jobTimeKeys, []key[*workflowReader, stepDraft]{
	{
		Name: "workflow", Doc: "Workflow that is started for each job, with the job as its input; instead of run or http.", Schema: strictyaml.NameSchema,
		Set: func(r *workflowReader, at place, d *stepDraft) { r.jobWorkflow(at, d) },
	},
	{
		Name: "price", Doc: "Price of a result in thousandths of a satoshi (msat). A request that bids less is rejected with the price, and the result states the price. Payments are not checked. Default: free.",
		Schema: strictyaml.IntUpToSchema(maxJobPrice, `[1-9][0-9]{0,8}|1000000000`),
		Set: func(_ *workflowReader, at place, d *stepDraft) {
			d.job.Price = int64(strictyaml.ReadIntUpTo(at, maxJobPrice))
		},
	},
	{
		Name: "timeout-scope", Default: "attempt", Doc: "What the timeout of a request limits: each attempt, or the whole job. For a workflow it is always the whole job.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema(timeoutScopes...) },
		Set: func(_ *workflowReader, at place, d *stepDraft) {
			d.job.Total = strictyaml.ReadWord(at, timeoutScopes...) == "total"
		},
	},
})

// jobFlowKeys are the same for a kind whose jobs are runs of a workflow, which has
// its own steps.
var jobFlowKeys = func() []key[*workflowReader, stepDraft] {
	keys := slices.Clone(jobKeys)
	for i, k := range keys {
		switch {
		case k.Name == "timeout-scope":
			keys[i].Default, keys[i].Set = "total", func(_ *workflowReader, at place, _ *stepDraft) {
				if strictyaml.ReadWord(at, timeoutScopes...) == "attempt" {
					at.Bad("for a workflow the timeout always limits the whole job; its steps have their own policies")
				}
			}
		case slices.ContainsFunc(jobStepKeys, func(s key[*workflowReader, stepDraft]) bool { return s.Name == k.Name }):
			keys[i].Default, keys[i].Set = "", func(_ *workflowReader, at place, _ *stepDraft) {
				at.Bad("can't be combined with workflow; set it in the steps of the workflow")
			}
		}
	}
	return keys
}()
