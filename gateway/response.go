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

	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// shouldRetry is the header that says whether a response is worth a retry, for any
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
func (r *request) newProblem(status int, code string, after time.Duration, message string) *problem {
	p := &problem{
		status: status, code: code, provider: r.asked.spec.Name, after: after, message: message,
		outcome: retry.Outcome{Final: true}, later: retry.Outcome{After: after},
	}
	if status == http.StatusTooManyRequests {
		p.later.Class = retry.ClassThrottled
	}
	return p
}

// problemOf returns the problem for an error of the transport.
func (r *request) problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		p.reason = p.code
		if p.final = r.sent.Load() > 0; p.final && (p.code == codeOpened || p.code == codeDraining) {
			p.after = 0 // coming again is no use, and there is no word of when it would be
		}
		return p
	}
	p := &problem{provider: r.asked.spec.Name, final: true, status: http.StatusBadGateway, code: codeGaveUp, message: r.g.clean(err)}
	gave, _ := errors.AsType[*retry.Error](err)
	if gave != nil {
		p.reason = gave.Reason.String()
		if o := retry.OutcomeOf(gave.Last); o.After > 0 {
			p.after = o.After
		}
		if failures := r.describe(nil); len(r.targets) > 1 && failures != "" && !r.callerGone() {
			told := *gave
			told.Last = errors.New(failures)
			p.message = r.g.clean(&told)
		}
	}
	tooBig, _ := errors.AsType[*http.MaxBytesError](r.bodyError())
	switch {
	case tooBig != nil:
		p.status, p.code, p.message = http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", tooBig.Limit)
	case r.bodyError() != nil:
		p.status, p.code, p.message = http.StatusBadRequest, codeBody, "the body of the request could not be read"
	case errors.Is(r.caller.Err(), context.DeadlineExceeded) || gave != nil && gave.Reason == retry.StopDeadline:
		p.status, p.code = http.StatusGatewayTimeout, codeDeadline
		r.asked.stats.late.Add(1)
	case r.upload.stopped.Load():
		p.status, p.code, p.reason = http.StatusGatewayTimeout, codeTimeout, retry.StopTotalTimeout.String()
		p.message = fmt.Sprintf("the body of the request did not arrive within the total-timeout of %v", r.asked.spec.Policy.TotalTimeout)
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
func (r *request) bodyError() error {
	if err := r.body.Load(); err != nil {
		return *err
	}
	return nil
}

// keptResponse is a response of the provider that was asked for, after which the request
// went to another key or another provider. If those fail too, it tells the caller more
// than their responses.
type keptResponse struct {
	attempt *attempt
	resp    http.Response
}

// keepResponse keeps a response that is about to be discarded. Nothing of its body is
// read; nearly always all of it has been, and the connection is free.
func (r *request) keepResponse(a *attempt, resp *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.keptResponse.Load()
	switch {
	case r.over || r.hasResponse || resp.Body == nil: // it would not be closed
		return
	case old != nil && a.result.kind == keyRejected && old.attempt.result.kind != keyRejected:
		return // that a key is not wanted is our trouble
	}
	r.keptResponse.Store(&keptResponse{attempt: a, resp: *resp})
	resp.Body = unclosed{resp.Body}
	old.close()
}

func (kept *keptResponse) close() {
	if kept != nil {
		_ = kept.resp.Body.Close()
	}
}

// unclosed is a body that is closed by another owner.
type unclosed struct{ io.Reader }

func (unclosed) Close() error { return nil }

// bestResponse returns what the caller gets: the last response, or the kept one if that
// tells more. It tells more than a problem of the gateway, a fallback that can't be
// reached, and a fallback that rejects our key.
func (r *request) bestResponse(resp *http.Response, err error) (*http.Response, error) {
	kept := r.keptResponse.Load()
	if kept == nil {
		return resp, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.tellsMore(kept, err) {
		return resp, err
	}
	r.gaveUp = whyGivenUp(resp, err)
	r.last = kept.attempt
	if resp != nil {
		_ = resp.Body.Close()
	}
	own := kept.resp
	return &own, nil
}

// tellsMore reports whether the kept response tells more than the last one. It needs the
// lock.
func (r *request) tellsMore(kept *keptResponse, err error) bool {
	last := r.last
	switch {
	case err == nil && last == kept.attempt:
		return false // it is that very one
	case err == nil:
		return last.result.kind == keyRejected && (last.p != r.asked || kept.attempt.result.kind != keyRejected)
	case r.callerGone() || r.bodyError() != nil:
		return false
	}
	_, ours := errors.AsType[*problem](err)
	return ours || last.p != r.asked
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
