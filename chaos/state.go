package chaos

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"time"
)

// The values of [Arrival].By: why a request got its answer.
const (
	ByScript  = "script"
	ByChance  = "random"
	ByLimit   = "over"
	ByOutage  = "down"
	Unmatched = "unmatched" // no rule matches it
)

// verdict is the decision about one request.
type verdict struct {
	Arrival
	answer Answer // for the act fail, the status that was drawn
	body   Body   // body of the rule, for an answer without a body

	delay time.Duration // before the answer; ends if the client disconnects
	work  time.Duration // before delay; goes on if the client disconnects
	due   time.Duration // time until the limit or the outage ends; 0 if there is none
}

// state is the state of all rules. It reads no clock: now is an argument.
type state struct {
	spec   Spec
	born   time.Time
	number int
	rules  []ruleState
}

type ruleState struct {
	capacity
	seen    int
	cursors cursors
}

func newState(spec Spec, now time.Time) *state {
	s := &state{spec: spec, born: now, rules: make([]ruleState, len(spec.Rules))}
	for i := range spec.Rules {
		s.rules[i].rule = &spec.Rules[i]
	}
	return s
}

// decide returns the verdict about a request. The caller must call release when the
// request ends.
func (s *state) decide(method, path string, header http.Header, now time.Time) verdict {
	s.number++
	v := verdict{answer: Answer{Status: http.StatusNotFound}}
	v.Arrival = Arrival{Number: s.number, At: now.Sub(s.born), Method: method, Path: path, By: Unmatched}
	var luck draw
	for i := range s.rules {
		if r := &s.rules[i]; r.rule.Match.fits(method, path, header) {
			r.seen++
			v.Rule, v.Nth = i+1, r.seen
			luck = s.choose(r, &v, header, now)
			break
		}
	}
	v.Answer = v.answer.String()
	if v.answer.Act == Fail {
		v.answer.Act, v.answer.Status = "", failures[luck.fail]
	}
	v.Status = v.answer.Status
	return v
}

// choose sets the answer. The first of these that applies decides: an outage, a limit, a
// random answer, the script. It returns the random numbers of the request.
func (s *state) choose(r *ruleState, v *verdict, header http.Header, now time.Time) draw {
	key := header.Get(r.rule.Per) // "" without Per
	cursor := r.cursors.get(key)
	cursor.seen++
	luck := drawn(s.spec.Seed, v.Rule, key, cursor.seen)
	if refusing, left := s.refusing(now); refusing { // the connection was accepted before the port closed
		v.By, v.answer, v.due = ByOutage, Answer{Act: Refuse}, left
	} else if o, left := s.down(r.rule, now); o != nil {
		v.By, v.answer, v.due = ByOutage, o.As, left
	} else if left, full := r.full(now); full {
		v.By, v.answer, v.due = ByLimit, r.rule.over(), left
	}
	if v.By != Unmatched { // rejected by an outage or a limit
		v.delay = v.answer.Delay.pick(luck.delay, luck.normal)
		return luck
	}
	v.work = r.admit(v.Number, now)
	v.By = ByChance
	if a, hit := luck.pick(r.rule.Random); hit {
		v.answer = a
	} else {
		v.By, v.answer = ByScript, cursor.advance(r.rule)
	}
	v.delay = cmp.Or(v.answer.Delay, r.rule.Delay).pick(luck.delay, luck.normal)
	if v.answer.Act != Hang && v.answer.End.Kind != Stall {
		r.expect(v.Number, now.Add(v.work+v.delay))
	}
	if v.answer.Status < 300 && v.answer.Stream.Form == "" {
		v.body = r.rule.Body
	}
	return luck
}

// release ends the use of the rule's capacity by a request.
func (s *state) release(v verdict) {
	if v.Rule > 0 {
		s.rules[v.Rule-1].release(v.Number)
	}
}

// down returns the current outage of a rule and how long it still lasts, or nil.
func (s *state) down(r *Rule, now time.Time) (*Outage, time.Duration) {
	for i := range r.Down {
		if r.Down[i].As.Act == Refuse {
			continue // refusing handles these
		}
		if down, left := r.Down[i].when(now.Sub(s.born)); down {
			return &r.Down[i], left
		}
	}
	return nil, 0
}

// refusing reports whether the port must be closed now, and the time until that may
// change; 0 means never.
func (s *state) refusing(now time.Time) (closed bool, next time.Duration) {
	for _, r := range s.spec.Rules {
		for _, o := range r.Down {
			if o.As.Act != Refuse {
				continue
			}
			down, left := o.when(now.Sub(s.born))
			closed = closed || down
			if left > 0 && (next == 0 || left < next) {
				next = left
			}
		}
	}
	return closed, next
}

func (r *Rule) over() Answer {
	if r.Over.zero() {
		return Answer{Status: http.StatusServiceUnavailable, Headers: []Header{{"retry-after", due}}}
	}
	return r.Over
}

// draw has the random numbers of one request. They depend only on the seed, the rule, the
// value of the rule's header and the number of the request with that value, so
// other requests and the order of goroutines do not change them. All numbers are drawn,
// even unused ones, so that a change in one part of a rule does not change the other draws.
type draw struct {
	fault  float64 // selects a random answer, if any
	fail   int     // index of the status for the act fail
	delay  float64 // for a uniform delay
	normal float64 // for a lognormal delay
}

// failures are the statuses of the act fail.
var failures = []int{500, 502, 503, 504}

func drawn(seed uint64, rule int, key string, n int) draw {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	r := rand.New(rand.NewPCG(seed^uint64(rule)*0x9e3779b97f4a7c15, h.Sum64()^uint64(n)*0xd1342543de82ef95))
	return draw{fault: r.Float64(), fail: r.IntN(len(failures)), delay: r.Float64(), normal: r.NormFloat64()}
}

// pick returns the random answer that the draw selects, and false if it selects none.
func (d draw) pick(list []Chance) (Answer, bool) {
	u := d.fault * 100
	for _, c := range list {
		if u < c.Percent {
			return c.Answer, true
		}
		u -= c.Percent
	}
	return Answer{}, false
}

// maxCursors is the greatest number of header values that a rule distinguishes at a time.
const maxCursors = 10_000

// cursors has the positions in a script: one for each value of the header [Rule].Per, or a
// single one without Per. If there are too many, it drops the oldest.
type cursors struct {
	by    map[string]*cursor
	order []string
}

func (t *cursors) get(key string) *cursor {
	if at := t.by[key]; at != nil {
		return at
	}
	if t.by == nil {
		t.by = map[string]*cursor{}
	}
	if len(t.order) == maxCursors {
		delete(t.by, t.order[0])
		t.order = t.order[1:]
	}
	at := new(cursor)
	t.by[key], t.order = at, append(t.order, key)
	return at
}

// cursor is a position in a script.
type cursor struct {
	seen int // number of requests so far
	step int // index in the script
	done int // how often the answer of the step was given
}

// advance returns the next answer of the script and moves the position.
func (t *cursor) advance(r *Rule) Answer {
	s := r.Script[t.step]
	switch t.done++; {
	case t.done < s.Times:
	case t.step+1 < len(r.Script):
		t.step, t.done = t.step+1, 0
	case r.Cycle:
		t.step, t.done = 0, 0
	default:
		t.done = 0 // repeat the last step
	}
	return s.Answer
}

// capacity enforces the limits of a rule: concurrent requests and requests per time. It
// reads no clock.
type capacity struct {
	rule *Rule

	ends     map[int]time.Time // requests in progress, by number: expected end, zero if unknown
	admitted []time.Time       // times of the latest admitted requests: a ring with as many entries as the rate allows
	next     int               // index of the oldest entry in admitted
}

// unknownWait is the wait that due states if no request in progress has a known end.
const unknownWait = time.Second

// full reports whether another request would exceed the limits, and for how long.
func (m *capacity) full(now time.Time) (left time.Duration, full bool) {
	if m.rule.Concurrent > 0 && len(m.ends) >= m.rule.Concurrent {
		left, full = m.soonest(now), true
	}
	if n := m.rule.Rate.Events; n > 0 && len(m.admitted) == n {
		// The rate allows n requests in any period, so the oldest of the last n must be outside.
		if again := m.admitted[m.next].Add(m.rule.Rate.Per).Sub(now); again > 0 {
			left, full = max(left, again), true
		}
	}
	return left, full
}

// soonest returns the time until the first request in progress ends.
func (m *capacity) soonest(now time.Time) time.Duration {
	least := time.Duration(-1)
	for _, end := range m.ends {
		if left := end.Sub(now); left > 0 && (least < 0 || left < least) {
			least = left
		}
	}
	if least < 0 {
		return unknownWait
	}
	return least
}

// admit counts a request as in progress, and returns how long its work takes.
func (m *capacity) admit(number int, now time.Time) (work time.Duration) {
	work = m.rule.Service.Base + time.Duration(len(m.ends))*m.rule.Service.More
	if m.ends == nil {
		m.ends = map[int]time.Time{}
	}
	m.ends[number] = time.Time{}
	switch n := m.rule.Rate.Events; {
	case n == 0:
	case len(m.admitted) < n:
		m.admitted = append(m.admitted, now)
	default:
		m.admitted[m.next] = now
		m.next = (m.next + 1) % n
	}
	return work
}

// expect records the expected end of a request.
func (m *capacity) expect(number int, end time.Time) { m.ends[number] = end }

// release ends a request that was admitted.
func (m *capacity) release(number int) { delete(m.ends, number) }
