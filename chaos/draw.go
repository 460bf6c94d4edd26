package chaos

import (
	"hash/fnv"
	"math/rand/v2"
)

// draw is the luck of one request. It depends on nothing but the seed, the rule,
// whose request it is and which of those, so that requests of others and the order
// in which goroutines run change nothing. All parts are drawn, whether or not they
// are used: what one part of a rule says does not change the luck of another.
type draw struct {
	fault  float64 // which chance, if any
	fail   int     // which of the statuses of fail
	delay  float64
	normal float64 // the same for a lognormal delay
}

// failures are the statuses of fail.
var failures = []int{500, 502, 503, 504}

func drawn(seed uint64, rule int, key string, n int) draw {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	r := rand.New(rand.NewPCG(seed^uint64(rule+1)*0x9e3779b97f4a7c15, h.Sum64()^uint64(n)*0xd1342543de82ef95))
	return draw{fault: r.Float64(), fail: r.IntN(len(failures)), delay: r.Float64(), normal: r.NormFloat64()}
}

// pick returns the chance that the draw has met.
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
