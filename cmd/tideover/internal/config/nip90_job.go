package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

const (
	maxJobAttempts    = 20 // bounded because each attempt is published
	maxJobTimeout     = 24 * time.Hour
	maxJobPrice       = 1_000_000_000 // in thousandths of a satoshi: a million satoshis
	defaultJobTimeout = 30 * time.Second
	defaultJobTotal   = time.Hour
)

// jobFields are the fields that the templates of jobs may use.
var jobFields = template.Fields{First: []string{"input", "run"}, Input: nip90.JobFields()}

var jobKindForm = lazyregexp.New(kindPattern)

// jobKinds reads the map kinds: the kinds of jobs to accept, and how to run each.
func (r *jobReader) jobKinds(at place) (kinds []*nip90.JobKind) {
	if at.Node.Kind != strictyaml.KindMap {
		at.Bad("%v, where a map of kinds is expected, such as 5900", at.Node.Kind)
		return nil
	}
	at.CheckKeys(func(key string) (string, bool) {
		return fmt.Sprintf("%q is not a kind of job requests; want 5000 to 5999", key), jobKindForm.MatchString(key)
	})
	seen := map[string]bool{}
	for _, p := range at.Node.Pairs {
		if name := p.Key.Text; !seen[name] {
			seen[name] = true
			kind, _ := strconv.Atoi(name) // a key that is no kind is a problem already
			kinds = append(kinds, r.jobKind(kind, at.Child(name, p.Val)))
		}
	}
	if len(kinds) == 0 {
		at.Bad("the list of kinds is empty; add at least one")
	}
	slices.SortFunc(kinds, func(a, b *nip90.JobKind) int { return cmp.Compare(a.Kind, b.Kind) })
	return kinds
}

func (r *jobReader) newJob(kind int, at place) *stepDraft {
	d := r.workflows.newStep("job", at)
	d.fields, d.job = jobFields, &nip90.JobKind{Kind: kind}
	return d
}

// jobKind reads an entry of the map kinds.
func (r *jobReader) jobKind(kind int, at place) *nip90.JobKind {
	d := r.newJob(kind, at)
	if at.Node.Get("workflow") != nil {
		found, _ := strictyaml.Object(at, r.workflows.jobFlowKeys(d))
		d.job.Total = true
		checkJobTimes(d, found)
		return d.job
	}
	found, ok := strictyaml.Object(at, r.workflows.jobKeys(d))
	checkJobTimes(d, found)
	_, run := found["run"]
	_, http := found["http"]
	switch {
	case run != http:
		d.job.Step = d.Step
		d.Policy = r.policies.orPreset("task", at, found, func(p retry.Policy) error { return checkJobPolicy(p, run) })
		checkAction(d, found, nil)
		r.addCommand(d)
		checkUntrusted(d, "")
	case ok: // if not ok, one of the invalid keys may be a misspelled run, http or workflow
		at.Bad("want exactly one of run, http and workflow")
	}
	return d.job
}

// jobWorkflow reads the name of the workflow that is started for each job, and checks the
// steps of that workflow.
func (r *workflowReader) jobWorkflow(at place, d *stepDraft) {
	name, ok := at.Text()
	if !ok {
		return
	}
	if r.workflows[name] == nil {
		at.Bad("%s", strictyaml.UnknownName("workflow", name, r.names))
		return
	}
	d.job.Workflow = name
	at.Record(name)
	checkJobSteps(r.drafts[name], d.at.Path())
}

// checkJobSteps checks the steps of a workflow that jobs start. It is stricter than for
// other workflows, because anyone can send a job. kind is the path of the kind of jobs.
func checkJobSteps(w *draft, kind string) {
	for _, s := range w.steps {
		checkJobStep(s, fmt.Sprintf("step %q", s.ID), kind)
		if s.undoing != nil {
			checkJobStep(s.undoing, fmt.Sprintf("undo of step %q", s.ID), kind)
		}
		if s.Workflow != "" {
			s.child.Bad("a workflow that jobs start can't start other workflows (step %q is reached from %s)", s.ID, kind)
		}
	}
	if w.alarm != nil && w.alarm.notify == nil {
		checkJobStep(w.alarm, "on-give-up", kind)
	}
}

func checkJobStep(d *stepDraft, name, kind string) {
	via := fmt.Sprintf(" (%s is reached from %s)", name, kind)
	checkUntrusted(d, via)
	if p := d.Policy; p.Attempts == retry.Unlimited || p.Attempts > maxJobAttempts {
		at := d.at
		if n := at.Node.Get("policy"); n != nil {
			at = at.Child("policy", n)
		}
		at.Bad("%v%s", errJobAttempts, via)
	}
}

var errJobAttempts = fmt.Errorf("attempts: a job can have at most %d", maxJobAttempts)

// readWholeSeconds reads a duration in whole seconds, the unit of the timeouts in requests.
func readWholeSeconds(at place) time.Duration {
	d := strictyaml.ReadDuration(at)
	if d%time.Second != 0 {
		at.Bad("%q is not in whole seconds, as the timeouts of requests are", at.Node.Text)
	}
	return d
}

// checkJobTimes checks the timeouts against each other, and sets the defaults that depend
// on other timeouts.
func checkJobTimes(d *stepDraft, found map[string]place) {
	j := d.job
	if j.MaxTimeout > maxJobTimeout {
		found["max-timeout"].Bad("%q is too long; want at most %s", found["max-timeout"].Node.Text, textfmt.CompactDuration(maxJobTimeout))
	}
	if here, said := found["timeout"]; !said {
		j.Timeout = min(defaultJobTimeout, j.MaxTimeout)
		d.at.RecordDefault("timeout", textfmt.CompactDuration(j.Timeout))
	} else if j.Timeout > j.MaxTimeout && j.MaxTimeout > 0 {
		here.Bad("%q is above max-timeout, which is %s", here.Node.Text, textfmt.CompactDuration(j.MaxTimeout))
	}
	switch here, said := found["max-total"]; {
	case said && j.Total:
		here.Bad("requires timeout-scope: attempt; with timeout-scope: total the timeout already limits the whole job")
	case j.Total:
		j.MaxTotal = j.MaxTimeout
	case !said:
		j.MaxTotal = max(defaultJobTotal, j.MaxTimeout)
		d.at.RecordDefault("max-total", textfmt.CompactDuration(j.MaxTotal))
	case j.MaxTotal > 0 && j.MaxTotal < j.MaxTimeout:
		here.Bad("%q is below max-timeout, which is %s; want at least that", here.Node.Text, textfmt.CompactDuration(j.MaxTimeout))
	}
}

// checkJobPolicy returns an error if the policy of a job has more than maxJobAttempts
// attempts, a timeout, or a key that jobs don't support. A job has its own keys for
// timeouts.
func checkJobPolicy(p retry.Policy, command bool) error {
	errs := []error{p.Refuse("job", append(refused(command), "reset-after")...)}
	if p.AttemptTimeout > 0 {
		errs = append(errs, errors.New("attempt-timeout: set timeout and max-timeout beside the policy instead"))
	}
	if p.TotalTimeout > 0 {
		errs = append(errs, errors.New("total-timeout: set max-total beside the policy instead"))
	}
	if p.Attempts == retry.Unlimited || p.Attempts > maxJobAttempts {
		errs = append(errs, errJobAttempts)
	}
	return errors.Join(errs...)
}

var timeoutScopes = []string{"attempt", "total"}

// jobStepKeys are the keys of a step, except id and needs, which the only step of a job
// does not have. run and http come first.
func (r *workflowReader) jobStepKeys(d *stepDraft) []key {
	keys := slices.DeleteFunc(append(r.actionKeys(d), ownStepKeys(d)...), func(k key) bool {
		return k.Name == "id" || k.Name == "needs" || k.Name == "policy"
	})
	return append(keys, strictyaml.Func("policy", "", policySchema, func(place) {
		// jobKind reads it, when it is known whether the job is a command.
	}, "Retry policy: a text, the name of a policy, or a map. At most 20 attempts; timeouts are not allowed. Default: task."))
}

// jobTimeKeys are the keys for timeouts. max-timeout comes first, because the others are
// compared with it.
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
			d.job.Price = int64(strictyaml.ReadIntUpTo(at, 1, maxJobPrice))
		}, "Price of a result in thousandths of a satoshi (msat). A request that bids less is rejected with the price. Payments are not checked. Default: free."),
		strictyaml.Func("timeout-scope", "attempt", strictyaml.WordSchema(timeoutScopes...), func(at place) {
			d.job.Total = strictyaml.ReadWord(at, timeoutScopes...) == "total"
		}, "What the timeout of a request limits: each attempt, or the whole job. For a workflow it is always the whole job."),
	})
}

// jobFlowKeys are the keys of a kind of jobs that start a workflow. They refuse the keys
// of a step: the workflow has its own steps.
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
