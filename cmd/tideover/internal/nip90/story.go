package nip90

import (
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/retry"
)

// story returns the history of a job from the state of its run: the failed attempts of all
// steps, in the order of their ends. A later call only appends to the list, so that
// feedback that is already published stays valid.
func story(i *engine.Info, j *job) *dvm.History {
	h := &dvm.History{}
	var first time.Time
	var running []dvm.Attempt
	for k := range i.Steps {
		s := &i.Steps[k]
		h.MaxRetries = addRetries(h.MaxRetries, s.Policy)
		for n := range s.Attempts {
			a := &s.Attempts[n]
			if first.IsZero() || a.Started.Before(first) {
				first = a.Started
			}
			switch told := shownAttempt(a); {
			case told == nil:
			case told.Ended.IsZero():
				running = append(running, *told)
			default:
				h.Attempts = append(h.Attempts, *told)
			}
		}
	}
	slices.SortStableFunc(h.Attempts, func(a, b dvm.Attempt) int { return a.Ended.Compare(b.Ended) })
	h.Outcome = outcome(i, j)
	if h.Outcome != nil || len(h.Attempts) == 0 {
		h.Attempts = append(h.Attempts, running...)
	}
	if len(h.Attempts) == 0 && !first.IsZero() {
		h.Attempts = append(h.Attempts, dvm.Attempt{})
	}
	if len(h.Attempts) > 0 {
		h.Attempts[0].Started = first
	}
	return h
}

// addRetries returns retries plus the retries that the policy allows. -1 means no limit.
func addRetries(retries int, policy string) int {
	p, err := retry.Parse(policy)
	switch {
	case err != nil:
		return retries
	case retries < 0 || p.Attempts == retry.Unlimited:
		return -1
	}
	return retries + max(p.Attempts, 1) - 1
}

// shownAttempt returns the attempt as the customer sees it in feedback; nil if feedback does
// not mention it.
func shownAttempt(a *engine.AttemptInfo) *dvm.Attempt {
	text, _, _ := strings.Cut(a.Error, "\n") // only the first line, without output of the program or a stack trace
	told := &dvm.Attempt{Started: a.Started, Error: text}
	switch a.Outcome {
	case "running":
		return told
	case "late": // the run had ended before the attempt did
		return &dvm.Attempt{Started: a.Started}
	case "failed":
		told.Limit, told.TimedOut = timedOut(a.Error)
	case "lost", "released":
		told.Lost = true
	default: // succeeded, or irrelevant for retries
		return nil
	}
	if a.Ended != nil {
		told.Ended = *a.Ended
	}
	if a.Wait != nil {
		told.Retry, told.Wait = true, a.Wait.Delay
	}
	return told
}

// timedOut reports whether the error text of an attempt is a timeout, and returns its
// limit; 0 if the text does not state it. Only the beginning of the text counts, because
// the output of a program may follow.
func timedOut(text string) (limit time.Duration, ok bool) {
	for _, words := range []string{timeoutWords, engine.ErrTimeout.Error() + " after "} {
		rest, found := strings.CutPrefix(text, words)
		if !found {
			continue
		}
		if end := strings.IndexAny(rest, ": \n);,"); end >= 0 {
			rest = rest[:end]
		}
		limit, _ = time.ParseDuration(rest)
		return limit, true
	}
	return 0, false
}

// outcome returns the outcome of the job, nil if it has not ended.
func outcome(i *engine.Info, j *job) *dvm.Outcome {
	if i.Ended == nil {
		return nil
	}
	o := &dvm.Outcome{At: *i.Ended}
	switch i.State {
	case "succeeded":
		o.State = dvm.Succeeded
		o.Content, o.Partial = content(i)
	case "canceled":
		o.State = dvm.Cancelled
	default:
		o.State = dvm.Failed
		switch i.Reason {
		case retry.StopPermanent.String():
			o.Code = dvm.CodePermanent
		case retry.StopTimeout.String(), retry.StopTotalTimeout.String():
			o.Code = dvm.CodeTimeout
			if j.Nostr.Attempt == 0 {
				o.Message = timeout{time.Duration(j.Timeout) * time.Second}.Error()
			}
		}
	}
	return o
}

// content returns the content of the result event: the output of the step that no other
// step needs. If there are several such steps, it is a JSON object with their outputs by
// name. partial is true if the content is truncated.
func content(i *engine.Info) (text string, partial bool) {
	said := map[string]string{}
	for k := range i.Steps {
		s := &i.Steps[k]
		if isNeeded(i, s.Name) {
			continue
		}
		out, whole, _ := steps.Text(s.Output)
		text, partial = strings.TrimRight(strings.ToValidUTF8(out, "\uFFFD"), "\r\n"), partial || !whole
		said[s.Name] = text
	}
	if len(said) > 1 {
		all, _ := encode(said) // can't fail: it has only strings
		text = string(all)
	}
	kept := textfmt.Truncate(text, nostr.MaxContent)
	return kept, partial || len(kept) < len(text)
}

func isNeeded(i *engine.Info, step string) bool {
	return slices.ContainsFunc(i.Steps, func(s engine.StepInfo) bool { return slices.Contains(s.Needs, step) })
}
