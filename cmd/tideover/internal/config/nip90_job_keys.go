package config

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

var timeoutScopes = []string{"attempt", "total"}

// jobStepKeys are those of a step that is alone, with run and http first.
var jobStepKeys = append(slices.DeleteFunc(slices.Concat(actionKeys, stepKeys[:len(stepKeys)-len(actionKeys)]), func(k key[stepDraft]) bool {
	return k.name == "id" || k.name == "needs" || k.name == "policy"
}), key[stepDraft]{
	name: "policy", doc: "When it is tried again: a text, the name of a policy, or a map; task unless said. At most 20 attempts, and no timeouts.", schema: policySchema,
	set: func(*loader, place, *stepDraft) {}, // read when it is known whether it is a command
})

// jobTimeKeys has max-timeout first: the others are compared with it.
var jobTimeKeys = []key[stepDraft]{
	{
		name: "max-timeout", def: "10m", doc: "Longer timeouts of requests are cut to it; whole seconds, 24h at most.", schema: durationSchema,
		set: func(l *loader, at place, d *stepDraft) { d.job.MaxTimeout = l.wholeSeconds(at) },
	},
	{
		name: "timeout", doc: "Of a request that has none; whole seconds, 30s unless said, or max-timeout if that is less.", schema: durationSchema,
		set: func(l *loader, at place, d *stepDraft) { d.job.Timeout = l.wholeSeconds(at) },
	},
	{
		name: "max-total", doc: "Ends a job with all its attempts and waits, if the timeout is that of an attempt; 1h unless said, or max-timeout if that is more.", schema: durationSchema,
		set: func(l *loader, at place, d *stepDraft) { d.job.MaxTotal = l.duration(at) },
	},
}

// jobKeys are the keys of a kind of jobs.
var jobKeys = slices.Concat(jobStepKeys, jobTimeKeys, []key[stepDraft]{
	{
		name: "workflow", doc: "Workflow of the file that a job is a run of, with the job as its input; instead of run or http.", schema: nameSchema,
		set: func(l *loader, at place, d *stepDraft) { l.jobWorkflow(at, d) },
	},
	{
		name: "price", doc: "What a result costs, in thousandths of a satoshi (msat); free unless said. A request that bids less is refused with the price, and the result names it. Payments are not checked.",
		schema: upTo(maxJobPrice, `[1-9][0-9]{0,8}|1000000000`),
		set:    func(l *loader, at place, d *stepDraft) { d.job.Price = int64(l.numberUpTo(at, maxJobPrice)) },
	},
	{
		name: "timeout-scope", def: "attempt", doc: "What the timeout of a request ends: each attempt, or the job in total, as it always does for a workflow.",
		schema: func() *jsonschema.Schema { return enum(timeoutScopes...) },
		set:    func(l *loader, at place, d *stepDraft) { d.job.Total = l.word(at, timeoutScopes...) == "total" },
	},
})

// jobFlowKeys are the same for a kind whose jobs are runs of a workflow, which has
// its own steps.
var jobFlowKeys = func() []key[stepDraft] {
	keys := slices.Clone(jobKeys)
	for i, k := range keys {
		switch {
		case k.name == "timeout-scope":
			keys[i].def, keys[i].set = "total", func(l *loader, at place, _ *stepDraft) {
				if l.word(at, timeoutScopes...) == "attempt" {
					l.bad(at, "the timeout of a workflow is that of the whole job; its steps have their own policies")
				}
			}
		case slices.ContainsFunc(jobStepKeys, func(s key[stepDraft]) bool { return s.name == k.name }):
			keys[i].def, keys[i].set = "", func(l *loader, at place, _ *stepDraft) {
				l.bad(at, "%s is not for a kind with a workflow, whose steps say what is done", k.name)
			}
		}
	}
	return keys
}()
