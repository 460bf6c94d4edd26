package limit

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQueueOrder(t *testing.T) {
	t.Parallel()
	const s = time.Second
	type caller struct {
		at       time.Duration
		p        Priority
		deadline time.Duration
	}
	for _, tt := range []struct {
		name    string
		callers []caller
		now     time.Duration
		want    []int // callers in the order they are served
	}{
		{"the higher class first", []caller{{0, Low, 0}, {0, Highest, 0}, {0, Normal, 0}}, 0, []int{1, 2, 0}},
		{"in a class the earlier deadline first", []caller{{0, 0, 9 * s}, {0, 0, 3 * s}, {0, 0, 6 * s}}, 0, []int{1, 2, 0}},
		{"no deadline comes after any", []caller{{0, 0, 0}, {0, 0, 900 * s}}, 0, []int{1, 0}},
		{"else who came first", []caller{{0, 0, 0}, {1 * s, 0, 0}, {2 * s, 0, 0}}, 2 * s, []int{0, 1, 2}},
		{"a class outweighs a deadline", []caller{{0, Normal, s}, {0, High, 0}}, 0, []int{1, 0}},
		{"one period makes up for one class", []caller{{5 * s, Low, 0}, {15 * s, Normal, 0}}, 15 * s, []int{0, 1}},
		{"less than a period does not", []caller{{5 * s, Low, 0}, {9 * s, Normal, 0}}, 9 * s, []int{1, 0}},
		{"after five periods the lowest outranks the highest", []caller{{0, Lowest, 0}, {50 * s, Highest, 60 * s}}, 50 * s, []int{0, 1}},
		{"whose deadline has passed is not served", []caller{{0, 0, 2 * s}, {0, 0, 3 * s}, {0, 0, 0}}, 2 * s, []int{1, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(10 * s)
			var all []*Waiter
			for _, c := range tt.callers {
				all = append(all, q.push(c.at, c.p, c.deadline))
			}
			var got []int
			for w := q.pop(tt.now); w != nil; w = q.pop(tt.now) {
				got = append(got, slices.Index(all, w))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("served %v, want %v", got, tt.want)
			}
			if q.byClass != [Classes]int{} {
				t.Errorf("the empty queue counts %v waiters", q.byClass)
			}
		})
	}
}

// The two heaps and the counts agree with a sorted list after any sequence of
// operations.
func TestQueueAgreesWithASortedList(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(6, 7))
	q := newQueue(time.Second)
	var list []*Waiter
	for now := time.Duration(0); now < 600*time.Millisecond; now += time.Millisecond {
		switch {
		case len(list) == 0 || r.IntN(5) < 3:
			deadline := time.Duration(r.IntN(3)) * time.Duration(r.Int64N(int64(time.Hour)))
			list = append(list, q.push(now, Lowest+Priority(r.IntN(Classes)), deadline))
		default:
			i := r.IntN(len(list))
			q.remove(list[i])
			list = slices.Delete(list, i, i+1)
		}
		if len(list) == 0 {
			continue
		}
		slices.SortFunc(list, (*Waiter).compare)
		if q.first.top() != list[0] || q.last.top() != list[len(list)-1] || q.len() != len(list) {
			t.Fatalf("at %v the queue's ends are not the list's", now)
		}
	}
}
