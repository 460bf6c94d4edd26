package retryhttp

import (
	"net/http"

	"github.com/tideover/tideover/retry"
)

// Router says where each attempt of a request goes, and learns what became of
// it. It is what a client with several keys, or a gateway before several
// providers, adds to the one retry loop; see [WithRouter].
type Router interface {
	// Route is called before each attempt, which is the n-th of its request. The
	// request is the attempt's own: its URL, Host and Header may be changed. Route
	// may wait, for a turn or for a provider to come back; attempt-timeout counts
	// from when it returns, total-timeout all the time. Its error is the attempt's
	// failure: nothing was sent, and it is transient unless it says otherwise (see
	// [retry.Classified]).
	Route(req *http.Request, n int) (Leg, error)
}

// Leg is an attempt that a [Router] has let go.
type Leg interface {
	// Judged is called when the headers of an answer are there, or when there will
	// be none. resp is nil without an answer; failure is nil when no retry is
	// wanted, and a [*StatusError] when the answer is a failure. o is what the
	// failure means; Judged returns it, or what it means here: a failure after
	// which another destination can be asked at once, say.
	Judged(resp *http.Response, failure error, o retry.Outcome) retry.Outcome

	// Closed is called once, after Judged, when the answer's body has been read to
	// its end or closed, or when there is none. err is how reading it failed, nil
	// if it did not.
	Closed(err error)
}
