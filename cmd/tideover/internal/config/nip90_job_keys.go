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
	Name: "policy", Doc: "When it is tried again: a text, the name of a policy, or a map; task unless said. At most 20 attempts, and no timeouts.", Schema: policySchema,
	Set: func(*workflowReader, place, *stepDraft) {}, // read when it is known whether it is a command
})

// jobTimeKeys has max-timeout first: the others are compared with it.
var jobTimeKeys = []key[*workflowReader, stepDraft]{
	{
		Name: "max-timeout", Default: "10m", Doc: "Longer timeouts of requests are cut to it; whole seconds, 24h at most.", Schema: strictyaml.DurationSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) { d.job.MaxTimeout = readWholeSeconds(at) },
	},
	{
		Name: "timeout", Doc: "Of a request that has none; whole seconds, 30s unless said, or max-timeout if that is less.", Schema: strictyaml.DurationSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) { d.job.Timeout = readWholeSeconds(at) },
	},
	{
		Name: "max-total", Doc: "Ends a job with all its attempts and waits, if the timeout is that of an attempt; 1h unless said, or max-timeout if that is more.", Schema: strictyaml.DurationSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) { d.job.MaxTotal = strictyaml.ReadDuration(at) },
	},
}

// jobKeys are the keys of a kind of jobs.
var jobKeys = slices.Concat(jobStepKeys, jobTimeKeys, []key[*workflowReader, stepDraft]{
	{
		Name: "workflow", Doc: "Workflow of the file that a job is a run of, with the job as its input; instead of run or http.", Schema: strictyaml.NameSchema,
		Set: func(r *workflowReader, at place, d *stepDraft) { r.jobWorkflow(at, d) },
	},
	{
		Name: "price", Doc: "What a result costs, in thousandths of a satoshi (msat); free unless said. A request that bids less is refused with the price, and the result names it. Payments are not checked.",
		Schema: strictyaml.IntUpToSchema(maxJobPrice, `[1-9][0-9]{0,8}|1000000000`),
		Set: func(_ *workflowReader, at place, d *stepDraft) {
			d.job.Price = int64(strictyaml.ReadIntUpTo(at, maxJobPrice))
		},
	},
	{
		Name: "timeout-scope", Default: "attempt", Doc: "What the timeout of a request ends: each attempt, or the job in total, as it always does for a workflow.",
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
					at.Bad("the timeout of a workflow is that of the whole job; its steps have their own policies")
				}
			}
		case slices.ContainsFunc(jobStepKeys, func(s key[*workflowReader, stepDraft]) bool { return s.Name == k.Name }):
			keys[i].Default, keys[i].Set = "", func(_ *workflowReader, at place, _ *stepDraft) {
				at.Bad("%s is not for a kind with a workflow, whose steps say what is done", k.Name)
			}
		}
	}
	return keys
}()
