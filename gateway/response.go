package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// response is what the caller of a request gets, and how the request ended.
type response struct {
	request  *request
	kept     atomic.Pointer[keptResponse]
	brokeOff atomic.Bool // the response broke off after the caller had got a part of it

	mu       sync.Mutex
	last     *attempt // the attempt that was judged last, or that brought the response
	accepted bool     // last brought a response that no retry would change
	answered bool     // the caller gets a response of a provider
	whole    bool     // the caller got all of the response
	over     bool     // the request has ended
	gaveUp   string   // why the gateway gave up on a better response; "" means that it did not give up
	status   int      // status that the caller gets; 0 means none so far
	problem  *problem // error response of the gateway itself; nil means none
}

// outcome returns how the request ended, as one of Outcomes.
func (s *response) outcome() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.over:
		return InProgress
	case s.gaveUp != "" && s.request.picker.sent.Load() == 0:
		return RequestRejected
	case s.gaveUp != "":
		return RequestFailed
	case s.brokeOff.Load():
		return RequestCutShort
	case s.answered && s.whole && s.status >= http.StatusBadRequest:
		return RequestFailed
	case s.answered && s.whole:
		return RequestSucceeded
	default:
		return RequestCanceled
	}
}

// describe sets the fields of a record that are about the response.
func (s *response) describe(i *RequestInfo) {
	i.Outcome = s.outcome()
	s.mu.Lock()
	defer s.mu.Unlock()
	i.Status, i.Reason = s.status, s.gaveUp
	if s.answered {
		i.From = s.last.p.spec.Name
	}
	if p := s.problem; p != nil {
		i.Code, i.Error = p.code, recordText(s.request.g.redact(p.message), maxRecordText)
	}
}

// lastAttempt returns the attempt that was judged last, or that brought the response; nil if
// there was none.
func (s *response) lastAttempt() *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// judged records the result of an attempt. accepted means that no retry would change its
// response.
func (s *response) judged(a *attempt, accepted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.accepted {
		s.last = a
	}
	s.accepted = s.accepted || accepted
}

// breakOff records that the response broke off after the caller had got a part of it.
func (s *response) breakOff() { s.brokeOff.Store(true) }

// complete records that the caller got all of the response.
func (s *response) complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = true
}

// giveUp records why the caller gets no response of a provider. status is that of the response
// that the caller gets instead; 0 means none.
func (s *response) giveUp(p *problem, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaveUp, s.problem, s.status = cmp.Or(p.reason, p.code), p, status
}

// finish ends the request and counts its result.
func (s *response) finish() {
	r := s.request
	s.mu.Lock()
	s.over = true
	answered, whole, why := s.answered, s.whole, s.gaveUp
	s.kept.Load().close()
	s.mu.Unlock()
	r.picker.closeBudgets(answered)
	n := r.asked.stats
	switch {
	case why != "":
		n.failed.Add(1)
		n.giveUps.add(why, 1)
		r.reportWithheld()
	case s.brokeOff.Load():
		n.cutShort.Add(1)
		r.g.log.Warn("response was cut off", "provider", r.asked.spec.Name, "call", r.call, "route", r.route)
	case answered && whole: // even if the caller has disconnected by now
		n.succeeded.Add(1)
	default:
		n.canceled.Add(1)
	}
	r.finishRecord()
}

// answer records that the caller gets the response of a provider, and sets the provider's
// name and the id of the request in its headers. It returns the provider, and why the gateway gave up, or "".
func (s *response) answer(resp *http.Response) (from *provider, gaveUp string) {
	gave, ok := retryhttp.GaveUp(resp)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		s.gaveUp = gave.Reason.String()
	}
	s.answered, s.status = true, resp.StatusCode
	resp.Header[headerProvider] = s.last.p.named
	if w := s.request.writer; w != nil {
		// Not in resp, whose headers the proxy adds to those of w: that would cost an allocation.
		delete(resp.Header, headerCall)
		s.request.setCall(w.Header())
	} else {
		s.request.setCall(resp.Header)
	}
	return s.last.p, s.gaveUp
}

// doNotRetry is the value of the header shouldRetry that tells the caller not to
// repeat the request. All responses share it, so it must not be changed.
var doNotRetry = []string{"false"}

// modify changes the headers of the response for the caller. After the success
// of a request that must not be processed twice, they tell the caller not to repeat it. The
// body may break off after the headers were sent, and some SDKs repeat a request whose
// response they can't read.
func (s *response) modify(resp *http.Response) error {
	r := s.request
	if retryhttp.IsEventStream(resp.Header) {
		r.deadline.streamBegins()
		if resp.StatusCode == http.StatusOK && len(resp.Header["Content-Encoding"]) == 0 {
			resp.Body = &eventBody{ReadCloser: resp.Body, provider: r.asked.spec.Name, line: true, blank: true}
		}
	}
	from, gaveUp := s.answer(resp)
	if gaveUp != "" || resp.StatusCode < http.StatusBadRequest && !r.asked.callerMayRepeat(resp.Request) {
		resp.Header[shouldRetry] = doNotRetry
	}
	s.rewriteURLs(resp.Header, &from.spec)
	r.watchResponse(resp)
	if len(resp.Trailer) > 0 {
		// HTTP/1 allows trailers only after a body of unknown length.
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	return nil
}

// writeError answers a request that got no response.
func (s *response) writeError(w http.ResponseWriter, err error) {
	r := s.request
	if r.callerGone() && errors.Is(r.caller.Err(), context.Canceled) {
		// The caller has disconnected, and gets nothing. If it has closed its sending half only, which
		// looks the same, it can read why.
		r.setCall(w.Header())
		gone := problem{status: statusGone, code: codeGone, provider: r.asked.spec.Name, message: "the caller closed the connection, or its sending half: keep it open until the answer is there"}
		gone.write(w)
		return
	}
	p := r.problemOf(err)
	if p.status == http.StatusGatewayTimeout {
		r.upload.stop()
	}
	s.writeProblem(w, p)
}

// statusGone is nginx's status for a caller that disconnected.
const statusGone = 499

// writeProblem sends an error response of the gateway itself.
func (s *response) writeProblem(w http.ResponseWriter, p *problem) {
	s.giveUp(p, p.status)
	s.request.setCall(w.Header())
	p.write(w)
}

// keptResponse is a failed response of the provider that the caller asked for, kept while
// other keys or providers are tried. If those fail too, it tells the caller more
// than their responses.
type keptResponse struct {
	attempt *attempt
	resp    http.Response
}

func (kept *keptResponse) close() {
	if kept != nil {
		_ = kept.resp.Body.Close()
	}
}

// keep keeps a response that would otherwise be discarded, and closes the one kept before.
// It does not read the body: usually retryhttp has read it to its end, so that the
// connection is free.
func (s *response) keep(a *attempt, resp *http.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.kept.Load()
	switch {
	case s.over || s.accepted || resp.Body == nil: // nothing would close it
		return
	case old != nil && a.result.kind == keyRejected && old.attempt.result.kind != keyRejected:
		return // a rejected key is our problem, so the older response tells the caller more
	}
	s.kept.Store(&keptResponse{attempt: a, resp: *resp})
	resp.Body = io.NopCloser(resp.Body) // keptResponse closes the body
	old.close()
}

// best returns what the caller gets: the last result, or the kept response if that tells
// more. The kept response tells more than a problem of the gateway, a fallback that can't
// be reached, and a fallback that rejects our key.
func (s *response) best(resp *http.Response, err error) (*http.Response, error) {
	kept := s.kept.Load()
	if kept == nil {
		return resp, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tellsMore(kept, err) {
		return resp, err
	}
	s.gaveUp = whyGivenUp(resp, err)
	s.last = kept.attempt
	if resp != nil {
		_ = resp.Body.Close()
	}
	own := kept.resp
	return &own, nil
}

// tellsMore reports whether the kept response tells the caller more than the last result.
// The caller of tellsMore holds s.mu.
func (s *response) tellsMore(kept *keptResponse, err error) bool {
	r, last := s.request, s.last
	switch {
	case err == nil && last == kept.attempt:
		return false // the kept response is the last one
	case err == nil:
		return last.result.kind == keyRejected && (last.p != r.asked || kept.attempt.result.kind != keyRejected)
	case r.callerGone() || r.bodyError() != nil:
		return false
	}
	_, ours := errors.AsType[*problem](err)
	return ours || last.p != r.asked
}

// whyGivenUp returns the reason for which the gateway gave up, for the statistics.
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

// setRetryAdvice sets the headers that tell a caller that retries whether and when to try
// again. It considers all keys, not only the key of the response.
func (s *response) setRetryAdvice(h http.Header) {
	s.mu.Lock()
	kind, ours := s.last.result.kind, s.last.p.keys.ours
	s.mu.Unlock()
	if kind != keyRejected && kind != keyThrottled || !ours {
		return
	}
	wait, ok := s.request.picker.nextOpening()
	if kind == keyRejected {
		h.Set(shouldRetry, strconv.FormatBool(ok))
	}
	if !ok {
		return
	}
	// Retry-After-Ms is the most precise of the headers, and readers prefer it.
	h.Del("Retry-After")
	h.Set("Retry-After-Ms", strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10))
	if wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(wait), 10))
	}
}

// urlHeaders are response headers that may have a URL of the provider. Google uses the
// last two for uploads.
var urlHeaders = []string{"Location", "X-Goog-Upload-Url", "X-Goog-Upload-Control-Url"}

// rewriteURLs replaces URLs of the provider in a response by URLs of the gateway. A
// Location becomes a path. The upload headers keep scheme and host, because the SDKs of
// Google require them.
func (s *response) rewriteURLs(h http.Header, from *Spec) {
	for _, name := range urlHeaders {
		v := h[name]
		if len(v) != 1 {
			continue
		}
		u, err := url.Parse(v[0])
		if err != nil {
			continue
		}
		path, ok := from.pathThrough(u)
		switch {
		case !ok:
		case name == "Location":
			h[name] = []string{path}
		case s.request.secure:
			h[name] = []string{"https://" + s.request.host + path}
		default:
			h[name] = []string{"http://" + s.request.host + path}
		}
	}
}

// pathThrough returns the path of the gateway for a URL of the provider, which
// may be relative to its host. It returns false for a URL that is not below the base URL.
func (s *Spec) pathThrough(u *url.URL) (string, bool) {
	base, path := s.BaseURL, u.EscapedPath()
	if u.Host != "" && !strings.EqualFold(u.Host, base.Host) || u.Scheme != "" && u.Scheme != base.Scheme || hasDots(path) {
		return "", false
	}
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(base.EscapedPath(), "/"))
	if !ok || u.Host == "" && !strings.HasPrefix(path, "/") || rest != "" && rest[0] != '/' {
		return "", false
	}
	suffix := url.URL{RawQuery: u.RawQuery, ForceQuery: u.ForceQuery, Fragment: u.Fragment, RawFragment: u.RawFragment}
	return prefix + s.Name + rest + suffix.String(), true
}
