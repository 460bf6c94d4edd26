//go:build !race

package sim

import (
	"math"
	"testing"
	"time"
)

// proposers are writers that change a value by ballots.
func proposers(m WriterModel, count int, hop time.Duration) Scenario {
	return Scenario{
		Name: "ballots", Duration: 30 * second, Bucket: second,
		Writers: &Writers{Count: count, Model: m, Hop: hop, Sigma: hop * 15 / 100},
	}
}

// TestAnchorRegister checks published results about conflicting proposals: the
// share of the runs in which all writers succeed. Their protocol was not
// published; the nine numbers are those of a register with three acceptors.
func TestAnchorRegister(t *testing.T) {
	seeds := size(400, 4000)
	for _, tt := range []struct {
		writers int
		hop     time.Duration
		policy  Contestant
		want    float64
	}{
		{3, ms, oldPolicy(t), 1},
		{5, ms, oldPolicy(t), 0.29},
		{7, ms, oldPolicy(t), 0.005},
		{7, ms, newPolicy(t), 1},
		{10, ms, newPolicy(t), 0.95},
		{5, 10 * ms, newPolicy(t), 1},
		{10, 10 * ms, newPolicy(t), 0.40},
		{5, 50 * ms, newPolicy(t), 0.97},
		{7, 50 * ms, newPolicy(t), 0.41},
	} {
		got := run(t, proposers(Register, tt.writers, tt.hop), seeds, tt.policy)[0].All
		what := tt.policy.Name + " " + name("N", tt.writers) + " at " + tt.hop.String()
		rows = append(rows, measured{what, got, tt.want})
		if tolerance := 0.05 + got.Half; math.Abs(got.Mean-tt.want) > tolerance {
			t.Errorf("%s: all succeed in %.3g ± %.2g of the runs, want %.3g within 0.05", what, got.Mean, got.Half, tt.want)
		}
	}
}

// When one writer has made a decree, all others are done, so that they need
// fewer attempts than the writers of a register, each of which must write.
func TestADecreeEndsTheContest(t *testing.T) {
	for _, hop := range []time.Duration{ms, 50 * ms} {
		register := run(t, proposers(Register, 7, hop), 100, newPolicy(t))[0]
		decree := run(t, proposers(Decree, 7, hop), 100, newPolicy(t))[0]
		if decree.Success.Mean < register.Success.Mean || decree.CallsPerClient.Mean >= register.CallsPerClient.Mean {
			t.Errorf("%v: decree: %v succeed in %v attempts; register: %v in %v", hop,
				decree.Success.Mean, decree.CallsPerClient.Mean, register.Success.Mean, register.CallsPerClient.Mean)
		}
	}
}

// Without conflicts a writer needs four messages.
func TestOneProposer(t *testing.T) {
	s := proposers(Register, 1, 10*ms)
	s.Writers.Sigma = 0
	r := run(t, s, 1, newPolicy(t))[0]
	if r.Success.Mean != 1 || r.Last.Mean != 0.04 || r.CallsPerClient.Mean != 1 {
		t.Errorf("one writer: success %v after %v s and %v attempts, want 1 after 0.04 s and 1", r.Success.Mean, r.Last.Mean, r.CallsPerClient.Mean)
	}
}
