package gateway

import (
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

// response is what the caller of a request gets, and how that went.
type response struct {
	request  *request
	kept     atomic.Pointer[keptResponse]
	brokeOff atomic.Bool // after the caller had seen some of it

	mu       sync.Mutex
	last     *attempt // the attempt that was judged last, or brought the response
	accepted bool     // last brought the response
	answered bool     // the caller gets a response of a provider
	whole    bool     // the caller got all of it
	over     bool     // nothing more will come of the request
	gaveUp   string   // why the caller gets no better response; "" means that it is the best
}

// judged records the result of an attempt. accepted says that no retry would change its
// response.
func (s *response) judged(a *attempt, accepted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.accepted {
		s.last = a
	}
	s.accepted = s.accepted || accepted
}

// breakOff records that the response broke off after the caller had seen some of it.
func (s *response) breakOff() { s.brokeOff.Store(true) }

// complete records that the caller got all of the response.
func (s *response) complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = true
}

// giveUp records why the caller gets no response of a provider.
func (s *response) giveUp(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaveUp = why
}

// finish ends the request, and counts how it ended.
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
		r.logWithheld()
	case s.brokeOff.Load():
		n.cutShort.Add(1)
		r.g.log.Warn("response was cut off", "provider", r.asked.spec.Name, "route", r.route)
	case answered && whole: // even if the caller is gone by now
		n.succeeded.Add(1)
	default:
		n.canceled.Add(1)
	}
}

// answer records that the caller gets the provider's response, and names the provider in
// its headers. It returns the provider, and why the gateway gave up, or "".
func (s *response) answer(resp *http.Response) (from *provider, gaveUp string) {
	gave, ok := retryhttp.GaveUp(resp)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		s.gaveUp = gave.Reason.String()
	}
	s.answered = true
	resp.Header[headerProvider] = s.last.p.named
	return s.last.p, s.gaveUp
}

// doNotRetry is the value of shouldRetry on answers after which the caller should not
// repeat the request. It is never changed.
var doNotRetry = []string{"false"}

// modify changes the headers of the response that the caller will get. After the success
// of a request that may not be sent twice, they tell the caller not to repeat it: the body
// may be cut after the head was sent, and some SDKs repeat a request whose response they
// can't read.
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
	if len(resp.Trailer) > 0 {
		// HTTP/1 has trailers only behind bodies of unknown length.
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	return nil
}

// writeError answers a request that got no response.
func (s *response) writeError(w http.ResponseWriter, err error) {
	r := s.request
	if r.callerGone() && errors.Is(r.caller.Err(), context.Canceled) {
		w.WriteHeader(statusGone) // for the log alone: the caller has disconnected
		return
	}
	p := r.problemOf(err)
	if p.status == http.StatusGatewayTimeout {
		r.upload.stop()
	}
	s.writeProblem(w, p)
}

// statusGone is nginx's for a caller that disconnected.
const statusGone = 499

// writeProblem sends a response of the gateway itself.
func (s *response) writeProblem(w http.ResponseWriter, p *problem) {
	why := p.reason
	if why == "" {
		why = p.code
	}
	s.giveUp(why)
	p.write(w)
}

// keptResponse is a response of the provider that was asked for, after which the request
// went to another key or another provider. If those fail too, it tells the caller more
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

// keep keeps a response that is about to be discarded. Nothing of its body is read;
// nearly always all of it has been, and the connection is free.
func (s *response) keep(a *attempt, resp *http.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.kept.Load()
	switch {
	case s.over || s.accepted || resp.Body == nil: // it would not be closed
		return
	case old != nil && a.result.kind == keyRejected && old.attempt.result.kind != keyRejected:
		return // that a key is rejected is our trouble
	}
	s.kept.Store(&keptResponse{attempt: a, resp: *resp})
	resp.Body = unclosed{resp.Body}
	old.close()
}

// unclosed is a body that is closed by another owner.
type unclosed struct{ io.Reader }

func (unclosed) Close() error { return nil }

// best returns what the caller gets: the last response, or the kept one if that tells
// more. It tells more than a problem of the gateway, a fallback that can't be reached, and
// a fallback that rejects our key.
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

// tellsMore reports whether the kept response tells more than the last one. It needs the
// lock.
func (s *response) tellsMore(kept *keptResponse, err error) bool {
	r, last := s.request, s.last
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

// whyGivenUp returns why there is no better response.
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

// setRetryAdvice makes the response say whether and when to try again, by what is known
// of all keys. It is for callers that retry.
func (s *response) setRetryAdvice(h http.Header) {
	s.mu.Lock()
	kind, own := s.last.result.kind, s.last.p.keys.own
	s.mu.Unlock()
	if kind != keyRejected && kind != keyThrottled || !own {
		return
	}
	wait, ok := s.request.picker.nextOpening()
	if kind == keyRejected {
		h.Set(shouldRetry, strconv.FormatBool(ok))
	}
	if !ok {
		return
	}
	// The most exact of the forms, which comes before all others.
	h.Del("Retry-After")
	h.Set("Retry-After-Ms", strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10))
	if wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(wait), 10))
	}
}

// urlHeaders are the headers of a response with a URL of the provider. Those of Google are
// for the content of an upload.
var urlHeaders = []string{"Location", "X-Goog-Upload-Url", "X-Goog-Upload-Control-Url"}

// rewriteURLs makes URLs of the provider in a response lead through the gateway. A Location
// becomes a path. The SDKs of Google take the path of the URL for an upload, and want one
// with a host.
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

// pathThrough returns the path by which the gateway leads to a URL of the provider, which
// may be relative to its host. It reports false for a URL that is not below the base URL.
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
