package journal

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Assign returns the member that should own each shard: owners[n] has shard n.
//
// It depends on nothing but who the members are, so that all who know the same
// members agree without talking. No member has two shards more than another, and
// few shards move when a member comes or goes. The order of the members does not
// matter, nor does naming one twice; without members no shard has an owner,
// and the names are empty.
//
// The result is part of the protocol between processes of different versions:
// it must never change.
func Assign(members []string, shards int) (owners []string) {
	owners = make([]string, max(shards, 0))
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	if len(members) == 0 {
		return owners
	}
	least, more := len(owners)/len(members), len(owners)%len(members) // so many have one more
	has := make([]int, len(members))
	assigned := make([]bool, len(owners))
	for _, b := range bids(members, len(owners)) {
		full := has[b.member] > least || has[b.member] == least && more == 0
		if full || assigned[b.shard] {
			continue
		}
		if has[b.member] == least {
			more--
		}
		has[b.member]++
		assigned[b.shard] = true
		owners[b.shard] = members[b.member]
	}
	return owners
}

// bid is how much a member wants a shard.
type bid struct {
	weight        uint64
	member, shard int
}

// bids returns the bids of all for all, the highest first. It is rendezvous
// hashing; but the highest bid for a shard loses when its member has enough, and
// going through the bids by height, not by shard, makes such losses few.
func bids(members []string, shards int) []bid {
	list := make([]bid, 0, len(members)*shards)
	for m, name := range members {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // never fails
		for s := range shards {
			list = append(list, bid{mix(h.Sum64() ^ mix(uint64(s)+1)), m, s})
		}
	}
	slices.SortFunc(list, func(a, b bid) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.member, b.member), cmp.Compare(a.shard, b.shard))
	})
	return list
}

// mix spreads every bit over all of them: the last steps of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
