package view

import (
	"maps"
	"slices"
	"sync"
)

// names are the workflows and states, of which rows and indexes keep numbers.
// The writer adds a name before its transaction is committed, so that no reader
// meets a number that it does not know, and takes it back if it is not.
type names struct {
	mu   sync.RWMutex
	ids  map[string]int64
	text map[int64]string
	next int64
}

// firstName is not smaller because SQLite stores 0 and 1 in no bytes at all: a
// row whose state changes would change its length and could not stay in place.
// Attempts are counted from it for the same reason.
const firstName = 2

func (n *names) add(id int64, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ids == nil {
		n.ids, n.text, n.next = map[string]int64{}, map[int64]string{}, firstName
	}
	n.ids[text], n.text[id] = id, text
	n.next = max(n.next, id+1)
}

func (n *names) remove(ids []int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		delete(n.ids, n.text[id])
		delete(n.text, id)
	}
}

func (n *names) id(text string) (int64, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	id, ok := n.ids[text]
	return id, ok
}

func (n *names) name(id int64) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.text[id]
}

// free returns a number that no name has.
func (n *names) free() int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return max(n.next, firstName)
}

func (n *names) known(texts []string) []int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	set := map[int64]bool{}
	for _, t := range texts {
		if id, ok := n.ids[t]; ok {
			set[id] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// like returns the numbers of the names that a pattern describes.
func (n *names) like(patterns []string) (ids []int64) {
	if len(patterns) == 0 {
		return nil
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	for text, id := range n.ids {
		if Like(patterns, text) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
