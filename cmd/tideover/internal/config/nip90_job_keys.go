package config

import (
	"slices"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

var timeoutScopes = []string{"attempt", "total"}

// jobStepKeys are those of a step that is alone, with run and http first.
func (r *workflowReader) jobStepKeys(d *stepDraft) []key {
	keys := slices.DeleteFunc(append(r.actionKeys(d), ownStepKeys(d)...), func(k key) bool {
		return k.Name == "id" || k.Name == "needs" || k.Name == "policy"
	})
	return append(keys, strictyaml.Func("policy", "", policySchema, func(place) {
		// It is read when it is known whether the job is a command.
	}, "Retry policy: a text, the name of a policy, or a map. At most 20 attempts; timeouts are not allowed. Default: task."))
}

// jobTimeKeys has max-timeout first: the others are compared with it.
func jobTimeKeys(d *stepDraft) []key {
	return []key{
		strictyaml.Field(&d.job.MaxTimeout, "max-timeout", "10m", strictyaml.DurationSchema, readWholeSeconds,
			"Longest timeout that a request may state; longer ones are reduced to it. Whole seconds, at most 24h."),
		strictyaml.Field(&d.job.Timeout, "timeout", "", strictyaml.DurationSchema, readWholeSeconds,
			"Timeout for requests that state none, in whole seconds. Default: 30s, or max-timeout if that is less."),
		strictyaml.Duration(&d.job.MaxTotal, "max-total", "",
			"Time limit for a whole job, with all attempts and waits, if timeout-scope is attempt. Default: 1h, or max-timeout if that is more."),
	}
}

// jobKeys are the keys of a kind of jobs.
func (r *workflowReader) jobKeys(d *stepDraft) []key {
	return slices.Concat(r.jobStepKeys(d), jobTimeKeys(d), []key{
		strictyaml.Func("workflow", "", strictyaml.NameSchema, func(at place) { r.jobWorkflow(at, d) },
			"Workflow that is started for each job, with the job as its input; instead of run or http."),
		strictyaml.Func("price", "", strictyaml.IntUpToSchema(maxJobPrice, `[1-9][0-9]{0,8}|1000000000`), func(at place) {
			d.job.Price = int64(strictyaml.ReadIntUpTo(at, maxJobPrice))
		}, "Price of a result in thousandths of a satoshi (msat). A request that bids less is rejected with the price, and the result states the price. Payments are not checked. Default: free."),
		strictyaml.Func("timeout-scope", "attempt", wordSchema(timeoutScopes), func(at place) {
			d.job.Total = strictyaml.ReadWord(at, timeoutScopes...) == "total"
		}, "What the timeout of a request limits: each attempt, or the whole job. For a workflow it is always the whole job."),
	})
}

// jobFlowKeys are the same for a kind whose jobs are runs of a workflow, which has
// its own steps.
func (r *workflowReader) jobFlowKeys(d *stepDraft) []key {
	keys, ofStep := r.jobKeys(d), len(r.jobStepKeys(d))
	for i, k := range keys {
		switch {
		case k.Name == "timeout-scope":
			keys[i].Default, keys[i].Set = "total", func(at place) {
				if strictyaml.ReadWord(at, timeoutScopes...) == "attempt" {
					at.Bad("for a workflow the timeout always limits the whole job; its steps have their own policies")
				}
			}
		case i < ofStep:
			keys[i].Default, keys[i].Set = "", func(at place) {
				at.Bad("can't be combined with workflow; set it in the steps of the workflow")
			}
		}
	}
	return keys
}
