package plan

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// Notes returns sentences about the sums and about effects of the policy that the table does not
// show.
func (p *Plan) Notes() []string {
	var notes []string
	for _, n := range []string{p.waits(), p.constantDelay(), p.longest(), p.timeout(), p.throttled(), p.server(), p.budget(), p.hedge(), p.reset()} {
		if n != "" {
			notes = append(notes, n)
		}
	}
	return notes
}

// constantDelay says that a schedule that is random by its name is not.
func (p *Plan) constantDelay() string {
	if len(p.Retries) == 0 || p.Policy.Kind != backoff.Decorrelated || p.Policy.Random() {
		return ""
	}
	return fmt.Sprintf("These delays have no jitter: a decorrelated delay is random between its base and its cap, and both are %s. Raise the cap.", textfmt.ShortDuration(p.Policy.Base))
}

// waits describes the sum of the waits.
func (p *Plan) waits() string {
	n := p.Policy.Retries()
	switch {
	case n == 0 && p.Policy.Attempts == 0:
		return "There is no retry: without attempts=N, a policy makes one attempt."
	case n == 0:
		return "There is no retry: attempts=1 allows only the first attempt."
	case p.Total == nil:
		return p.unlisted()
	}
	t := p.Total
	limit := "" // if the delay without jitter is one end of the range
	switch {
	case t.Low == t.High:
	case t.Low == t.Delay:
		limit = "at least "
	case t.High == t.Delay:
		limit = "at most "
	}
	s := fmt.Sprintf("%s wait %s%s in all", textfmt.PluralOf(n, "retry", "retries"), limit, textfmt.ShortDuration(t.Delay))
	if n == 1 {
		s = "1 retry waits " + limit + textfmt.ShortDuration(t.Delay)
	}
	switch {
	case t.Low == t.High:
	case t.Low == t.Delay:
		s += fmt.Sprintf(" and %s at worst, because each wait is random in its range", textfmt.ShortDuration(t.High))
	case t.High == t.Delay:
		s += fmt.Sprintf(" and %s at best, because each wait is random in its range", textfmt.ShortDuration(t.Low))
	default:
		s += fmt.Sprintf(", %s at best and %s at worst", textfmt.ShortDuration(t.Low), textfmt.ShortDuration(t.High))
	}
	if p.Sampled && p.Whole() {
		s += fmt.Sprintf("; %s in the sample", textfmt.ShortDuration(t.Sample))
	}
	if !p.Whole() {
		return s + ". " + p.unlisted()
	}
	return s + "."
}

// unlisted describes the retries after the listed ones.
func (p *Plan) unlisted() string {
	last := p.Retries[len(p.Retries)-1]
	s := "Retries go on without end"
	switch n := p.Policy.Retries(); {
	case n == retry.Unlimited && p.reach.never > 0:
		return "Nothing but the total-timeout limits the retries."
	case n != retry.Unlimited:
		s = fmt.Sprintf("%s not listed here", textfmt.PluralOf(n-len(p.Retries), "retry", "retries"))
		if p.Total == nil {
			s += ", too many to add up"
		}
	}
	if p.constant {
		return s + fmt.Sprintf("; from number %d on each waits %s.", last.N, durationRange(last.Low, last.High))
	}
	return s + ", and their delays keep growing."
}

// longest describes the longest time of the whole call.
func (p *Plan) longest() string {
	n, each := p.Attempts(), p.Policy.AttemptTimeout
	switch {
	case each == 0 && p.Policy.TotalTimeout > 0:
		return ""
	case each == 0 && n == 1:
		return "The attempt may take any time: there is no attempt-timeout."
	case each == 0:
		return "The attempts' own time comes on top: there is no attempt-timeout."
	case p.WorstCase == 0:
		return fmt.Sprintf("Each attempt is ended after %s; the call continues until one succeeds.", textfmt.ShortDuration(each))
	}
	s := fmt.Sprintf(" attempt is ended after %s, so the worst case is %s in all",
		textfmt.ShortDuration(each), textfmt.ShortDuration(p.WorstCase))
	switch {
	case n == 1:
		return "The" + s + "."
	case p.WorstCase == p.Policy.TotalTimeout:
		return "Each" + s + ", where the total-timeout cuts it off."
	}
	return "Each" + s + "."
}

// timeout describes the effect of the total timeout.
func (p *Plan) timeout() string {
	total := p.Policy.TotalTimeout
	if total == 0 {
		return ""
	}
	s := fmt.Sprintf("total-timeout=%s ends the call with all attempts and waits", textfmt.ShortDuration(total))
	if p.Policy.AttemptTimeout == 0 {
		s += ", so that is the worst case"
	}
	s += "."
	n := p.Policy.Retries()
	if k := p.reach.never; k > 0 {
		s += fmt.Sprintf(" %s can't happen: even the shortest waits reach it first.", capital(from(k, n)))
		n = k - 1
	}
	if k := p.reach.maybe; k > 0 && (n == retry.Unlimited || k <= n) {
		s += fmt.Sprintf(" %s only if the waits before are short enough.", capital(from(k, n))+verb(k, n, " happens", " happen"))
		n = k - 1
	}
	if k := p.reach.slow; k > 0 && p.Policy.AttemptTimeout > 0 && (n == retry.Unlimited || k <= n) {
		s += fmt.Sprintf(" If every attempt takes its whole %s, %s no time left.", textfmt.ShortDuration(p.Policy.AttemptTimeout), from(k, p.Policy.Retries())+verb(k, p.Policy.Retries(), " has", " have"))
	}
	return s
}

// from returns a phrase for the retries from number k to n; n can be retry.Unlimited.
func from(k, n int) string {
	switch {
	case k == n:
		return fmt.Sprintf("retry %d", k)
	case n == retry.Unlimited:
		return fmt.Sprintf("retry %d and all later ones", k)
	case k+1 == n:
		return fmt.Sprintf("retries %d and %d", k, n)
	}
	return fmt.Sprintf("retries %d to %d", k, n)
}

// verb returns the form of a verb whose subject is the retries from number k to n.
func verb(k, n int, singular, plural string) string {
	if k == n {
		return singular
	}
	return plural
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// throttled describes the waits after a throttled attempt.
func (p *Plan) throttled() string {
	base := p.Policy.ThrottleBase
	if base == 0 || len(p.Retries) == 0 {
		return ""
	}
	t := p.Policy
	t.Base = base
	const few = 6
	var delays []string
	for k, d := range t.Delays(nil) {
		if k > min(len(p.Retries), few) {
			break
		}
		delays = append(delays, textfmt.ShortDuration(d))
	}
	if len(p.Retries) > few {
		delays = append(delays, "...")
	}
	s := fmt.Sprintf("After a throttled attempt the delay starts at %s: %s", textfmt.ShortDuration(base), strings.Join(delays, ", "))
	if t.Random() {
		s += ", before jitter"
	}
	if p.WorstCase > 0 && base > p.Policy.Base && p.Policy.AttemptTimeout > 0 {
		s += "; the worst case includes these delays"
	}
	return s + "."
}

// server describes the limit for delays that a server states.
func (p *Plan) server() string {
	if len(p.Retries) == 0 || p.Policy.ServerWait == 0 && p.Policy.ServerSlack == 0 {
		return "" // the help describes the default, which is the same for all policies
	}
	s := fmt.Sprintf("A delay that a server states replaces these, up to %s",
		textfmt.ShortDuration(cmp.Or(p.Policy.ServerWait, retry.DefaultServerWait)))
	if slack := p.Policy.ServerSlack; slack > 0 {
		s += fmt.Sprintf(", plus %s of slack", textfmt.ShortDuration(slack))
	}
	return s + ". A longer one ends the call."
}

// budget describes the retry budget.
func (p *Plan) budget() string {
	b := p.Policy.Budget
	switch b.Kind {
	case limit.RefundBudget:
		return fmt.Sprintf("All calls share a budget of %s: a retry costs %s, given back if it succeeds, and a call that succeeds at once brings %s.",
			tokens(b.Max), decimal(b.Cost), decimal(b.Credit))
	case limit.RatioBudget:
		return fmt.Sprintf("At most %s%% of all calls in flight are retries, but %d are always allowed.", decimal(percent(b.Ratio)), limit.MinRetries)
	case limit.BucketBudget:
		return fmt.Sprintf("All calls share a budget of %s: a failed attempt takes 1, a success brings %s, and there are retries only while more than half is left.",
			tokens(b.Max), decimal(b.Ratio))
	default:
		return ""
	}
}

func tokens(n float64) string {
	if n == 1 {
		return "1 token"
	}
	return decimal(n) + " tokens"
}

// hedge describes when a hedged attempt starts.
func (p *Plan) hedge() string {
	h := p.Policy.Hedge
	if h == (retry.Hedge{}) {
		return ""
	}
	when := "has not ended after " + textfmt.ShortDuration(h.After)
	if h.Percentile > 0 {
		when = fmt.Sprintf("is slower than %s%% of the recent successes", decimal(h.Percentile))
	}
	share := cmp.Or(h.Share, retry.DefaultHedgeShare)
	return fmt.Sprintf("A second attempt starts beside one that %s, for at most %s%% of all calls.", when, decimal(percent(share)))
}

// reset describes when the count of attempts is reset.
func (p *Plan) reset() string {
	if p.Policy.ResetAfter == 0 {
		return ""
	}
	return fmt.Sprintf("After an attempt that lasts at least %s, earlier failures no longer count, and the delays start again with the first.", textfmt.ShortDuration(p.Policy.ResetAfter))
}

func percent(f float64) float64 {
	return float64(time.Duration(f*100*1e9+0.5)) / 1e9 // rounded, to remove floating-point errors
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
