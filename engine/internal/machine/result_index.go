package machine

import (
	"hash/maphash"
	"iter"

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
	}
}

// Next returns the result of an operation that the function asks for, without its number, attempts and
// times, and its position; -1 if there is none. It is fast if the function asks in the order of the
// results.
func (x *ResultIndex) Next(identity string) (o OpResult, position int) {
	at, isRead := x.end, x.next < len(x.at)
	if isRead {
		at = x.at[x.next]
	}
	if uint64(at) < uint64(len(x.encoded)) { // it is neither removed nor after the last one
		in := codec.Reader{Data: x.encoded[at:]}
		in.SkipNumbers(1)
		if string(in.Bytes()) == identity {
			o.Name = identity
			in.SkipNumbers(4) // attempts and times
			if o.readOutcome(&in); in.Err == nil {
				if !isRead {
					x.added(at, &in)
				}
				x.next++
				return o, x.next - 1
			}
		}
	}
	if position = x.Find(identity); position < 0 {
		return o, -1
	}
	x.next = position + 1
	in := codec.Reader{Data: x.encoded[x.at[position]:]}
	o.Name = identity
	skipToOutcome(&in)
	o.readOutcome(&in)
	return o, position
}

// added notes that a result was read from the offset on.
func (x *ResultIndex) added(at uint32, rest *codec.Reader) {
	x.at = append(x.at, at)
	x.end = uint32(len(x.encoded) - len(rest.Data))
}

// readAll reads all results that were not read yet, without decoding them.
func (x *ResultIndex) readAll() {
	for in := (codec.Reader{Data: x.encoded[x.end:]}); len(in.Data) > 0; {
		if skipResult(&in); in.Err != nil {
			return
		}
		x.added(x.end, &in)
	}
}

// skipToOutcome skips the number, the identity, the attempts and the times of an encoded OpResult.
func skipToOutcome(in *codec.Reader) {
	in.SkipNumbers(1)
	in.Bytes()
	in.SkipNumbers(4)
}

// skipResult skips an encoded OpResult.
func skipResult(in *codec.Reader) {
	skipToOutcome(in)
	if in.Byte() != 0 {
		in.Bytes()
		in.Bytes()
	}
	in.Bytes()
}

// is reports whether the result at a position has this identity.
func (x *ResultIndex) is(i int, identity string) bool {
	return x.at[i] != removedResult && string(x.name(i)) == identity
}

// name returns the identity of the result at a position.
func (x *ResultIndex) name(i int) []byte {
	in := codec.Reader{Data: x.encoded[x.at[i]:]}
	in.Uvarint()
	return in.Bytes()
}

// Find returns the position of the result of an operation; -1 if there is none. After the first call
// it changes nothing, so that several goroutines can call it.
func (x *ResultIndex) Find(identity string) int {
	if len(x.encoded) == 0 {
		return -1
	}
	if x.table == nil {
		x.makeTable()
	}
	for slot := x.slot(maphash.String(hashSeed, identity)); x.table[slot] != 0; slot = x.slot(slot + 1) {
		if i := int(x.table[slot] - 1); x.is(i, identity) {
			return i
		}
	}
	return -1
}

func (x *ResultIndex) makeTable() {
	x.readAll()
	size := 4
	for size < 2*len(x.at) {
		size *= 2
	}
	x.table = make([]uint32, size)
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

// IsEmpty reports whether there are no results.
func (x *ResultIndex) IsEmpty() bool { return len(x.encoded) == 0 }

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
