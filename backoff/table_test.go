package backoff

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// checkTable compares the table with its schedule for one set of arguments.
func checkTable(t *testing.T, table *Table, retry int, prev time.Duration, u uint64) {
	t.Helper()
	s := table.Schedule()
	if got, want := table.Delay(retry, prev, u), s.Delay(retry, prev, u); got != want {
		t.Errorf("%+v: the table's Delay(%d, %v, %#x) = %d, want %d", s, retry, prev, u, got, want)
	}
}

func TestATableReturnsTheDelaysOfItsSchedule(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		table := randomSchedule(random).Compile()
		for retry := -1; retry <= maxRows+3; retry++ {
			prev := time.Duration(random.Int64N(int64(time.Hour)))
			checkTable(t, table, retry, prev, random.Uint64())
			checkTable(t, table, retry, prev, math.MaxUint64)
		}
		for _, retry := range []int{math.MinInt, 64, 65, 1000, math.MaxInt32, math.MaxInt} {
			checkTable(t, table, retry, 0, random.Uint64())
		}
	}
}

// randomSchedule returns a schedule with parts at and near the limits of their types.
// One in about ten is not valid.
func randomSchedule(random *rand.Rand) Schedule {
	bases := []time.Duration{0, 1, 3, 100 * ms, sec, 7 * sec, math.MaxInt64 / 2, math.MaxInt64}
	caps := []time.Duration{0, 0, 10 * sec, time.Hour, math.MaxInt64 - 1, math.MaxInt64}
	factors := []float64{0, 0, 1, 1 + 1e-15, 1.0001, 1.01, 1.5, 2, 3, 1e6, 0.5}
	jitters := append([]Band{None, Full, Equal, Wide, {Lo: 2, Hi: 1}}, PlusMinus(0.2), Plus(0.5), Band{0.25, 0.75}, Band{1.5, 1e6})
	s := Schedule{
		Kind:   Kind(random.IntN(len(kindNames))),
		Base:   bases[random.IntN(len(bases))],
		Cap:    caps[random.IntN(len(caps))],
		Jitter: jitters[random.IntN(len(jitters))],
	}
	if random.IntN(2) == 0 {
		s.Base = time.Duration(random.Int64N(int64(10 * sec)))
	}
	switch s.Kind {
	case Exponential:
		s.Factor = factors[random.IntN(len(factors))]
		s.MaxDoublings = max(random.IntN(80)-40, 0)
	case Decorrelated:
		s.Jitter = None
	}
	return s
}

func TestTablesAreShort(t *testing.T) {
	tests := []struct {
		name   string
		s      Schedule
		rows   int
		steady bool
	}{
		{"a fixed schedule has one row", Schedule{Base: sec, Jitter: Full}, 1, true},
		{"an exponential schedule ends at the cap", Schedule{Kind: Exponential, Base: 100 * ms, Cap: 10 * sec, Jitter: Equal}, 8, true},
		{"also at its last doubling", Schedule{Kind: Exponential, Base: ms, MaxDoublings: 6}, 7, true},
		{"a linear schedule ends at the cap", Schedule{Kind: Linear, Base: sec, Cap: 4 * sec}, 4, true},
		{"a schedule that grows for long is cut off", Schedule{Kind: Linear, Base: sec}, maxRows, false},
		{"a decorrelated schedule has none", Schedule{Kind: Decorrelated, Base: sec, Cap: 4 * sec}, 0, false},
		{"a schedule that is not valid has none", Schedule{Base: -1}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if table := tt.s.Compile(); len(table.rows) != tt.rows || table.steady != tt.steady {
				t.Errorf("%+v.Compile() has %d rows, steady %v, want %d, %v", tt.s, len(table.rows), table.steady, tt.rows, tt.steady)
			}
		})
	}
}

// FuzzTable looks for a schedule whose table returns another delay.
func FuzzTable(f *testing.F) {
	f.Add(uint8(2), int64(100*ms), int64(10*sec), 2.0, 0, 0.5, 1.0, 3, int64(0), uint64(1)<<63)
	f.Add(uint8(1), int64(sec), int64(0), 0.0, 0, 0.0, 0.0, math.MaxInt, int64(sec), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, kind uint8, base, limit int64, factor float64, doublings int, lo, hi float64, retry int, prev int64, u uint64) {
		s := Schedule{Kind(kind), time.Duration(base), time.Duration(limit), factor, doublings, Band{lo, hi}}
		if s.Validate() != nil {
			return
		}
		checkTable(t, s.Compile(), retry, time.Duration(prev), u)
	})
}
