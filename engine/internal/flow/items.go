package flow

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/internal/textfmt"
)

// Limits of the labels of items that are stored.
const (
	maxLabel  = 60       // bytes of a label
	maxLabels = 32 << 10 // bytes of all labels of a map; the items after that have none
)

// labelsOf returns the labels of items, which are JSON.
func (o *Called) labelsOf(items [][]byte) (labels []string) {
	size := 0
	for i := range items {
		label := string(items[i][:min(len(items[i]), 2*maxLabel)])
		if o.labels != nil {
			label = o.labels(i)
		}
		label = textfmt.TruncateWithin(strings.ToValidUTF8(label, "\uFFFD"), maxLabel, "…")
		if size += len(label); size > maxLabels {
			break
		}
		labels = append(labels, label)
	}
	return labels
}

// CheckItems compares the items of a Map with those that are stored, or stores the hashes of the
// items.
func (f *Flow) CheckItems(o *Called, items [][]byte) error {
	identity := o.Identity
	hashes := make([]byte, 0, machine.ItemHash*len(items))
	for _, item := range items {
		h := fnv.New64a()
		_, _ = h.Write(item) // never fails
		hashes = h.Sum(hashes)
	}
	stored := f.ended.get(identity)
	if stored == nil {
		if err := f.checkCount(identity, 1+len(items)); err != nil {
			return err // before the hashes are stored, which may be too many for an entry
		}
		text, err := json.Marshal(machine.StoredItems{Hashes: hashes, Labels: o.labelsOf(items)})
		if err != nil {
			return err
		}
		return f.Record(identity, text)
	}
	f.found++
	known, err := machine.ReadItems(stored.Data)
	if err != nil {
		return f.Misuse(identity, fmt.Errorf("its stored items can't be read: %w", err))
	}
	before := known.Hashes
	if len(before) != len(hashes) {
		return f.Misuse(identity, fmt.Errorf("has %d items, but the stored operation has %d: the items must follow from the input and from results of operations", len(items), len(before)/machine.ItemHash))
	}
	for i := range items {
		if !slices.Equal(before[machine.ItemHash*i:machine.ItemHash*(i+1)], hashes[machine.ItemHash*i:machine.ItemHash*(i+1)]) {
			return f.Misuse(identity, fmt.Errorf("item %d is not the same as in the stored operation: the items must follow from the input and from results of operations", i))
		}
	}
	return nil
}
