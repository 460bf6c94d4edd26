package gateway

import (
	"errors"
	"io"
	"net/http"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// answer is an answer of the provider that was asked for, after which the request
// went elsewhere: to another key, or to another provider. If that comes to nothing
// it tells the caller more than what was found there.
type answer struct {
	leg  *attempt
	resp http.Response
}

// keep keeps an answer that is about to be discarded. Nothing of its body is read;
// nearly always all of it has been, and the connection is free.
func (t *request) keep(l *attempt, resp *http.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.left.Load()
	switch {
	case t.over || t.hasResponse || resp.Body == nil: // nobody would close it
		return
	case old != nil && l.result.kind == keyRejected && old.leg.result.kind != keyRejected:
		return // that a key is not wanted is our trouble
	}
	t.left.Store(&answer{leg: l, resp: *resp})
	resp.Body = unclosed{resp.Body}
	old.close()
}

func (a *answer) close() {
	if a != nil {
		_ = a.resp.Body.Close()
	}
}

// unclosed is a body that is closed by somebody else.
type unclosed struct{ io.Reader }

func (unclosed) Close() error { return nil }

// best returns what the caller gets: what came last, or what the provider that was
// asked for said when it was left, if that is more telling. It is, before an answer
// of our own, a fallback that can't be reached, and one that does not want our key.
func (t *request) best(resp *http.Response, err error) (*http.Response, error) {
	a := t.left.Load()
	if a == nil {
		return resp, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.tells(a, err) {
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

// tells reports whether the answer tells more than what came last. It needs the
// lock.
func (t *request) tells(a *answer, err error) bool {
	l := t.last
	switch {
	case err == nil && l == a.leg:
		return false // it is that very one
	case err == nil:
		return l.result.kind == keyRejected && (l.p != t.asked || a.leg.result.kind != keyRejected)
	case t.callerGone() || t.unread() != nil:
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
