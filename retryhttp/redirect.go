package retryhttp

import (
	"net/http"
	"time"

	"github.com/tideover/tideover/retry"
)

// spentKey is the key of a [retry.State] in the context of a redirect's request:
// what its retries and its time have taken from those of the request to come.
type spentKey struct{}

// redirected notes what was spent on an answer that sends the client elsewhere.
func (x *exchange) redirected() {
	if x.resp == nil || x.resp.StatusCode/100 != 3 || x.resp.Header.Get("Location") == "" {
		return
	}
	spent := retry.State{Attempt: x.before.Attempt + int(x.rounds.Load()) - 1, Elapsed: x.before.Elapsed}
	if !x.began.IsZero() {
		spent.Elapsed += time.Since(x.began)
	}
	if spent != (retry.State{}) {
		x.note(spentKey{}, spent)
	}
}

// spentBefore returns what was spent on the redirects that led to the request.
// [http.Client] leaves the answer there that it follows.
func spentBefore(req *http.Request) (s retry.State) {
	if r := req.Response; r != nil && r.Request != nil {
		s, _ = r.Request.Context().Value(spentKey{}).(retry.State)
	}
	return s
}
