package shard

import (
	"context"
	"fmt"
	"testing"
)

// Shards take turns, the deliveries with one shard keep their order, and a shard that answers none does
// not hold up the others.
func TestDeliveriesByShard(t *testing.T) {
	t.Parallel()
	var q deliveryQueue
	var list []*Delivery
	of := map[*Delivery]string{}
	for shard, n := range []int{1000, 3, 2} { // shard 0 is away
		for i := range n {
			e := &Delivery{Shard: shard}
			list = append(list, e)
			of[e] = fmt.Sprint(shard, ".", i)
		}
	}
	q.workers = 2 * maxDeliveries // no further one begins
	q.enqueue(list)
	var got []string
	for range 8 {
		got = append(got, of[q.next(t.Context(), nil)])
	}
	if want := "[0.0 1.0 2.0 0.1 1.1 2.1 0.2 1.2]"; fmt.Sprint(got) != want {
		t.Errorf("the deliveries begin in the order %v, want %s", got, want)
	}
	for n := 3; n < maxShardDeliveries; n++ {
		if e := q.next(t.Context(), nil); of[e] != fmt.Sprint("0.", n) {
			t.Fatalf("delivery %d with shard 0 is %q", n, of[e])
		}
	}
	if e := q.next(t.Context(), nil); e != nil {
		t.Errorf("delivery %s begins above the limit of its shard", of[e])
	}
	late := &Delivery{Shard: 1}
	q.enqueue([]*Delivery{late})
	if q.next(t.Context(), nil) != late {
		t.Error("a delivery waits for those with another shard")
	}
	if e := q.next(t.Context(), list[0]); of[e] != fmt.Sprint("0.", maxShardDeliveries) {
		t.Errorf("after the first delivery with shard 0 has ended, %q begins", of[e])
	}
}

func BenchmarkDeliveriesBesideAShardThatIsAway(b *testing.B) {
	var q deliveryQueue
	q.workers = 2 * maxDeliveries // no further one begins
	away := make([]*Delivery, 20_000)
	for i := range away {
		away[i] = new(Delivery)
	}
	q.enqueue(away)
	for range maxShardDeliveries {
		q.next(context.Background(), nil)
	}
	e := &Delivery{Shard: 1}
	list := []*Delivery{e}
	var before *Delivery
	b.ReportAllocs()
	for b.Loop() {
		q.enqueue(list)
		before = q.next(context.Background(), before)
	}
}
