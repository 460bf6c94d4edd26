package breaker

import "testing"

// TestRatesAreComparedExactly checks every fraction of up to 100 calls against
// every rate in per mille, with whole numbers.
func TestRatesAreComparedExactly(t *testing.T) {
	t.Parallel()
	for all := 1; all <= 100; all++ {
		for part := range all + 1 {
			for perMille := 1; perMille <= 1000; perMille++ {
				want := part*1000 >= perMille*all
				if got := reaches(part, all, float64(perMille)/1000); got != want {
					t.Fatalf("reaches(%d, %d, %d/1000) = %v, want %v", part, all, perMille, got, want)
				}
			}
		}
	}
}

func FuzzRates(f *testing.F) {
	f.Add(uint32(1), uint32(250), uint32(40))
	f.Add(uint32(7), uint32(100), uint32(700))
	f.Add(uint32(1<<30), uint32(1<<31), uint32(5001))
	f.Fuzz(func(t *testing.T, part, all, per10000 uint32) {
		if part == 0 || all == 0 || part > all || per10000 == 0 || per10000 > 10000 {
			t.Skip()
		}
		want := uint64(part)*10000 >= uint64(per10000)*uint64(all)
		if got := reaches(int(part), int(all), float64(per10000)/10000); got != want {
			t.Errorf("reaches(%d, %d, %d/10000) = %v, want %v", part, all, per10000, got, want)
		}
	})
}
