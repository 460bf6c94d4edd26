package machine

import (
	"encoding/binary"
	"math/bits"
)

// idTable finds runs by their id. A Go map needs about 50 bytes for each run, because it has
// copies of the ids. This hash table has a part of the hash and the index of the run, about 14
// bytes.
//
// It consists of parts that grow one by one. So no change of the table takes long, however many
// runs there are.
type idTable struct {
	parts [idParts]idPart
}

const (
	idParts   = 256
	fewestIDs = 8 // slots of the smallest part
)

// idPart is a hash table with open addressing. The number of its slots is a power of two, and
// at most three of four are used.
type idPart struct {
	slots []idSlot
	used  int
}

type idSlot struct {
	hash uint32
	next int32 // index of the run in runIndex.all, plus 1; 0 means that the slot is free
}

// hash returns the hash of the id. Ids are random, except in tests.
func (id *ID) hash() uint64 {
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(id[:8])^0x9e3779b97f4a7c15, binary.LittleEndian.Uint64(id[8:])^0xd1342543de82ef95)
	return hi ^ lo
}

// part returns the part for a hash.
func (t *idTable) part(hash uint64) *idPart { return &t.parts[hash>>32%idParts] }

// find returns the slot of the run with the id; nil if there is none. all has the runs.
func (t *idTable) find(id *ID, all []*Run) *idSlot {
	hash := id.hash()
	p := t.part(hash)
	if p.used == 0 {
		return nil
	}
	for i := p.first(uint32(hash)); ; i = p.after(i) {
		switch s := &p.slots[i]; {
		case s.next == 0:
			return nil
		case s.hash == uint32(hash) && all[s.next-1].ID == *id:
			return s
		}
	}
}

// add adds a run with this index. The table must not have its id.
func (t *idTable) add(id *ID, index int32) {
	hash := id.hash()
	p := t.part(hash)
	if p.used >= len(p.slots)*3/4 {
		p.grow()
	}
	p.put(idSlot{uint32(hash), index + 1})
	p.used++
}

// remove removes a slot that find has returned for the id.
func (t *idTable) remove(id *ID, s *idSlot) {
	p := t.part(id.hash())
	p.used--
	// Move slots after the free one back, so that first leads to each of them without a gap.
	free := p.first(s.hash)
	for &p.slots[free] != s {
		free = p.after(free)
	}
	for i := p.after(free); p.slots[i].next != 0; i = p.after(i) {
		if p.distance(p.first(p.slots[i].hash), i) >= p.distance(free, i) {
			p.slots[free] = p.slots[i]
			free = i
		}
	}
	p.slots[free] = idSlot{}
}

// first returns the slot in which an entry with this hash is, unless others are in its way.
func (p *idPart) first(hash uint32) int { return int(hash) & (len(p.slots) - 1) }

// after returns the slot after i.
func (p *idPart) after(i int) int { return (i + 1) & (len(p.slots) - 1) }

// distance returns how many steps it is from slot i to slot j.
func (p *idPart) distance(i, j int) int { return (j - i) & (len(p.slots) - 1) }

// put puts an entry into the first free slot for it.
func (p *idPart) put(s idSlot) {
	i := p.first(s.hash)
	for p.slots[i].next != 0 {
		i = p.after(i)
	}
	p.slots[i] = s
}

// grow doubles the number of slots.
func (p *idPart) grow() {
	old := p.slots
	p.slots = make([]idSlot, max(2*len(old), fewestIDs))
	for _, s := range old {
		if s.next != 0 {
			p.put(s)
		}
	}
}
