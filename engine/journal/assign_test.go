package journal_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

func TestAssignIsWhatItAlwaysWas(t *testing.T) {
	// Processes of different versions must agree, so never change these results.
	tests := []struct {
		members []string
		shards  int
		want    string
	}{
		{nil, 3, "[  ]"},
		{[]string{"a"}, 0, "[]"},
		{[]string{"a"}, -1, "[]"},
		{[]string{"a"}, 4, "[a a a a]"},
		{[]string{"a", "b"}, 8, "[b a a a b b b a]"},
		{[]string{"a", "b", "c"}, 8, "[c a a a c c b b]"},
		{[]string{"a", "b", "c", "d", "e"}, 3, "[d e a]"},
	}
	for _, tt := range tests {
		if got := fmt.Sprint(journal.Assign(tt.members, tt.shards)); got != tt.want {
			t.Errorf("Assign(%q, %d) = %s; want %s", tt.members, tt.shards, got, tt.want)
		}
	}
}

func TestAssignIgnoresOrderAndRepetition(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		members, shards := randomMembers(random), random.IntN(100)
		want := journal.Assign(members, shards)
		shuffled := slices.Concat(members, members[:1])
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		before := slices.Clone(shuffled)
		if got := journal.Assign(shuffled, shards); !slices.Equal(got, want) {
			t.Fatalf("Assign(%q, %d) = %q; in order it is %q", shuffled, shards, got, want)
		}
		if !slices.Equal(shuffled, before) {
			t.Fatalf("Assign changed its argument: %q, before %q", shuffled, before)
		}
	}
}

func TestAssignIsBalanced(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for range 100 {
		members, shards := randomMembers(random), random.IntN(200)
		wantBalance(t, members, shards)
	}
}

func FuzzAssign(f *testing.F) {
	f.Add("a", "b", "c", 32)
	f.Add("", "", "x", 7)
	f.Add("n1", "n2", "n3", 0)
	f.Fuzz(func(t *testing.T, a, b, c string, shards int) {
		members := []string{a, b, c}
		slices.Sort(members)
		wantBalance(t, slices.Compact(members), shards%300)
	})
}

// wantBalance checks that every shard has an owner among the members, and that the
// numbers of shards of two members differ by at most one.
func wantBalance(t *testing.T, members []string, shards int) {
	t.Helper()
	owners := journal.Assign(members, shards)
	if len(owners) != max(shards, 0) {
		t.Fatalf("Assign(%q, %d) names %d owners", members, shards, len(owners))
	}
	count := map[string]int{}
	for _, m := range owners {
		if !slices.Contains(members, m) {
			t.Fatalf("Assign(%q, %d) = %q; %q is no member", members, shards, owners, m)
		}
		count[m]++
	}
	least, most := len(owners), 0
	for _, m := range members {
		least, most = min(least, count[m]), max(most, count[m])
	}
	if most-least > 1 {
		t.Fatalf("Assign(%q, %d) = %q; one has %d, another %d", members, shards, owners, least, most)
	}
}

func TestAssignMovesFewShards(t *testing.T) {
	// When a member joins or leaves, at least its own share of the shards moves. Balance
	// makes a few more move; this test limits their number, as a mean of many rounds.
	const shards, rounds = 32, 100
	for members, want := range map[int]float64{2: 16, 3: 12.5, 4: 10.5, 6: 8, 10: 7} {
		random := rand.New(rand.NewPCG(3, uint64(members)))
		moved := 0
		for range rounds {
			all := newMembers(random, members)
			with, without := journal.Assign(all, shards), journal.Assign(all[1:], shards)
			for n := range with {
				if with[n] != without[n] {
					moved++
				}
			}
		}
		if mean := float64(moved) / rounds; mean > want {
			t.Errorf("of %d shards %.2f move on average when one of %d members goes; want at most %.1f",
				shards, mean, members, want)
		}
	}
}

func randomMembers(random *rand.Rand) []string { return newMembers(random, 1+random.IntN(40)) }

func newMembers(random *rand.Rand, count int) (members []string) {
	for i := range count {
		members = append(members, fmt.Sprintf("%x-%d", random.Uint32(), i))
	}
	return members
}

func ExampleAssign() {
	owners := journal.Assign([]string{"red", "blue", "green"}, 6)
	for shard, member := range owners {
		fmt.Println(shard, member)
	}
	// Output:
	// 0 red
	// 1 red
	// 2 green
	// 3 blue
	// 4 green
	// 5 blue
}
