package retryhttp

import (
	"context"
	"net/http"
	"sync"

	"github.com/tideover/tideover/retry"
)

// hedgeable reports whether a second attempt may run beside the first: the
// request may be processed twice, and GetBody can return its body a second time.
func (t *Transport) hedgeable(req *http.Request) bool { return t.mayRepeat(req) && !oneWay(req) }

// race is an exchange of a hedger: two of its attempts may run at the same time.
type race struct {
	*exchange
	mu      sync.Mutex
	attempt context.Context  // context of the runner's current attempt
	answers []*http.Response // answers to the requests of the current attempt
	over    bool
}

// hedged makes all attempts of the request with a hedger.
func (t *Transport) hedged(runners *runnerSet, req *http.Request) (*http.Response, error) {
	r := &race{exchange: newExchange(t, runners, req, retry.State{})}
	defer r.abandon()
	won, err := retry.Hedged(req.Context(), runners.hedger, r.run)
	r.settle(won)
	r.resp = won
	return r.finish(err)
}

// run makes one request of an attempt; two may run at once. Both have the context of
// the runner's attempt to which they belong.
func (r *race) run(ctx context.Context) (*http.Response, error) {
	r.mu.Lock()
	if r.attempt != ctx {
		r.attempt = ctx
		r.rounds.Add(1)
		r.drop(nil)
	}
	r.mu.Unlock()
	resp, err := r.next(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if resp == nil {
		return nil, err
	}
	r.answers = append(r.answers, resp)
	if r.over || r.attempt != ctx { // this request lost, and was slow to end
		r.drop(nil)
		return nil, err
	}
	return resp, err
}

// next sends one more request.
func (r *race) next(ctx context.Context) (*http.Response, error) {
	n := int(r.sent.Add(1))
	req, s, err := r.prepare(ctx, n)
	if err != nil {
		return nil, r.failure(retry.Permanent(err), r.req, s)
	}
	return r.send(req, s, n)
}

// settle closes all answers except won, which the caller gets.
func (r *race) settle(won *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.drop(won)
}

// drop closes all answers of the current attempt except but.
func (r *race) drop(but *http.Response) {
	for _, resp := range r.answers {
		if resp != but {
			r.discard(resp)
		}
	}
	r.answers = nil
}
