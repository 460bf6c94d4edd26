package retry

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestTheTailIsForgotten(t *testing.T) {
	q := &quantile{of: 0.95}
	random := rand.New(rand.NewPCG(1, 2))
	above := 0
	for i := range 40_000 {
		d := time.Duration(10+random.IntN(6)) * time.Millisecond
		if random.IntN(100) == 0 { // one slow sample in a hundred, each of another length
			d = time.Duration(100+random.IntN(900)) * time.Millisecond
		}
		if v, ok := q.get(); i > 1000 && (!ok || d > v) {
			above++
		}
		q.record(d)
	}
	if v, _ := q.get(); v > 20*time.Millisecond {
		t.Errorf("p95 = %v after many calls of which one in a hundred is slow, want that of the others", v)
	}
	if above < 200 || above > 4000 {
		t.Errorf("%d of 39 000 samples were above the p95", above)
	}
}
