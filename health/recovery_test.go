package health

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/backoff"
)

func TestNewRecoveryNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewRecovery(RecoveryConfig{Cost: -1, Backoff: backoff.Schedule{Kind: backoff.Linear, Base: -1, MaxDoublings: 3}})
	if err == nil {
		t.Fatal("NewRecovery accepted a configuration in which all is wrong")
	}
	for _, want := range []string{"cost: -1ns", "backoff: base", "want exponential", "cap: must be", "max-doublings: not supported"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error = %q, want it to say %q", err, want)
		}
	}
}

func TestBinOfFindsTheBin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	times := []float64{0, firstEdge, math.MaxFloat64}
	for i := range bins {
		times = append(times, binEdges[i], math.Nextafter(binEdges[i], 0), math.Nextafter(binEdges[i], 1e9))
	}
	for range 10_000 {
		times = append(times, math.Exp(r.Float64()*16-4))
	}
	for _, x := range times {
		i := binOf(x)
		if i < bins && (x < binStart(i) || x >= binEdges[i]) || i == bins && x < binEdges[bins-1] {
			t.Errorf("binOf(%v) = %d", x, i)
		}
	}
}

// Where the rate is constant the gap is sqrt(2·cost/rate).
func TestGapIsTheSquareRootWhereTheRateIsConstant(t *testing.T) {
	t.Parallel()
	var z hazard
	for i := range bins { // so much evidence that the prior does not matter
		z.spent[i] = 1e12
		z.ended[i] = 1e12 / 50
	}
	for _, at := range []float64{0, 1, 7, 100, 1000} {
		if got := z.gap(at, 1, 1e9); math.Abs(got-10) > 0.01 {
			t.Errorf("gap after %v s = %v, want 10", at, got)
		}
	}
	if got := z.gap(0, 1, 3); got != 3 {
		t.Errorf("gap of at most 3 s = %v", got)
	}
}

func TestPriorMeansThatLongOutagesLastLong(t *testing.T) {
	t.Parallel()
	var r Recovery
	// With the rate 0.3/t the median is 2^(1/0.3)-1 = 9.08 times what has passed.
	for _, at := range []time.Duration{10 * sec, 100 * sec, 1000 * sec} {
		p := r.Predict(at)
		if got := p.Median.Seconds() / at.Seconds(); math.Abs(got-9.08) > 0.8 || p.P90 < p.Median || p.Outages != 0 {
			t.Errorf("Predict(%v) = %+v, want about nine times as long again", at, p)
		}
	}
	if p := r.Predict(math.MaxInt64); p.Median <= 0 || p.P90 != math.MaxInt64 {
		t.Errorf("Predict(max) = %+v", p)
	}
	if p := r.Predict(-sec); p != r.Predict(0) {
		t.Errorf("Predict(-1s) = %+v, want that of 0", p)
	}
}

func TestRecoveryLearns(t *testing.T) {
	t.Parallel()
	var r Recovery
	for range 100 {
		r.Observe(58*sec, 62*sec)
	}
	p := r.Predict(0)
	if p.Median < 50*sec || p.Median > 65*sec || p.P90 > 70*sec || p.Outages < 40 || p.Outages > 50 {
		t.Errorf("after a hundred outages of a minute Predict(0) = %+v", p)
	}
	if left := r.Predict(50 * sec).Median; left > 15*sec {
		t.Errorf("ten seconds before the usual end the median is %v", left)
	}
	// Gaps are long at ages at which no outage ends, and short at ages at which all end.
	if a, b := r.Gap(20*sec), r.Gap(58*sec); a < 2*b {
		t.Errorf("Gap(20s) = %v and Gap(58s) = %v, want the first much longer", a, b)
	}
	for range 200 {
		r.Observe(4*sec, 5*sec)
	}
	if p := r.Predict(0); p.Median < 3*sec || p.Median > 6*sec {
		t.Errorf("after two hundred outages of 5 s Predict(0) = %+v: it does not forget", p)
	}
}

func TestRecoveryIgnoresOutagesThatEndBeforeTheyFail(t *testing.T) {
	t.Parallel()
	var r Recovery
	r.Observe(5*sec, 5*sec)
	r.Observe(5*sec, sec)
	r.Observe(-sec, -sec)
	if r.hazard != (hazard{}) {
		t.Errorf("state = %+v, want none", r.hazard)
	}
}

// The parts of an ending that observe spreads over the bins add up to one.
func TestObserveSpreadsExactlyOneEnding(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		from := math.Exp(rnd.Float64()*12 - 3)
		to := from * (1 + rnd.ExpFloat64())
		if to >= binEdges[bins-1] {
			continue
		}
		var z hazard
		z.observe(from, to)
		ended, spent := 0.0, 0.0
		for i := range bins {
			ended += z.ended[i]
			spent += z.spent[i]
		}
		if math.Abs(ended-1) > 1e-6 || spent < from*0.999 || spent > to*1.001 {
			t.Fatalf("an outage between %v and %v ended %v times and lasted %v", from, to, ended, spent)
		}
	}
}

// checkGaps tests the clamps at many moments of an outage.
func checkGaps(t *testing.T, r *Recovery, u uint64) {
	t.Helper()
	c := r.config.withDefaults()
	for at := time.Duration(0); at < 100*time.Hour; at = at*5/4 + 37*ms {
		plain := min(seconds(c.Backoff.Base.Seconds()+(c.Backoff.Factor-1)*at.Seconds()), c.Backoff.Cap)
		g, next := r.Gap(at), r.Next(at, u)
		longest := min(4*plain, c.Backoff.Cap)
		if g <= 0 || g < plain/4 || g > longest {
			t.Fatalf("Gap(%v) = %v where the exponential has %v", at, g, plain)
		}
		if lo := g * 799 / 1000; next < lo || next > longest || next > g*1201/1000+1 {
			t.Fatalf("Next(%v) = %v, the gap before jitter is %v, at most %v", at, next, g, longest)
		}
	}
}

func FuzzGapsStayNearTheExponential(f *testing.F) {
	f.Add(uint64(1), uint64(2), []byte{1, 100, 200, 255})
	f.Fuzz(func(t *testing.T, seed, u uint64, outages []byte) {
		r := new(Recovery)
		rnd := rand.New(rand.NewPCG(seed, 1))
		for _, b := range outages[:min(len(outages), 200)] {
			from := seconds(math.Exp(float64(b)/12 - 6))
			r.Observe(from, from+seconds(from.Seconds()*rnd.ExpFloat64())+1)
			if !r.hazard.valid() {
				t.Fatalf("invalid state after an outage of %v", from)
			}
		}
		checkGaps(t, r, u)
		for at := time.Duration(1); at > 0 && at < math.MaxInt64/2; at *= 3 {
			if p := r.Predict(at); p.Median <= 0 || p.P90 < p.Median {
				t.Fatalf("Predict(%v) = %+v", at, p)
			}
		}
		data, err := r.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var again Recovery
		if err := again.UnmarshalBinary(data); err != nil || again.hazard != r.hazard {
			t.Fatalf("UnmarshalBinary(MarshalBinary()) = %v", err)
		}
	})
}

func FuzzRecoveryRefusesBadState(f *testing.F) {
	good, _ := new(Recovery).MarshalBinary()
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(Recovery)
		if err := r.UnmarshalBinary(data); err != nil {
			if r.hazard != (hazard{}) {
				t.Fatal("an error changed the state")
			}
			return
		}
		if again, err := r.MarshalBinary(); err != nil || !bytes.Equal(again, data) && !r.hazard.valid() {
			t.Fatalf("accepted %x", data)
		}
		checkGaps(t, r, 1<<63)
	})
}

func TestRecoveryStateAsJSON(t *testing.T) {
	t.Parallel()
	r := new(Recovery)
	r.Observe(3*sec, 5*sec)
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Recovery
	if err := json.Unmarshal(data, &again); err != nil || again.hazard != r.hazard {
		t.Errorf("Unmarshal(Marshal()) = %v, want the same state", err)
	}
	for _, tt := range []struct{ from, to, want string }{
		{`"version":1`, `"version":2`, "version 2, want 1"},
		{`"ended":[`, `"ended":[0,`, "82 and 81 bins"},
		{`"outages":1`, `"outages":-1`, "numbers out of range"},
		{`{`, `[`, "stored state: "},
	} {
		bad := strings.Replace(string(data), tt.from, tt.to, 1)
		if err := again.UnmarshalJSON([]byte(bad)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("UnmarshalJSON with %s = %v, want %q", tt.to, err, tt.want)
		}
	}
	if again.hazard != r.hazard {
		t.Error("an error changed the state")
	}
}

func TestRecoveryStateAsBinary(t *testing.T) {
	t.Parallel()
	data, err := new(Recovery).MarshalBinary()
	if err != nil || len(data) != 1305 {
		t.Fatalf("MarshalBinary() = %d bytes, %v, want 1305", len(data), err)
	}
	for _, tt := range []struct {
		data []byte
		want string
	}{
		{nil, "is empty"},
		{[]byte{9}, "version 9, want 1"},
		{data[:100], "100 bytes, want 1305"},
		{append([]byte{1}, bytes.Repeat([]byte{0xff}, 1304)...), "numbers out of range"},
	} {
		if err := new(Recovery).UnmarshalBinary(tt.data); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("UnmarshalBinary(%d bytes) = %v, want %q", len(tt.data), err, tt.want)
		}
	}
}
