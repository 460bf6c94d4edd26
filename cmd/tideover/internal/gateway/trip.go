package gateway

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// trip is a request on its way: which providers it has been to, and why it left
// them.
type trip struct {
	g        *Gateway
	asked    *provider
	path     string // below the provider, as it was written
	query    string
	route    string
	once     bool // whoever asked retries by himself
	class    limit.Priority
	began    time.Time
	caller   context.Context
	deadline *until // the caller's; nil means none
	host     string // the address that the caller used
	secure   bool   // the caller uses TLS
	withheld bool   // a fallback is not asked, because of the query

	upload  upload
	model   atomic.Pointer[string] // which the request is for; nil means that nobody has looked
	body    atomic.Pointer[error]  // how reading the request's body failed
	sent    atomic.Int32           // attempts
	cut     atomic.Bool            // the answer broke off after the caller had seen some of it
	notKept atomic.Bool            // the body was too long to be sent again

	mu     sync.Mutex
	visits []visit // one for each of asked.order that can be sent the request
	room   [2]visit
	at     *visit        // where the last attempt went; nil before the first
	why    string        // why the next one goes elsewhere
	h2c    []*leg        // under way to providers with Spec.H2C
	last   *leg          // the one that was judged last, or brought the answer
	won    bool          // one of them brought the answer
	means  retry.Outcome // the last failure to one who retries by himself

	left atomic.Pointer[answer] // of the provider that was asked for, when it was left

	// What became of it.
	answered bool   // the caller gets an answer of the provider's
	whole    bool   // and got all of it
	over     bool   // nothing more will come of it
	gaveUp   string // why it does not get a better one; "" means that it is the best
}

// visit is what a trip has to do with one provider. The trip's lock guards it.
type visit struct {
	p       *provider
	made    int          // attempts, without those after which another key is asked at once
	left    bool         // another one took over
	failure error        // how the last attempt failed
	refused *health.Call // the last call, if its key was not let in
	denied  []*key       // refused to this request
	doubted []*key       // answered 403: their fault only if another key is let in
	began   bool         // account is open
	granted bool         // it has paid for a retry that has not started
	account limit.Call   // of retries
	success bool         // the caller's answer came from here
}

type tripKey struct{}

// tripOf returns the trip that the context belongs to, or nil.
func tripOf(ctx context.Context) *trip {
	t, _ := ctx.Value(tripKey{}).(*trip)
	return t
}

// newTrip begins a trip.
func (g *Gateway) newTrip(ctx context.Context, p *provider, method, path, query string, class limit.Priority) *trip {
	t := &trip{
		g: g, asked: p, path: path, query: query, class: class,
		route: routeOf(method, path), began: time.Now(), caller: ctx,
	}
	if t.visits = t.room[:]; len(p.order) > len(t.room) {
		t.visits = make([]visit, len(p.order))
	}
	n := 0
	for _, o := range p.order {
		if o != p && query != "" {
			if _, ok := o.forward.queryFor(query); !ok {
				t.withheld = true
				continue
			}
		}
		t.visits[n].p = o
		n++
	}
	t.visits = t.visits[:n]
	p.tally.requests.Add(1)
	return t
}

// context returns the context under which the trip's attempts are made.
func (t *trip) context() context.Context {
	ctx := t.caller
	if t.class != limit.Normal {
		ctx = limit.WithPriority(ctx, t.class)
	}
	return context.WithValue(ctx, tripKey{}, t)
}

// ranked returns where the next attempt may go, the best first: providers in the
// order of the configuration, behind them those that have had their chances, the
// least asked first. The first of them have chances left, fresh says how many. nil
// means the order of the configuration, as long as nothing has been sent.
func (t *trip) ranked() (list []*visit, fresh int) {
	if t.sent.Load() == 0 {
		return nil, len(t.visits)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	list = make([]*visit, len(t.visits))
	for i := range t.visits {
		if list[i] = &t.visits[i]; t.chances(list[i]) == 0 {
			fresh++
		}
	}
	slices.SortStableFunc(list, func(a, b *visit) int { return t.chances(a) - t.chances(b) })
	return list, fresh
}

// chances returns how many a provider has had, once it has had all; before that 0.
func (t *trip) chances(v *visit) int {
	if v.left || v.made >= t.allowed() {
		return max(v.made, 1)
	}
	return 0
}

// allowed returns how many attempts a provider has before another one takes over.
// Whoever retries by himself has only those that need no wait, so that the first
// failure is the time for the next one.
func (t *trip) allowed() int {
	if t.once {
		return 1
	}
	return t.asked.spec.FallbackAfter
}

// hope reports whether the provider has a key, other than that, which may take the
// request now or later: one that was not refused. It needs the lock.
func (t *trip) hope(v *visit, but *key) bool {
	return v.p.hand.lets(t.began) && slices.ContainsFunc(v.p.ring.keys, func(k *key) bool {
		return k != but && !k.shunned() && !slices.Contains(v.denied, k)
	})
}

// ready reports whether a provider would take the request at once.
func (t *trip) ready(v *visit) bool {
	_, next := v.p.ring.left(t.scope())
	return next == 0 && t.lets(v)
}

// willing reports whether a provider would take the request at once with a key that
// is only avoided, and that has not refused this very request. It needs the lock.
func (t *trip) willing(v *visit) bool {
	return len(v.denied) == 0 && v.p.ring.onlyShunned(t.scope()) && t.lets(v)
}

// lets reports whether neither somebody's word nor its gate keeps the request from a
// provider.
func (t *trip) lets(v *visit) bool {
	if !v.p.hand.lets(t.began) {
		return false
	}
	found, _ := v.p.door.look()
	return found != closed
}

// elsewhere reports whether another provider than that of the visit, one that has
// not had its chances yet, would take the request at once. It needs the lock.
func (t *trip) elsewhere(v *visit) bool {
	for i := range t.visits {
		if o := &t.visits[i]; o != v && t.chances(o) == 0 && (t.ready(o) || t.willing(o)) {
			return true
		}
	}
	return false
}

// soonest returns how long it will be until any provider has a key that need not wait
// any more.
func (t *trip) soonest() time.Duration {
	wait := time.Duration(math.MaxInt64)
	for i := range t.visits {
		if v := &t.visits[i]; v.p.hand.lets(t.began) {
			left, _ := v.p.ring.left(t.scope())
			wait = min(wait, left)
		}
	}
	return wait
}

// gone reports whether the caller is no longer there, or has no more time.
func (t *trip) gone() bool {
	err := t.caller.Err()
	return err != nil && !(t.upload.stopped.Load() && errors.Is(err, context.Canceled))
}

// usesH2C reports whether the request goes to a provider that speaks HTTP/2 without TLS.
func (t *trip) usesH2C(req *http.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.h2c, func(l *leg) bool { return l.req == req })
}

// end closes the accounts.
func (t *trip) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.left.Load().close()
	for i := range t.visits {
		v := &t.visits[i]
		if v.granted {
			v.account.Cancel()
		}
		if v.began {
			v.account.End(v.success && t.answered)
		}
	}
}
