package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/plainjson"
	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// shouldRetry is the header that says whether a response should be retried, for any
// status.
const shouldRetry = "X-Should-Retry"

// The codes of the gateway's own error responses. Clients depend on them: codes may be
// added, but not changed.
const (
	codeHost        = "unknown_host"
	codeCrossSite   = "cross_site"
	codeToken       = "unauthorized"
	codePath        = "bad_path"
	codeProvider    = "unknown_provider"
	codeMethod      = "bad_method"
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
	codeGone        = "caller_gone"
	codeUnreachable = "unreachable"
	codeLongHead    = "headers_too_large"
	codeNotSent     = "not_retried"
	codeGaveUp      = "gave_up"
)

// problem is an error response of the gateway itself, and the error for it.
type problem struct {
	status   int
	code     string
	provider string
	message  string
	after    time.Duration // when to try again; 0 means unknown
	final    bool          // the gateway has given up, so the caller should not repeat the request
	outcome  retry.Outcome // for the retry loop of the gateway: no further attempt
	later    retry.Outcome // for a caller that retries
	reason   string        // for metrics; "" means the code
}

// Error returns the message.
func (p *problem) Error() string { return p.message }

// RetryOutcome implements [retry.Classified].
func (p *problem) RetryOutcome() retry.Outcome { return p.outcome }

// problemBody is the JSON of an error in a response or an event of the gateway.
type problemBody struct {
	Type     string `json:"type"`
	Code     string `json:"code"`
	Message  string `json:"message"`
	Provider string `json:"provider,omitempty"`
}

// write sends the problem as a JSON response.
func (p *problem) write(w http.ResponseWriter) {
	text, _ := plainjson.Marshal(map[string]problemBody{"error": {"tideover_error", p.code, p.message, p.provider}})
	text = append(text, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if p.after > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(p.after), 10))
	}
	if p.final {
		h.Set(shouldRetry, "false")
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(text)
}

// newProblem returns the problem for a request that is not sent. The gateway does not try
// it again. A caller that retries is told when to try again.
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
		if p.final = r.picker.sent.Load() > 0; p.final && (p.code == codeOpened || p.code == codeDraining) {
			p.after = 0 // the request must not be repeated, and it is not known when an operator will open the provider
		}
		return p
	}
	p := r.gaveUpProblem(err)
	gave, _ := errors.AsType[*retry.Error](err)
	failure := r.bodyError()
	switch {
	case failure != nil:
		p.setBodyError(failure)
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
	default:
		p.code = connectionCode(err)
	}
	return p
}

// connectionCode returns the code for an attempt that has no response.
func connectionCode(err error) string {
	switch {
	case errors.Is(err, errLongHead):
		return codeLongHead
	case unreachable(err):
		return codeUnreachable
	case errors.Is(err, retryhttp.ErrNotIdempotent) || errors.Is(err, retryhttp.ErrBody):
		return codeNotSent
	}
	return codeGaveUp
}

// gaveUpProblem returns the problem for an error of which only the message is known, and of an
// error of the retry loop also the reason and the delay that the provider asked for.
func (r *request) gaveUpProblem(err error) *problem {
	p := &problem{provider: r.asked.spec.Name, final: true, status: http.StatusBadGateway, code: codeGaveUp, message: r.g.clean(err)}
	gave, _ := errors.AsType[*retry.Error](err)
	if gave == nil {
		return p
	}
	p.reason = gave.Reason.String()
	if o := retry.OutcomeOf(gave.Last); o.After > 0 {
		p.after = o.After
	}
	if failures := r.picker.describe(nil); len(r.picker.targets) > 1 && failures != "" && !r.callerGone() {
		told := *gave
		told.Last = errors.New(failures)
		p.message = r.g.clean(&told)
	}
	return p
}

// setBodyError makes p the problem of a request whose body is too large or could not be read.
func (p *problem) setBodyError(err error) {
	if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
		p.status, p.code, p.message = http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", tooBig.Limit)
		return
	}
	p.status, p.code, p.message = http.StatusBadRequest, codeBody, "the body of the request could not be read"
}

// describe returns how each target of the request failed and what blocks it now.
func (t *targetPicker) describe(met []blocker) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []string
	for i := range t.targets {
		v, parts := &t.targets[i], []string(nil)
		if v.failure != nil {
			parts = append(parts, t.request.g.clean(v.failure))
		}
		for j := range met {
			if met[j].target == v {
				parts = append(parts, met[j].String())
			}
		}
		if len(parts) == 0 {
			continue
		}
		role := "fallback "
		if i == 0 {
			role = "provider "
		}
		list = append(list, role+v.p.spec.Name+": "+strings.Join(parts, "; now "))
	}
	for _, w := range t.withheld {
		list = append(list, "fallback "+w.p.spec.Name+": not used: "+withheldWhy+": "+unknownParameter(w.unknown, t.request.g.redact))
	}
	return strings.Join(list, "; ")
}

// String describes the blocker. The provider's name comes before it in messages.
func (b *blocker) String() string {
	switch b.kind {
	case forbidden:
		if b.mode == openedByHand {
			return "blocked by an operator"
		}
		return "draining"
	case noOther:
		return "all its keys were tried"
	case keysThrottled, keysRejected:
		why := b.target.p.keys.blockReasons(b.of)
		if text := why.String(); text != "" {
			text = "its keys were " + text + ", the first for " + textfmt.RoundDuration(b.wait).String()
			if b.next > 0 && b.next < b.wait {
				text += ", next probe in " + textfmt.RoundDuration(b.next).String()
			}
			return text
		}
		return "its keys were throttled" // the state has changed a moment ago
	case full:
		return fullness(b.err)
	default:
		return "down, next probe in " + textfmt.RoundDuration(b.wait).String()
	}
}

// fullness describes the error of a gate or a limit for a message.
func fullness(err error) string {
	if shut, ok := errors.AsType[*health.ClosedError](err); ok {
		return "down, next probe in " + textfmt.RoundDuration(shut.Next).String()
	}
	if rate, ok := errors.AsType[*limit.RateError](err); ok {
		return "its rate limit is reached, free in " + textfmt.RoundDuration(rate.Wait).String()
	}
	switch {
	case errors.Is(err, limit.ErrQueueFull):
		return "its queue is full"
	case errors.Is(err, limit.ErrShed):
		return "the request was dropped for one with a higher priority"
	}
	return "the wait was canceled"
}

// withheldWhy says why a fallback was not used. The name of the parameter follows it.
const withheldWhy = "the query has a parameter that is not in its forward-query"

// reportWithheld logs and records that a request failed and that fallbacks were not used for it
// because of its query.
func (r *request) reportWithheld() {
	for _, w := range r.picker.withheld {
		name, parameter := w.p.spec.Name, unknownParameter(w.unknown, r.g.redact)
		r.recordNotUsed(w.p, withheldWhy+": "+parameter)
		if first, more := r.g.sampleEvent(&retry.Event{Kind: retry.FailedOver, Name: r.asked.title(), Note: name}); first {
			r.g.log.Warn("a fallback was not used: "+withheldWhy, "provider", r.asked.spec.Name, "fallback", name, "parameter", parameter, "call", r.call, "request", r.g.redact(r.route), "suppressed", more)
		}
	}
}

// eventBody is an event stream on its way to the client. If the stream is silent for too
// long between two events, eventBody adds an event that says why the stream ends. An
// aborted connection alone would not say it.
type eventBody struct {
	io.ReadCloser
	provider string

	line, blank bool // the last byte ended a line; that line was empty
	pending     []byte
	err         error // returned after pending
}

// Read implements [io.Reader].
func (b *eventBody) Read(p []byte) (int, error) {
	if b.err != nil {
		n := copy(p, b.pending)
		if b.pending = b.pending[n:]; n > 0 {
			return n, nil
		}
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[max(0, n-4):n] { // the longest end of an event is CR LF CR LF
		switch {
		case c == '\r':
		case c == '\n':
			b.blank, b.line = b.line, true
		default:
			b.blank, b.line = false, false
		}
	}
	silence, ok := errors.AsType[*retryhttp.SilenceError](err)
	if !ok || !b.blank {
		return n, err
	}
	b.pending, b.err = b.event(silence), err
	return n, nil
}

// event returns the event that reports a silence, in a form that the SDKs of all
// providers treat as an error.
func (b *eventBody) event(e *retryhttp.SilenceError) []byte {
	why := fmt.Sprintf("the stream was silent for %v: raise stream.idle if that is too short", e.For)
	text, _ := json.Marshal(struct {
		Type  string      `json:"type"`
		Error problemBody `json:"error"`
	}{"error", problemBody{"tideover_error", codeTimeout, why, b.provider}})
	return fmt.Appendf(nil, "event: error\ndata: %s\n\n", text)
}
