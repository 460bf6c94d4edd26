package flow

import "github.com/tideover/tideover/engine/internal/machine"

// opMap is a map by the identities of operations, or by their numbers. Few operations need no allocation.
type opMap[K comparable, V any] struct {
	few  [4]opEntry[K, V]
	used int     // number of elements of few that are used
	many map[K]V // all of them, if few is too small; else nil
}

type opEntry[K comparable, V any] struct {
	key   K
	value V
}

// find returns the entry of an operation in few; nil if there is none.
func (m *opMap[K, V]) find(key K) *opEntry[K, V] {
	for i := range m.few[:m.used] {
		if e := &m.few[i]; e.key == key {
			return e
		}
	}
	return nil
}

// get returns the value of an operation; the zero value if there is none.
func (m *opMap[K, V]) get(key K) (v V) {
	if m.many != nil {
		return m.many[key]
	}
	if e := m.find(key); e != nil {
		return e.value
	}
	return v
}

func (m *opMap[K, V]) set(key K, v V) {
	if m.many != nil {
		m.many[key] = v
		return
	}
	if e := m.find(key); e != nil {
		e.value = v
		return
	}
	if m.used < len(m.few) {
		m.few[m.used] = opEntry[K, V]{key, v}
		m.used++
		return
	}
	m.many = make(map[K]V, 2*len(m.few))
	for _, e := range m.few {
		m.many[e.key] = e.value
	}
	m.many[key] = v
}

func (m *opMap[K, V]) remove(key K) {
	delete(m.many, key)
	if e := m.find(key); e != nil {
		m.used--
		*e, m.few[m.used] = m.few[m.used], opEntry[K, V]{}
	}
}

// all yields the operations and their values, in no particular order.
func (m *opMap[K, V]) all(yield func(K, V) bool) {
	for key, v := range m.many {
		if !yield(key, v) {
			return
		}
	}
	if m.many != nil {
		return
	}
	for _, e := range m.few[:m.used] {
		if !yield(e.key, e.value) {
			return
		}
	}
}

// opResults has the results of the operations of a call, by identity: those that were stored before
// the call, and those of operations that have ended since. A function that is called again asks for
// each stored result. So these are not decoded before they are asked for.
type opResults struct {
	stored machine.ResultIndex
	own    opMap[string, *machine.OpResult] // since the call began, or with another name than the stored one
}

// get returns the result of an operation; nil if it has not ended.
func (r *opResults) get(identity string) *machine.OpResult {
	if res := r.own.get(identity); res != nil {
		return res
	}
	if i := r.stored.Find(identity); i >= 0 {
		res := r.stored.Result(i)
		return &res
	}
	return nil
}

// has reports whether the operation has ended.
func (r *opResults) has(identity string) bool {
	return r.own.get(identity) != nil || r.stored.Find(identity) >= 0
}

// set sets the result of an operation that has ended since the call began.
func (r *opResults) set(identity string, res *machine.OpResult) { r.own.set(identity, res) }

// all yields the operations and their results, in no particular order.
func (r *opResults) all(yield func(string, *machine.OpResult) bool) {
	for identity, res := range r.own.all {
		if !yield(identity, res) {
			return
		}
	}
	for i, identity := range r.stored.All() {
		if r.own.get(identity) != nil {
			continue
		}
		if res := r.stored.Result(i); !yield(identity, &res) {
			return
		}
	}
}

// rename gives each operation the identity that now returns for it.
func (r *opResults) rename(now func(identity string) string) {
	var own opMap[string, *machine.OpResult]
	add := func(identity string, res *machine.OpResult) {
		res.Name = identity
		own.set(identity, res)
	}
	for identity, res := range r.own.all {
		add(now(identity), res)
	}
	for i, identity := range r.stored.All() {
		if name := now(identity); name != identity {
			res := r.stored.Result(i)
			add(name, &res)
			r.stored.Remove(i)
		}
	}
	r.own = own
}

// askedOps is the set of the operations that the function has called. Those with stored results are
// known by the positions of these.
type askedOps struct {
	results *opResults
	stored  []uint64 // a bit for each position in results.stored
	others  opMap[string, bool]
}

// add adds an operation with a result at this position; -1 for none. It returns false if the
// operation is in the set already.
func (a *askedOps) add(identity string, position int) bool {
	if position < 0 {
		if a.others.get(identity) {
			return false
		}
		a.others.set(identity, true)
		return true
	}
	for len(a.stored) <= position/64 {
		a.stored = append(a.stored, 0)
	}
	bit := uint64(1) << (position % 64)
	isNew := a.stored[position/64]&bit == 0
	a.stored[position/64] |= bit
	return isNew
}

func (a *askedOps) get(identity string) bool {
	i := a.results.stored.Find(identity)
	if i < 0 {
		return a.others.get(identity)
	}
	return i/64 < len(a.stored) && a.stored[i/64]&(1<<(i%64)) != 0
}
