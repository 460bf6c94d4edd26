package retryhttp

import (
	"context"
	"net/http"
	"sync"

	"github.com/tideover/tideover/retry"
)

// hedgeable reports whether a second attempt may run beside the first: the
// request may be processed twice, and its body can be read twice at once.
func (t *Transport) hedgeable(req *http.Request) bool { return t.mayRepeat(req) && !oneWay(req) }

// race is an exchange whose attempts may have a second one beside them.
type race struct {
	*exchange
	mu      sync.Mutex
	attempt context.Context  // of the runner's attempt that is under way
	answers []*http.Response // of it
	over    bool
}

// hedged makes the request with a hedger.
func (t *Transport) hedged(runners *runnerSet, req *http.Request) (*http.Response, error) {
	r := &race{exchange: newExchange(t, runners, req, retry.State{})}
	defer r.abandon()
	won, err := retry.Hedged(req.Context(), runners.hedger, r.run)
	r.settle(won)
	r.resp = won
	return r.finish(err)
}

// run makes one attempt; two may run at once. The context tells to which of the
// runner's attempts it belongs.
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
	if r.over || r.attempt != ctx { // it lost, and took its time
		r.drop(nil)
		return nil, err
	}
	return resp, err
}

// next makes one more attempt.
func (r *race) next(ctx context.Context) (*http.Response, error) {
	n := int(r.sent.Add(1))
	req, s, err := r.prepare(ctx, n)
	if err != nil {
		return nil, r.failure(retry.Permanent(err), r.req, s)
	}
	return r.send(req, s, n)
}

// settle lets go of everything but the answer that counts.
func (r *race) settle(won *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.drop(won)
}

// drop closes the answers of the attempt but one.
func (r *race) drop(but *http.Response) {
	for _, resp := range r.answers {
		if resp != but {
			r.discard(resp)
		}
	}
	r.answers = nil
}
