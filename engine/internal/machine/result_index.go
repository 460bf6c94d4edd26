package machine

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"unsafe"

	"github.com/tideover/tideover/engine/internal/codec"
)

// ResultIndex finds encoded results of operations by their identities. A function that is called
// again asks for all of them, most often in the order in which they were stored: so the index
// first compares with the result after the last one that was asked for, and makes a table only for
// a function that asks in another order. It shares the memory of the encoded results.
type ResultIndex struct {
	encoded []byte
	at      []uint32 // offset of each result in encoded; removedResult if it was removed
	end     uint32   // offset after the last result in at
	next    int      // position of the result that is probably asked for next
	hashes  []uint64 // a bit for each hash of an identity in at: a new operation, whose bit is 0, needs no table
	table   []uint32 // positions plus 1, by the hashes of the identities; nil before it is needed
}

const removedResult = 1<<32 - 1

// hashSeed is the seed of the hashes of all tables, which are not stored.
var hashSeed = maphash.MakeSeed()

// Init makes the index of the encoded results. count is about their number.
func (x *ResultIndex) Init(encoded []byte, count int) {
	*x = ResultIndex{encoded: encoded}
	if len(encoded) > 0 {
		x.at = make([]uint32, 0, count)
		x.hashes = make([]uint64, powerOf2(count/4)) // at least 16 bits for each
	}
}

// powerOf2 returns the smallest power of 2 that is at least n.
func powerOf2(n int) int { return 1 << bits.Len(uint(max(n-1, 0))) }

// Next returns the identity of an operation that the function asks for, and the position of its result;
// -1 if there is none. failure is nil if the operation succeeded. identity and data share the memory of
// the encoded results. It is fast if the function asks in the order of the results.
func (x *ResultIndex) Next(kind, name, key string) (identity string, data []byte, failure *OpResult, position int) {
	position = x.next
	at, isRead := x.end, position < len(x.at)
	if isRead {
		at = x.at[position]
	}
	stored, data, failed, end := x.cut(at)
	if end == 0 || !isIdentity(stored, kind, name, key) {
		identity = Identity(kind, name, key)
		if position = x.Find(identity); position < 0 {
			return identity, nil, nil, -1
		}
		stored, data, failed, _ = x.cut(x.at[position])
	} else if !isRead {
		x.added(stored, end)
	}
	x.next = position + 1
	if failed {
		failure = new(x.Result(position))
	}
	return unsafe.String(unsafe.SliceData(stored), len(stored)), data, failure, position // nothing changes these bytes
}

// Identity returns the identity of an operation. The key may be "".
func Identity(kind, name, key string) string {
	if key == "" {
		return kind + ":" + name
	}
	return kind + ":" + name + "[" + key + "]"
}

// isIdentity reports whether b is the identity of the operation, without making it.
func isIdentity(b []byte, kind, name, key string) bool {
	n := len(kind) + 1 + len(name)
	if len(b) < n || string(b[:len(kind)]) != kind || b[len(kind)] != ':' || string(b[len(kind)+1:n]) != name {
		return false
	}
	if b = b[n:]; key == "" {
		return len(b) == 0
	}
	return len(b) == len(key)+2 && b[0] == '[' && string(b[1:len(b)-1]) == key && b[len(b)-1] == ']'
}

// cut returns parts of the result at an offset, and where it ends; 0 if there is none or it can't be
// read. It uses no codec.Reader: to change its pointers takes longer while garbage is collected.
func (x *ResultIndex) cut(at uint32) (name, data []byte, failed bool, end uint32) {
	b := codec.CutNumbers(x.encoded[min(uint(at), uint(len(x.encoded))):], 1)
	name, b = codec.CutBytes(b)
	b = codec.CutNumbers(b, 4) // attempts and times
	if len(b) == 0 {
		return nil, nil, false, 0
	}
	if failed, b = b[0] != 0, b[1:]; failed {
		_, b = codec.CutBytes(b)
		_, b = codec.CutBytes(b)
	}
	if data, b = codec.CutBytes(b); b == nil {
		return nil, nil, false, 0
	}
	return name, data, failed, uint32(len(x.encoded) - len(b))
}

// added notes that the next result was read, with its identity and its end.
func (x *ResultIndex) added(name []byte, end uint32) {
	x.at = append(x.at, x.end)
	x.end = end
	hash := maphash.Bytes(hashSeed, name)
	x.hashes[hash/64&uint64(len(x.hashes)-1)] |= 1 << (hash % 64)
}

// readAll reads all results that were not read yet, without decoding them.
func (x *ResultIndex) readAll() {
	for {
		name, _, _, end := x.cut(x.end)
		if end == 0 {
			return
		}
		x.added(name, end)
	}
}

// is reports whether the result at a position has this identity.
func (x *ResultIndex) is(i int, identity string) bool {
	return x.at[i] != removedResult && string(x.name(i)) == identity
}

// name returns the identity of the result at a position.
func (x *ResultIndex) name(i int) []byte {
	name, _ := codec.CutBytes(codec.CutNumbers(x.encoded[x.at[i]:], 1))
	return name
}

// Find returns the position of the result of an operation; -1 if there is none. After a call that has
// found one it changes nothing, so that several goroutines can call it.
func (x *ResultIndex) Find(identity string) int {
	if len(x.encoded) == 0 {
		return -1
	}
	hash := maphash.String(hashSeed, identity)
	if x.table == nil {
		if x.readAll(); x.hashes[hash/64&uint64(len(x.hashes)-1)]&(1<<(hash%64)) == 0 {
			return -1
		}
		x.makeTable()
	}
	for slot := x.slot(hash); x.table[slot] != 0; slot = x.slot(slot + 1) {
		if i := int(x.table[slot] - 1); x.is(i, identity) {
			return i
		}
	}
	return -1
}

func (x *ResultIndex) makeTable() {
	x.table = make([]uint32, powerOf2(2*len(x.at)+1)) // one is always 0
	for i, at := range x.at {
		if at == removedResult {
			continue
		}
		slot := x.slot(maphash.Bytes(hashSeed, x.name(i)))
		for x.table[slot] != 0 {
			slot = x.slot(slot + 1)
		}
		x.table[slot] = uint32(i + 1)
	}
}

// slot returns the place in the table for a hash, or for the number of a place that may be after the
// last one.
func (x *ResultIndex) slot(n uint64) uint64 { return n & uint64(len(x.table)-1) }

// Result decodes the result at a position. Its data shares the memory of the encoded results.
func (x *ResultIndex) Result(i int) (o OpResult) {
	o.read(&codec.Reader{Data: x.encoded[x.at[i]:]})
	return o
}

// All yields the positions and identities of the results.
func (x *ResultIndex) All() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		x.readAll()
		for i, at := range x.at {
			if at != removedResult && !yield(i, string(x.name(i))) {
				return
			}
		}
	}
}

// Remove removes the result at a position: it is not found any more.
func (x *ResultIndex) Remove(i int) { x.at[i] = removedResult }
