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
	t := requestFrom(req.Context())
	if t == nil {
		return nil, retry.Permanent(errors.New("gateway: the request has no state of the gateway"))
	}
	l, err := t.pickTarget(req.Context(), req)
	if err != nil {
		return nil, err
	}
	l.n, l.req = n, req
	t.begin(l)
	l.p.setTarget(req, t, l.key)
	l.sent, l.upload = clock.Now(), t.upload.waited()
	return l, nil
}

// Next implements [retryhttp.Router].
func (router) Next(_ context.Context, f retryhttp.Failure) retry.Decision {
	l := f.Attempt.(*attempt)
	d := l.request.decide(l, &f)
	if d == tryNow(&f) && l.p == l.request.asked && f.Response != nil {
		l.request.keepResponse(l, f.Response)
	}
	return d
}

// begin counts the attempt, and opens the request's account with the retry budget of the
// provider.
func (t *request) begin(l *attempt) {
	v, p := l.target, l.p
	t.mu.Lock()
	from, why := t.at, t.why
	if from == nil && p != t.asked {
		from, why = &t.targets[0], t.asked.blockedBecause(t.began, t.scope())
	}
	v.made++
	if !v.began {
		v.began = true
		if b := p.budgets.of(t.route); b != nil {
			v.account = b.Begin()
		}
	}
	v.granted = false
	t.at, t.why = v, ""
	l.flying.Store(true)
	if p.spec.H2C {
		t.h2c = append(slices.DeleteFunc(t.h2c, func(l *attempt) bool { return !l.flying.Load() }), l)
	}
	t.mu.Unlock()

	p.inFlight.Add(1)
	p.stats.attempts.Add(1)
	t.asked.stats.sent.Add(1)
	t.sent.Add(1)
	if l.pass.Probe() {
		p.stats.probes.Add(1)
	}
	if from != nil && from != v {
		t.recordFailover(from.p, p, why)
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
func (t *request) recordFailover(from, to *provider, why string) {
	now := time.Now()
	own := t.asked
	own.stats.moved(from.spec.Name, to.spec.Name)
	if to != own { // it may be back where it began
		own.stats.failovers.Add(1)
	}
	own.history.failedOver(Failover{Time: now, From: from.spec.Name, To: to.spec.Name, Why: why})
	t.g.emit(retry.Event{
		Kind: retry.FailedOver, Time: now, Name: t.asked.title(),
		Note: from.spec.Name + " → " + to.spec.Name + ": " + why,
	}, slog.String("request", t.g.redact(t.route)))
}

// setTarget gives the request the address of the provider and the credentials that the
// provider may see: ours, or those of a caller that asked for this provider.
func (p *provider) setTarget(req *http.Request, t *request, k *key) {
	query := t.query
	switch {
	case p != t.asked:
		p.forward.limit(req)
		req.Header.Del(t.asked.spec.AuthHeader)
		req.Header.Del(p.spec.AuthHeader)
		query, _ = p.forward.queryFor(query) // newTrip has left out providers to which it can't be sent
	case p.keys.own:
		for name := range req.Header {
			if credential(name) && !session(name) {
				delete(req.Header, name)
			}
		}
		for name := range req.Trailer {
			if credential(name) {
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
	if req.Host = ""; p != t.asked || query != t.query {
		req.URL = below(p.spec.BaseURL, t.path, query) // otherwise it is that already
	}
}
