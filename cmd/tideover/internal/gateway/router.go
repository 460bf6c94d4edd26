package gateway

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// router is the [retryhttp.Router] of all providers. What it needs to know is in
// the trip that the request's context holds.
type router struct{}

// Route implements [retryhttp.Router].
func (router) Route(req *http.Request, n int) (retryhttp.Leg, error) {
	t := tripOf(req.Context())
	if t == nil {
		return nil, retry.Permanent(errors.New("gateway: the request does not belong to a trip"))
	}
	l, err := t.depart(req.Context())
	if err != nil {
		return nil, err
	}
	l.n, l.req = n, req
	t.board(l)
	l.p.dress(req, t, l.key)
	l.sent = clock.Now()
	return l, nil
}

// board notes that the leg begins.
func (t *trip) board(l *leg) {
	v, p := l.visit, l.p
	t.mu.Lock()
	from, why := t.at, t.why
	if from == nil && p != t.asked {
		from, why = &t.visits[0], t.asked.trouble(t.began)
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
	t.legs = append(slices.DeleteFunc(t.legs, func(l *leg) bool { return !l.flying.Load() }), l)
	t.mu.Unlock()

	p.inFlight.Add(1)
	p.tally.attempts.Add(1)
	t.asked.tally.sent.Add(1)
	t.sent.Add(1)
	if l.pass.Probe() {
		p.tally.probes.Add(1)
	}
	if from != nil && from != v {
		t.failedOver(from.p, p, why)
	}
}

// trouble says in a word why requests are not let in.
func (p *provider) trouble(began time.Time) string {
	switch {
	case p.hand.get() == openedByHand:
		return "opened by hand"
	case !p.hand.lets(began):
		return "draining"
	case p.ring.closed() > 0 && p.ring.throttled():
		return "429 on all keys"
	case p.ring.closed() > 0:
		return "no key is let in"
	default:
		return "down"
	}
}

// failedOver tells that another provider takes the request over.
func (t *trip) failedOver(from, to *provider, why string) {
	now := time.Now()
	from.tally.failovers.Add(1)
	from.tally.to.add(to.spec.Name, 1)
	from.history.failedOver(Failover{Time: now, From: from.spec.Name, To: to.spec.Name, Why: why})
	t.g.emit(retry.Event{
		Kind: retry.FailedOver, Time: now, Name: t.asked.title(),
		Note: from.spec.Name + " → " + to.spec.Name + ": " + why,
	})
}

// credentials are the headers in which callers bring theirs, in their canonical
// form.
var credentials = []string{
	"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Proxy-Authorization", "Cookie",
}

// dress gives the request the address of the provider, and the credentials that it
// may see there: ours, or those of a caller who asked for this very provider.
func (p *provider) dress(req *http.Request, t *trip, k *key) {
	query := t.query
	if p.ring.own || p != t.asked {
		for _, name := range credentials {
			delete(req.Header, name)
		}
		req.Header.Del(t.asked.spec.AuthHeader)
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

// withoutKey returns the query without the parameter in which Google's APIs take a
// key. All the rest stays as it was written.
func withoutKey(query string) string {
	if !strings.Contains(strings.ToLower(query), "key") && !strings.Contains(query, "%") {
		return query
	}
	var b strings.Builder
	cut := false
	for rest := query; len(rest) > 0; {
		part, sep := rest, ""
		if end := strings.IndexAny(rest, "&;"); end >= 0 { // to some servers the latter is the same
			part, sep = rest[:end], rest[end:end+1]
		}
		rest = rest[len(part)+len(sep):]
		if name, _, _ := strings.Cut(part, "="); strings.EqualFold(unescaped(name), "key") {
			cut = true
			continue
		}
		b.WriteString(part + sep)
	}
	if !cut {
		return query
	}
	return strings.TrimRight(b.String(), "&;")
}
