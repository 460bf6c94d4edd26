package engine

import (
	"context"
	"fmt"
	"testing"
)

// Shards take turns, the errands with one shard keep their order, and a shard that answers none does
// not hold up the others.
func TestErrandsByShard(t *testing.T) {
	t.Parallel()
	var q errandQueue
	var list []*errand
	of := map[*errand]string{}
	for shard, n := range []int{1000, 3, 2} { // shard 0 is away
		for i := range n {
			e := &errand{shard: shard}
			list = append(list, e)
			of[e] = fmt.Sprint(shard, ".", i)
		}
	}
	q.workers = maxErrands
	q.add(list)
	var got []string
	for range 8 {
		got = append(got, of[q.next(t.Context(), nil)])
	}
	if want := "[0.0 1.0 2.0 0.1 1.1 2.1 0.2 1.2]"; fmt.Sprint(got) != want {
		t.Errorf("the errands begin in the order %v, want %s", got, want)
	}
	for n := 3; n < maxShardErrands; n++ {
		if e := q.next(t.Context(), nil); of[e] != fmt.Sprint("0.", n) {
			t.Fatalf("errand %d with shard 0 is %q", n, of[e])
		}
	}
	if e := q.next(t.Context(), nil); e != nil {
		t.Errorf("errand %s begins above the limit of its shard", of[e])
	}
	late := &errand{shard: 1}
	q.add([]*errand{late})
	if q.next(t.Context(), nil) != late {
		t.Error("an errand waits for those with another shard")
	}
	if e := q.next(t.Context(), list[0]); of[e] != fmt.Sprint("0.", maxShardErrands) {
		t.Errorf("after the first errand with shard 0 has ended, %q begins", of[e])
	}
}

func BenchmarkErrandsBesideAShardThatIsAway(b *testing.B) {
	var q errandQueue
	q.workers = maxErrands
	away := make([]*errand, 20_000)
	for i := range away {
		away[i] = new(errand)
	}
	q.add(away)
	for range maxShardErrands {
		q.next(context.Background(), nil)
	}
	e := &errand{shard: 1}
	list := []*errand{e}
	var before *errand
	b.ReportAllocs()
	for b.Loop() {
		q.add(list)
		before = q.next(context.Background(), before)
	}
}
