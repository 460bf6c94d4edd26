package chaos

import (
	"cmp"
	"net/http"
	"time"
)

// Why a request got the answer that it got.
const (
	ByScript  = "script"
	ByChance  = "random"
	ByLimit   = "over"
	ByOutage  = "down"
	Unmatched = "unmatched" // no rule is for it
)

// verdict is what is done with one request.
type verdict struct {
	number int    // of all requests, from 1
	rule   int    // its index; -1 for none
	nth    int    // of the rule, from 1
	by     string // why
	text   string // the answer as the spec has it
	answer Answer // fail is a status here
	body   Body   // if the answer has none

	delay time.Duration // before the answer, while somebody waits
	work  time.Duration // before that, whether or not somebody waits
	due   time.Duration // until there is room again, if there is none
}

// state is what the rules remember. It reads no clock: now is an argument.
type state struct {
	spec   Spec
	born   time.Time
	number int
	rules  []ruleState
}

type ruleState struct {
	rule  *Rule
	seen  int
	turns turns
	room  room
}

func newState(spec Spec, now time.Time) *state {
	s := &state{spec: spec, born: now, rules: make([]ruleState, len(spec.Rules))}
	for i := range spec.Rules {
		r := &spec.Rules[i]
		s.rules[i] = ruleState{rule: r, room: room{concurrent: r.Concurrent, rate: r.Rate, service: r.Service}}
	}
	return s
}

// decide says what is done with a request. Whoever asks calls leave at the end of
// it.
func (s *state) decide(method, path string, header http.Header, now time.Time) verdict {
	s.number++
	v := verdict{number: s.number, rule: -1, by: Unmatched, answer: Answer{Status: http.StatusNotFound}}
	for i := range s.rules {
		if s.rules[i].rule.Match.fits(method, path, header) {
			v.rule = i
			break
		}
	}
	var luck draw
	if v.rule >= 0 {
		r := &s.rules[v.rule]
		r.seen++
		v.nth = r.seen
		luck = s.judge(r, &v, header, now)
	}
	v.text = v.answer.String()
	if v.answer.Act == Fail {
		v.answer.Act, v.answer.Status = "", failures[luck.fail]
	}
	return v
}

// judge asks in order: is it down, is there room, does chance want a fault, what
// is next in the script.
func (s *state) judge(r *ruleState, v *verdict, header http.Header, now time.Time) draw {
	key := r.key(header)
	turn := r.turns.of(key)
	turn.seen++
	luck := drawn(s.spec.Seed, v.rule, key, turn.seen)
	if refusing, left := s.refusing(now); refusing { // it came in while the door was closing
		v.by, v.answer, v.due = ByOutage, Answer{Act: Refuse}, left
	} else if o, left := s.down(r.rule, now); o != nil {
		v.by, v.answer, v.due = ByOutage, o.As, left
	} else if left, full := r.room.full(now); full {
		v.by, v.answer, v.due = ByLimit, r.rule.over(), left
	}
	if v.by != Unmatched { // turned away at the door
		v.delay = v.answer.Delay.pick(luck.delay, luck.normal)
		return luck
	}
	v.work = r.room.take(v.number, now)
	v.by = ByChance
	if a, hit := luck.pick(r.rule.Random); hit {
		v.answer = a
	} else {
		v.by, v.answer = ByScript, turn.advance(r.rule)
	}
	v.delay = cmp.Or(v.answer.Delay, r.rule.Delay).pick(luck.delay, luck.normal)
	if v.answer.Act != Hang && v.answer.End.Kind != Stall {
		r.room.expect(v.number, now.Add(v.work+v.delay))
	}
	if v.answer.Status < 300 && v.answer.Stream.Form == "" {
		v.body = r.rule.Body
	}
	return luck
}

// leave ends a request.
func (s *state) leave(v verdict) {
	if v.rule >= 0 {
		s.rules[v.rule].room.leave(v.number)
	}
}

// down returns the outage of a rule that there is now, and how long it lasts.
func (s *state) down(r *Rule, now time.Time) (*Outage, time.Duration) {
	for i := range r.Down {
		if r.Down[i].As.Act == Refuse {
			continue // the door is closed
		}
		if down, left := r.Down[i].when(now.Sub(s.born)); down {
			return &r.Down[i], left
		}
	}
	return nil, 0
}

// refusing reports whether the door is to be closed, and how long until that may
// change; 0 means that it does not.
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

// key returns whose script it is.
func (r *ruleState) key(header http.Header) string {
	if r.rule.Per == "" {
		return ""
	}
	return header.Get(r.rule.Per)
}
