package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

const (
	// probeEvery is how often one request is let through before a long wait is over.
	probeEvery = time.Minute

	// maxThrottles is how many waits of a provider are remembered. Callers choose
	// routes and models, and could make up any number of them.
	maxThrottles = 256

	// maxModelBody is how much of a request's body is read to find its model. As much
	// of it is kept in memory in any case.
	maxModelBody = 256 << 10
)

// scope is the part of a provider that a wait is about, for each key: requests of one
// route for one model. The model is empty if the request names none.
type scope struct{ route, model string }

// String names the scope.
func (s scope) String() string {
	if s.model == "" {
		return s.route
	}
	return s.route + ", model " + s.model
}

// throttles are the waits that a provider asked for.
type throttles struct {
	latest atomic.Int64 // reading of the clock at which the last of them is over: nearly always in the past

	mu      sync.Mutex
	byRoute map[string][]*throttle
	count   int
}

// throttle is one of them.
type throttle struct {
	key    *key
	scope  scope
	reason string        // such as "429"
	since  time.Time     // when the provider first asked for it
	until  time.Duration // reading of the clock
	probe  time.Duration // reading of the clock from which one request may go before that
}

// active reports whether any wait may not be over.
func (t *throttles) active() bool {
	latest := t.latest.Load()
	return latest != 0 && int64(clock.Now()) < latest
}

// hasRoute reports whether any wait is about the route, so that it matters which model
// a request is for.
func (t *throttles) hasRoute(route string) bool {
	if !t.active() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byRoute[route]) > 0
}

// find returns the wait of the key and the scope, or nil. It needs the lock.
func (t *throttles) find(k *key, s scope, now time.Duration) *throttle {
	for _, x := range t.byRoute[s.route] {
		if x.key == k && x.scope == s {
			if now < x.until {
				return x
			}
			t.remove(x)
			return nil
		}
	}
	return nil
}

// remove takes a wait out. It needs the lock.
func (t *throttles) remove(x *throttle) {
	list := t.byRoute[x.scope.route]
	i := slices.Index(list, x)
	if i < 0 {
		return
	}
	t.count--
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(t.byRoute, x.scope.route)
	} else {
		t.byRoute[x.scope.route] = list
	}
}

// all returns the waits that are not over. It needs the lock.
func (t *throttles) all(now time.Duration) (list []*throttle) {
	for _, some := range t.byRoute {
		list = append(list, some...)
	}
	return slices.DeleteFunc(list, func(x *throttle) bool {
		if now < x.until {
			return false
		}
		t.remove(x)
		return true
	})
}

// left returns how long requests of the scope have to wait with the key, and how long
// it is until one of them may go all the same. Both are 0 if they need not wait.
func (t *throttles) left(k *key, s scope) (wait, next time.Duration) {
	if !t.active() {
		return 0, 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	x := t.find(k, s, now)
	if x == nil {
		return 0, 0
	}
	return x.until - now, max(min(x.probe, x.until)-now, 0)
}

// enter reports whether a request of the scope may go with the key, and whether it is
// the one that finds out for all.
func (t *throttles) enter(k *key, s scope) (ok, probe bool) {
	if !t.active() {
		return true, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	x := t.find(k, s, now)
	switch {
	case x == nil:
		return true, false
	case now < x.probe:
		return false, false
	}
	x.probe = clock.Later(now, probeEvery)
	return true, true
}

// reasonOf returns why requests of the scope have to wait with the key, "" if they need
// not.
func (t *throttles) reasonOf(k *key, s scope) string {
	if !t.active() {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.find(k, s, clock.Now()); x != nil {
		return x.reason
	}
	return ""
}

// giveBack lets another request probe, because the one that was let through was not
// sent, or not answered because of its caller.
func (t *throttles) giveBack(k *key, s scope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	if x := t.find(k, s, now); x != nil {
		x.probe = now
	}
}

// close makes requests of the scope wait with the key. None is let through before
// that, apart from one a minute that begins when account is over, which the account
// itself states. Of two waits the later one holds, unless a probe brought the newer.
func (t *throttles) close(k *key, s scope, wait, account time.Duration, reason string, probed bool) {
	now := clock.Now()
	until := clock.Later(now, wait)
	probe := clock.Later(now, max(probeEvery, account))
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.find(k, s, now)
	if x == nil {
		if t.count >= maxThrottles {
			t.makeRoom(now)
		}
		x = &throttle{key: k, scope: s, since: time.Now()}
		if t.byRoute == nil {
			t.byRoute = map[string][]*throttle{}
		}
		t.byRoute[s.route] = append(t.byRoute[s.route], x)
		t.count++
	} else if !probed && until < x.until {
		return
	}
	x.reason, x.until, x.probe = reason, until, probe
	t.latest.Store(max(t.latest.Load(), int64(until)))
}

// makeRoom takes out what is over, and the wait that is over first if that is not
// enough: its requests find out again. It needs the lock.
func (t *throttles) makeRoom(now time.Duration) {
	list := t.all(now)
	if len(list) >= maxThrottles {
		t.remove(slices.MinFunc(list, func(a, b *throttle) int { return cmp.Compare(a.until, b.until) }))
	}
}

// open ends the wait of the key and the scope.
func (t *throttles) open(k *key, s scope) (was bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.find(k, s, clock.Now())
	if x != nil {
		t.remove(x)
	}
	return x != nil
}

// clear ends all waits.
func (t *throttles) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byRoute, t.count = nil, 0
	t.latest.Store(0)
}

// inherit takes over the waits of keys that another pool has, too. other returns the
// key that has taken the place of one.
func (t *throttles) inherit(old *throttles, other func(*key) *key) {
	old.mu.Lock()
	list := old.all(clock.Now())
	old.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range list {
		k := other(x.key)
		if k == nil {
			continue
		}
		own := *x
		own.key = k
		if t.byRoute == nil {
			t.byRoute = map[string][]*throttle{}
		}
		t.byRoute[own.scope.route] = append(t.byRoute[own.scope.route], &own)
		t.count++
		t.latest.Store(max(t.latest.Load(), int64(own.until)))
	}
}

// throttled returns the waits as they are shown, those of the same scope together, and
// the scope for which all keys have been waiting longest, with the time since when: zero
// if there is none.
func (r *ring) throttled(now time.Time, redact func(string) string) (list []Throttle, blocked scope, since time.Time) {
	list = []Throttle{}
	if !r.throttles.active() {
		return list, scope{}, time.Time{}
	}
	r.throttles.mu.Lock()
	at := clock.Now()
	all := r.throttles.all(at)
	for _, x := range all {
		one := Throttle{
			Key: x.key.name, Route: redact(x.scope.route), Model: redact(x.scope.model), Reason: x.reason,
			Since: x.since, Until: now.Add(x.until - at), NextProbe: now.Add(max(min(x.probe, x.until)-at, 0)),
		}
		list = append(list, one)
	}
	r.throttles.mu.Unlock()
	slices.SortFunc(list, func(a, b Throttle) int {
		return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Key, b.Key))
	})
	keys, began := map[scope]int{}, map[scope]time.Time{}
	for _, x := range all {
		if keys[x.scope]++; x.since.After(began[x.scope]) {
			began[x.scope] = x.since
		}
	}
	open := 0 // keys that are not refused
	for _, k := range r.keys {
		if !k.shunned() {
			open++
		}
	}
	for s, n := range keys {
		if n >= max(open, 1) && (since.IsZero() || began[s].Before(since) || began[s].Equal(since) && s.String() < blocked.String()) {
			blocked, since = s, began[s]
		}
	}
	return list, scope{redact(blocked.route), redact(blocked.model)}, since
}

// accountReset returns how long it is until the latest of the limits begins anew of
// which the account has nothing left, as the answer states it; 0 if it states none.
func accountReset(h http.Header, now time.Time) (wait time.Duration) {
	for _, header := range quotaHeaders {
		if left, ok := count(h[header.remaining]); !ok || left != 0 {
			continue
		}
		if at := reset(h, header.reset, now); at != nil {
			wait = max(wait, at.Sub(now))
		}
	}
	return wait
}

// throttleScope makes requests of the attempt's route and model wait with its key.
func (l *leg) throttleScope(resp *http.Response) {
	account := l.result.wait
	if !l.result.gone {
		account = accountReset(resp.Header, time.Now())
	}
	l.trip.readModel(l.req)
	l.p.ring.throttles.close(l.key, l.trip.scope(), l.result.wait, account, l.result.why, l.probe)
}

// scope returns what a wait would be about that the request is told of.
func (t *trip) scope() scope {
	s := scope{route: t.route}
	if model := t.model.Load(); model != nil {
		s.model = *model
	}
	return s
}

// needsModel reports whether a provider treats models of the request's route
// differently now.
func (t *trip) needsModel() bool {
	if t.model.Load() != nil {
		return false
	}
	for i := range t.visits {
		if t.visits[i].p.ring.throttles.hasRoute(t.route) {
			return true
		}
	}
	return false
}

// readModel finds out which model the request is for: a field of its JSON body, of
// which a bounded part is read, or a parameter of its query.
func (t *trip) readModel(req *http.Request) {
	if t.model.Load() != nil {
		return
	}
	model := modelInQuery(t.query)
	if model == "" && hasJSON(req) {
		model = modelIn(headOf(req))
	}
	t.model.Store(&model)
}

// hasJSON reports whether the request has a body of JSON.
func hasJSON(req *http.Request) bool {
	if req.Body == nil || req.Body == http.NoBody {
		return false
	}
	kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// headOf returns the beginning of the request's body, which can be sent afterwards.
func headOf(req *http.Request) []byte {
	if kept, ok := req.Body.(*recordedBody); ok {
		return kept.beginning()
	}
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	head, _ := io.ReadAll(io.LimitReader(body, maxModelBody))
	return head
}

// record makes the beginning of a body readable that is sent only once.
func record(req *http.Request) {
	if req.GetBody == nil && hasJSON(req) {
		req.Body = &recordedBody{ReadCloser: req.Body}
	}
}

// recordedBody is a body that keeps its beginning.
type recordedBody struct {
	io.ReadCloser
	started atomic.Bool // it is being sent

	mu   sync.Mutex
	head []byte
	off  int   // in head, of what was not sent yet
	err  error // how the body ended while it was read ahead
}

// Read implements [io.Reader].
func (b *recordedBody) Read(p []byte) (int, error) {
	b.started.Store(true)
	b.mu.Lock()
	ahead, err := b.head[b.off:], b.err
	if len(ahead) > 0 {
		n := copy(p, ahead)
		b.off += n
		b.mu.Unlock()
		return n, nil
	}
	b.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.head = append(b.head, p[:max(min(n, maxModelBody-len(b.head)), 0)]...)
	b.off = len(b.head)
	return n, err
}

// beginning returns the beginning of the body. It reads that if the body is not being
// sent yet.
func (b *recordedBody) beginning() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.started.Load() && b.err == nil && len(b.head) == 0 {
		b.head, b.err = io.ReadAll(io.LimitReader(b.ReadCloser, maxModelBody))
		if b.err == nil && len(b.head) < maxModelBody {
			b.err = io.EOF
		}
	}
	return bytes.Clone(b.head)
}

// modelName is what names of models look like. Others are not told apart.
var modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$`)

// modelInQuery returns the model that a query names, or "".
func modelInQuery(query string) string {
	if !strings.Contains(query, "model=") {
		return ""
	}
	for part := range strings.SplitSeq(query, "&") {
		if v, ok := strings.CutPrefix(part, "model="); ok && modelName.MatchString(unescaped(v)) {
			return unescaped(v)
		}
	}
	return ""
}

// modelIn returns the text of the field "model" of a JSON object, or "". The object may
// be cut off behind it.
func modelIn(body []byte) string {
	depth, isKey, found := 0, false, false
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			if depth++; depth == 1 && body[i] == '[' {
				return ""
			}
			isKey = body[i] == '{'
		case '}', ']':
			depth--
			isKey, found = false, false
		case ',':
			isKey, found = depth == 1, false
		case '"':
			end := stringEnd(body, i)
			if end < 0 {
				return ""
			}
			if depth == 1 && found {
				return modelText(body[i:end])
			}
			found = depth == 1 && isKey && string(body[i:end]) == `"model"`
			isKey = false
			i = end - 1
		}
	}
	return ""
}

// stringEnd returns where the JSON text ends that begins there, -1 if it does not.
func stringEnd(body []byte, start int) int {
	for i := start + 1; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func modelText(quoted []byte) (name string) {
	if json.Unmarshal(quoted, &name) != nil || !modelName.MatchString(name) {
		return ""
	}
	return name
}
