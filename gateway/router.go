package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// router is the [retryhttp.Router] of all providers. Its state is in the request that
// the context holds.
type router struct{}

// Route implements [retryhttp.Router].
func (router) Route(req *http.Request, n int) (retryhttp.Attempt, error) {
	r := requestFrom(req.Context())
	if r == nil {
		return nil, retry.Permanent(errors.New("gateway: the request has no state of the gateway"))
	}
	a, err := r.pickTarget(req.Context(), req)
	if err != nil {
		return nil, err
	}
	a.n, a.req = n, req
	r.begin(a)
	a.p.setTarget(req, r, a.key)
	a.sent, a.upload = clock.Now(), r.upload.waited()
	return a, nil
}

// Next implements [retryhttp.Router].
func (router) Next(_ context.Context, f retryhttp.Failure) retry.Decision {
	a := f.Attempt.(*attempt)
	d := a.request.decide(a, &f)
	if d == tryNow(&f) && a.p == a.request.asked && f.Response != nil {
		a.request.keepResponse(a, f.Response)
	}
	return d
}

// begin counts the attempt, and opens the request's account with the retry budget of the
// provider.
func (r *request) begin(a *attempt) {
	v, p := a.target, a.p
	r.mu.Lock()
	from, why := r.at, r.why
	if from == nil && p != r.asked {
		from, why = &r.targets[0], r.asked.blockedBecause(r.began, r.scope())
	}
	v.made++
	if !v.began {
		v.began = true
		if b := p.budgets.of(r.route); b != nil {
			v.account = b.Begin()
		}
	}
	v.granted = false
	r.at, r.why = v, ""
	a.flying.Store(true)
	if p.spec.H2C {
		r.h2c = append(slices.DeleteFunc(r.h2c, func(a *attempt) bool { return !a.flying.Load() }), a)
	}
	r.mu.Unlock()

	p.inFlight.Add(1)
	p.stats.attempts.Add(1)
	r.asked.stats.sent.Add(1)
	r.sent.Add(1)
	if a.pass.Probe() {
		p.stats.probes.Add(1)
	}
	if from != nil && from != v {
		r.recordFailover(from.p, p, why)
	}
}

// blockedBecause returns in a few words why requests are not sent to the provider.
func (p *provider) blockedBecause(began time.Time, s scope) string {
	switch {
	case p.override.get() == openedByHand:
		return "opened by hand"
	case !p.override.isOpenTo(began):
		return "draining"
	}
	if _, next := p.keys.left(s); next > 0 {
		why := p.keys.blockReasons(s)
		return why.brief()
	}
	return "down"
}

// recordFailover records that another provider takes the request over. It counts for the
// provider that was asked for, whichever the request leaves.
func (r *request) recordFailover(from, to *provider, why string) {
	now := time.Now()
	own := r.asked
	own.stats.moved(from.spec.Name, to.spec.Name)
	if to != own { // it may be back where it began
		own.stats.failovers.Add(1)
	}
	own.history.failedOver(Failover{Time: now, From: from.spec.Name, To: to.spec.Name, Why: why})
	r.g.emit(retry.Event{
		Kind: retry.FailedOver, Time: now, Name: r.asked.title(),
		Note: from.spec.Name + " → " + to.spec.Name + ": " + why,
	}, slog.String("request", r.g.redact(r.route)))
}

// setTarget gives the request the address of the provider and the credentials that the
// provider may see: ours, or those of a caller that asked for this provider.
func (p *provider) setTarget(req *http.Request, r *request, k *key) {
	query := r.query
	switch {
	case p != r.asked:
		p.forward.limit(req)
		req.Header.Del(r.asked.spec.AuthHeader)
		req.Header.Del(p.spec.AuthHeader)
		query, _ = p.forward.queryFor(query) // newRequest has left out providers to which it can't be sent
	case p.keys.own:
		for name := range req.Header {
			if isCredential(name) && !isSession(name) {
				delete(req.Header, name)
			}
		}
		for name := range req.Trailer {
			if isCredential(name) {
				req.Trailer = nil // the map is the server's, and not ours to change
				break
			}
		}
		req.Header.Del(p.spec.AuthHeader)
		withoutSecretProtocols(req.Header)
		query = withoutKey(query)
	}
	if !k.value.IsZero() {
		value := k.value.Reveal()
		if p.spec.AuthScheme != "" {
			value = p.spec.AuthScheme + " " + value
		}
		req.Header.Set(p.spec.AuthHeader, value)
	}
	for _, h := range p.spec.Headers {
		req.Header.Set(h.Name, h.Value.Reveal())
	}
	if req.Host = ""; p != r.asked || query != r.query {
		req.URL = below(p.spec.BaseURL, r.path, query) // otherwise it is that already
	}
}
