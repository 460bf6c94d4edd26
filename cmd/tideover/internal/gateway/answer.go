package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// The codes of our own answers. They are only ever added to.
const (
	codeHost        = "unknown_host"
	codeCrossSite   = "cross_site"
	codeToken       = "unauthorized"
	codePath        = "bad_path"
	codeProvider    = "unknown_provider"
	codePriority    = "bad_priority"
	codeTooLarge    = "body_too_large"
	codeBody        = "body_not_readable"
	codeEnding      = "ending"
	codeOpened      = "opened"
	codeDraining    = "draining"
	codeDown        = "provider_down"
	codeCooling     = "keys_cooling"
	codeQueue       = "queue_full"
	codeRate        = "rate_limited"
	codeTimeout     = "timeout"
	codeDeadline    = "deadline"
	codeUnreachable = "unreachable"
	codeNotSent     = "not_retried"
	codeGaveUp      = "gave_up"
)

// problem is an answer of our own, and the error that it tells of.
type problem struct {
	status   int
	code     string
	provider string
	message  string
	after    time.Duration // when to come again; 0 means that nobody knows
	final    bool          // we have given up: coming again at once is no use
	outcome  retry.Outcome
	reason   string // for the metrics; "" means the code
}

// Error returns the message.
func (p *problem) Error() string { return p.message }

// RetryOutcome implements [retry.Classified].
func (p *problem) RetryOutcome() retry.Outcome { return p.outcome }

// write sends the problem.
func (p *problem) write(w http.ResponseWriter) {
	type body struct {
		Type     string `json:"type"`
		Code     string `json:"code"`
		Message  string `json:"message"`
		Provider string `json:"provider,omitempty"`
	}
	text, err := json.Marshal(map[string]body{"error": {"tideover_error", p.code, p.message, p.provider}})
	if err != nil {
		text = []byte(`{}`) // of strings; can't be
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if p.after > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(p.after), 10))
	}
	if p.final {
		h.Set(shouldRetry, "false")
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(append(text, '\n'))
}

// refuse returns the problem of a request that is not sent. Trying again at once
// is no use; whoever retries by himself is told when it is.
func (t *trip) refuse(status int, code string, after time.Duration, format string, args ...any) *problem {
	p := &problem{
		status: status, code: code, provider: t.asked.spec.Name, after: after, message: fmt.Sprintf(format, args...),
		outcome: retry.Outcome{Class: retry.ClassPermanent},
	}
	if t.once {
		p.outcome = retry.Outcome{After: after}
		if status == http.StatusTooManyRequests {
			p.outcome.Class = retry.ClassThrottled
		}
	}
	return p
}

// tooLong returns the problem of a provider that will not be back in time.
func (t *trip) tooLong(o *obstacle) *problem {
	name := o.v.p.spec.Name
	if !inTime(t.caller, o.wait) {
		t.asked.tally.late.Add(1)
	}
	if o.kind == down {
		return t.refuse(http.StatusServiceUnavailable, codeDown, o.wait, "provider %s is down, and the next look is in %v", name, short(o.wait))
	}
	status, what := http.StatusServiceUnavailable, "no key of provider %s is let in for %v"
	if o.v.p.ring.throttled() {
		status, what = http.StatusTooManyRequests, "all keys of provider %s were told to wait, the first for %v"
	}
	return t.refuse(status, codeCooling, o.wait, what, name, short(o.wait))
}

// hopeless returns the problem of a request that nobody takes, whatever it waits.
func (t *trip) hopeless(met []obstacle) error {
	for _, o := range met {
		if o.err != nil {
			return t.turnedAway(o.v, o.err)
		}
	}
	for _, o := range met {
		if o.kind == forbidden && o.v.p == t.asked && o.v.p.hand.get() == openedByHand {
			return t.refuse(http.StatusServiceUnavailable, codeOpened, 0, "provider %s is opened by hand", o.v.p.spec.Name)
		}
	}
	for _, o := range met {
		if o.kind == forbidden && o.v.p == t.asked {
			return t.refuse(http.StatusServiceUnavailable, codeDraining, 0, "provider %s is draining", o.v.p.spec.Name)
		}
	}
	return t.refuse(http.StatusServiceUnavailable, codeCooling, 0, "no key of provider %s is let in", t.asked.spec.Name)
}

// turnedAway returns the problem of a request that a gate or a limit did not let
// wait.
func (t *trip) turnedAway(v *visit, err error) error {
	name := v.p.spec.Name
	shut, _ := errors.AsType[*health.ClosedError](err)
	rate, _ := errors.AsType[*limit.RateError](err)
	switch {
	case shut != nil:
		t.asked.tally.late.Add(1)
		return t.refuse(http.StatusServiceUnavailable, codeDown, max(shut.Next, shut.Expected), "provider %s is down, and the next look is in %v", name, short(shut.Next))
	case rate != nil && !inTime(t.caller, rate.Wait):
		t.asked.tally.late.Add(1)
		return t.refuse(http.StatusGatewayTimeout, codeDeadline, rate.Wait, "the rate of provider %s leaves no room for %v, and the caller can't wait so long", name, short(rate.Wait))
	case rate != nil:
		return t.refuse(http.StatusServiceUnavailable, codeRate, rate.Wait, "the rate of provider %s leaves no room for %v", name, short(rate.Wait))
	case errors.Is(err, limit.ErrQueueFull):
		return t.refuse(http.StatusServiceUnavailable, codeQueue, time.Second, "too many requests wait for provider %s", name)
	case errors.Is(err, limit.ErrShed):
		return t.refuse(http.StatusServiceUnavailable, codeQueue, time.Second, "the request had to make room for a more urgent one at provider %s", name)
	}
	return err // the context's own
}

// problemOf returns how an error of the transport is told.
func (t *trip) problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		p.reason = p.code
		p.final = t.sent.Load() > 0
		return p
	}
	p := &problem{provider: t.asked.spec.Name, final: true, status: http.StatusBadGateway, code: codeGaveUp, message: t.g.redact(err.Error())}
	gave, _ := errors.AsType[*retry.Error](err)
	if gave != nil {
		p.reason = reasonOf(gave).String()
		if o := retry.OutcomeOf(gave.Last); o.After > 0 {
			p.after = o.After
		}
	}
	tooBig, _ := errors.AsType[*http.MaxBytesError](t.unread())
	switch {
	case tooBig != nil:
		p.status, p.code, p.message = http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", tooBig.Limit)
	case t.unread() != nil:
		p.status, p.code, p.message = http.StatusBadRequest, codeBody, "the body of the request could not be read"
	case errors.Is(t.caller.Err(), context.DeadlineExceeded) || gave != nil && gave.Reason == retry.StopDeadline:
		p.status, p.code = http.StatusGatewayTimeout, codeDeadline
		t.asked.tally.late.Add(1)
	case gave != nil && gave.Timeout() || errors.Is(err, context.DeadlineExceeded):
		p.status, p.code = http.StatusGatewayTimeout, codeTimeout
	case unreachable(err):
		p.code = codeUnreachable
	case errors.Is(err, retryhttp.ErrNotIdempotent) || errors.Is(err, retryhttp.ErrBody):
		p.code = codeNotSent
	}
	return p
}

// unread returns how reading the request's body failed.
func (t *trip) unread() error {
	if err := t.body.Load(); err != nil {
		return *err
	}
	return nil
}

// reasonOf returns why the transport gave up.
func reasonOf(e *retry.Error) retry.Reason {
	if e.Reason == retry.StopPermanent && retry.OutcomeOf(e.Last).Delay == overBudget {
		return retry.StopBudget
	}
	return e.Reason
}

// short rounds a time for a sentence.
func short(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
