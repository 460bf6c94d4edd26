package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/shortage"
	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// shouldRetry is the header that says whether a response is worth a retry, whatever its
// status.
const shouldRetry = "X-Should-Retry"

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
	codeShortage    = "shortage"
	codeRate        = "rate_limited"
	codeTimeout     = "timeout"
	codeDeadline    = "deadline"
	codeUnreachable = "unreachable"
	codeNotSent     = "not_retried"
	codeGaveUp      = "gave_up"
)

// problem is a response of the gateway itself, and the error behind it.
type problem struct {
	status   int
	code     string
	provider string
	message  string
	after    time.Duration // when to try again; 0 means that it is not known
	final    bool          // the gateway has given up: trying again at once is no use
	outcome  retry.Outcome // for the loop that makes the attempts: it is over
	later    retry.Outcome // for a caller that retries
	reason   string        // for the metrics; "" means the code
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
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // people read it too
	_ = enc.Encode(map[string]body{"error": {"tideover_error", p.code, p.message, p.provider}})
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(text.Len()))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if p.after > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(p.after), 10))
	}
	if p.final {
		h.Set(shouldRetry, "false")
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(text.Bytes())
}

// newProblem returns the problem of a request that is not sent. Trying again at once is
// no use; a caller that retries learns when it is.
func (t *request) newProblem(status int, code string, after time.Duration, message string) *problem {
	p := &problem{
		status: status, code: code, provider: t.asked.spec.Name, after: after, message: message,
		outcome: retry.Outcome{Final: true}, later: retry.Outcome{After: after},
	}
	if status == http.StatusTooManyRequests {
		p.later.Class = retry.ClassThrottled
	}
	return p
}

// waitTooLongProblem returns the problem of a provider that will not be back in time.
func (t *request) waitTooLongProblem(o *blocker, met []blocker) *problem {
	if !inTime(t.caller, o.wait) {
		t.asked.stats.late.Add(1)
	}
	status, code, after := http.StatusServiceUnavailable, codeDown, o.wait
	if o.kind != down {
		code, after = codeCooling, o.next
		if why := o.target.p.keys.blockReasons(o.of); why.throttled() {
			status = http.StatusTooManyRequests
		}
	}
	p := t.newProblem(status, code, after, t.describe(met))
	p.later.After = o.wait // a caller that retries has only so many attempts
	return p
}

// byHandFor is when to come again to a provider that somebody has closed: nobody
// knows, but it is soon enough.
const byHandFor = 5 * time.Second

// unavailableProblem returns the problem of a request that no provider takes, however
// long it waits.
func (t *request) unavailableProblem(met []blocker) error {
	for i := range met {
		if met[i].err != nil {
			return t.rejectedProblem(&met[i], met)
		}
	}
	for _, o := range met {
		if o.kind == forbidden && o.target.p == t.asked {
			code := codeDraining
			if o.mode == openedByHand {
				code = codeOpened
			}
			return t.newProblem(http.StatusServiceUnavailable, code, byHandFor, t.describe(met))
		}
	}
	return t.newProblem(http.StatusServiceUnavailable, codeCooling, 0, t.describe(met))
}

// rejectedProblem returns the problem of a request that a gate or a limit did not let
// wait.
func (t *request) rejectedProblem(o *blocker, met []blocker) error {
	shut, _ := errors.AsType[*health.ClosedError](o.err)
	rate, _ := errors.AsType[*limit.RateError](o.err)
	switch {
	case shut != nil:
		t.asked.stats.late.Add(1)
		after := shut.Next
		if o.target.p.gate.learned() > 0 {
			after = max(after, shut.Expected)
		}
		return t.newProblem(http.StatusServiceUnavailable, codeDown, after, t.describe(met))
	case rate != nil && !inTime(t.caller, rate.Wait):
		t.asked.stats.late.Add(1)
		return t.newProblem(http.StatusGatewayTimeout, codeDeadline, rate.Wait, t.describe(met)+", and the caller can't wait so long")
	case rate != nil:
		return t.newProblem(http.StatusServiceUnavailable, codeRate, rate.Wait, t.describe(met))
	case errors.Is(o.err, limit.ErrQueueFull), errors.Is(o.err, limit.ErrShed):
		return t.newProblem(http.StatusServiceUnavailable, codeQueue, time.Second, t.describe(met))
	}
	return o.err // the context's own
}

// problemOf returns the problem for an error of the transport.
func (t *request) problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		p.reason = p.code
		if p.final = t.sent.Load() > 0; p.final && (p.code == codeOpened || p.code == codeDraining) {
			p.after = 0 // coming again is no use, and there is no word of when it would be
		}
		return p
	}
	p := &problem{provider: t.asked.spec.Name, final: true, status: http.StatusBadGateway, code: codeGaveUp, message: t.g.clean(err)}
	gave, _ := errors.AsType[*retry.Error](err)
	if gave != nil {
		p.reason = gave.Reason.String()
		if o := retry.OutcomeOf(gave.Last); o.After > 0 {
			p.after = o.After
		}
		if story := t.describe(nil); len(t.targets) > 1 && story != "" && !t.callerGone() {
			told := *gave
			told.Last = errors.New(story)
			p.message = t.g.clean(&told)
		}
	}
	tooBig, _ := errors.AsType[*http.MaxBytesError](t.bodyError())
	switch {
	case tooBig != nil:
		p.status, p.code, p.message = http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", tooBig.Limit)
	case t.bodyError() != nil:
		p.status, p.code, p.message = http.StatusBadRequest, codeBody, "the body of the request could not be read"
	case errors.Is(t.caller.Err(), context.DeadlineExceeded) || gave != nil && gave.Reason == retry.StopDeadline:
		p.status, p.code = http.StatusGatewayTimeout, codeDeadline
		t.asked.stats.late.Add(1)
	case t.upload.stopped.Load():
		p.status, p.code, p.reason = http.StatusGatewayTimeout, codeTimeout, retry.StopTotalTimeout.String()
		p.message = fmt.Sprintf("the body of the request did not arrive within the total-timeout of %v", t.asked.spec.Policy.TotalTimeout)
	case gave != nil && gave.Timeout() || errors.Is(err, context.DeadlineExceeded):
		p.status, p.code = http.StatusGatewayTimeout, codeTimeout
	case shortage.Is(err):
		p.status, p.code, p.reason, p.final, p.after = http.StatusServiceUnavailable, codeShortage, codeShortage, false, time.Second
		p.message = "this machine is short of descriptors, memory or processes: " + p.message
	case unreachable(err):
		p.code = codeUnreachable
	case errors.Is(err, retryhttp.ErrNotIdempotent) || errors.Is(err, retryhttp.ErrBody):
		p.code = codeNotSent
	}
	return p
}

// bodyError returns how reading the request's body failed.
func (t *request) bodyError() error {
	if err := t.body.Load(); err != nil {
		return *err
	}
	return nil
}

// keptResponse is a response of the provider that was asked for, after which the request
// went to another key or another provider. If those fail too, it tells the caller more
// than their responses.
type keptResponse struct {
	leg  *attempt
	resp http.Response
}

// keepResponse keeps a response that is about to be discarded. Nothing of its body is
// read; nearly always all of it has been, and the connection is free.
func (t *request) keepResponse(l *attempt, resp *http.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.keptResponse.Load()
	switch {
	case t.over || t.hasResponse || resp.Body == nil: // nobody would close it
		return
	case old != nil && l.result.kind == keyRejected && old.leg.result.kind != keyRejected:
		return // that a key is not wanted is our trouble
	}
	t.keptResponse.Store(&keptResponse{leg: l, resp: *resp})
	resp.Body = unclosed{resp.Body}
	old.close()
}

func (a *keptResponse) close() {
	if a != nil {
		_ = a.resp.Body.Close()
	}
}

// unclosed is a body that is closed by another owner.
type unclosed struct{ io.Reader }

func (unclosed) Close() error { return nil }

// bestResponse returns what the caller gets: the last response, or the kept one if that
// tells more. It tells more than a problem of the gateway, a fallback that can't be
// reached, and a fallback that rejects our key.
func (t *request) bestResponse(resp *http.Response, err error) (*http.Response, error) {
	a := t.keptResponse.Load()
	if a == nil {
		return resp, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.tellsMore(a, err) {
		return resp, err
	}
	t.gaveUp = whyGivenUp(resp, err)
	t.last = a.leg
	if resp != nil {
		_ = resp.Body.Close()
	}
	own := a.resp
	return &own, nil
}

// tellsMore reports whether the kept response tells more than the last one. It needs the
// lock.
func (t *request) tellsMore(a *keptResponse, err error) bool {
	l := t.last
	switch {
	case err == nil && l == a.leg:
		return false // it is that very one
	case err == nil:
		return l.result.kind == keyRejected && (l.p != t.asked || a.leg.result.kind != keyRejected)
	case t.callerGone() || t.bodyError() != nil:
		return false
	}
	_, ours := errors.AsType[*problem](err)
	return ours || l.p != t.asked
}

// whyGivenUp returns why there is no better answer.
func whyGivenUp(resp *http.Response, err error) string {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.code
	}
	if e, ok := errors.AsType[*retry.Error](err); ok {
		return e.Reason.String()
	}
	if e, ok := retryhttp.GaveUp(resp); ok {
		return e.Reason.String()
	}
	return retry.StopPermanent.String()
}
