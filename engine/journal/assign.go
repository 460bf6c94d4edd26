package journal

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Assign returns the member that should own each shard: owners[n] has shard n.
//
// The result depends only on the set of members, so processes that know the same
// members agree without sending messages. The numbers of shards of two members
// differ by at most one, and few shards move when a member joins or leaves. The
// order of the members and repeated names do not matter. Without members all
// owners are "".
//
// The result is part of the protocol between processes of different versions:
// it must never change.
func Assign(members []string, shards int) (owners []string) {
	owners = make([]string, max(shards, 0))
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	if len(members) == 0 {
		return owners
	}
	least, more := len(owners)/len(members), len(owners)%len(members) // each member gets least shards, and more members get one more
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

// bid is the weight of a member for a shard: the higher it is, the sooner the member
// gets the shard.
type bid struct {
	weight        uint64
	member, shard int
}

// bids returns the bids of all members for all shards, the highest first. This is
// rendezvous hashing with a limit: the highest bid for a shard is ignored if its
// member has enough shards. Assign handles the bids by weight and not by shard,
// because then it ignores few of them.
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

// mix makes every bit of the result depend on every bit of x: the last steps of
// splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
