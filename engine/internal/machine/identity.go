package machine

import (
	"bytes"
	"encoding/json"
	"strings"
)

// SplitIdentity returns the kind and the label of an operation.
func SplitIdentity(identity string) (kind, name string) {
	kind, name, _ = strings.Cut(identity, ":")
	return kind, name
}

// CutIndex returns the name of the map and the index of one of its items; "" if the name has no
// index.
func CutIndex(item string) (mapped, index string) {
	at := strings.LastIndexByte(item, '#') // a key may contain one
	if at < 0 || strings.HasSuffix(item, "]") {
		return item, ""
	}
	return item[:at], item[at+1:]
}

// IsMapKind reports whether operations of the kind have items.
func IsMapKind(kind string) bool { return kind == "map" || kind == ChildrenKind }

// IsItemKind reports whether operations of the kind may be items of another one. Then their names
// end with an index: see CutIndex.
func IsItemKind(kind string) bool { return kind == "item" || kind == ChildKind }

// ChildrenKind is the kind of the operation that stores what [Children] starts.
const ChildrenKind = "children"

// StoredItems is what is stored of the items of a Map.
type StoredItems struct {
	Hashes []byte   `json:"hashes"` // ItemHash bytes for each item
	Labels []string `json:"labels,omitempty"`
}

// ReadItems decodes stored items. Those of earlier versions have no labels.
func ReadItems(data []byte) (items StoredItems, err error) {
	if bytes.HasPrefix(data, []byte{'"'}) {
		return items, json.Unmarshal(data, &items.Hashes)
	}
	return items, json.Unmarshal(data, &items)
}

// count returns the number of items.
func (s *StoredItems) Count() int { return len(s.Hashes) / ItemHash }

// ItemHash is the number of bytes of the hash of an item.
const ItemHash = 8

// EncodeTags returns the tags as they are stored.
func EncodeTags(tags map[string]string) string {
	if tags == nil {
		return ""
	}
	text, _ := json.Marshal(tags) // can't fail: strings
	return string(text)
}

// DecodeTags returns stored tags; nil if there are none.
func DecodeTags(text string) map[string]string {
	if text == "" {
		return nil
	}
	var tags map[string]string
	_ = json.Unmarshal([]byte(text), &tags) // EncodeTags wrote it
	return tags
}

// BaseName returns the name of an operation without its key.
func BaseName(name string) string {
	name, _, _ = strings.Cut(name, "[")
	return name
}

// UndoKind is the kind, in the identity of an operation, of those that undo another one, whose name
// they have.
const UndoKind = "undo"

func isUndo(identity string) bool { return strings.HasPrefix(identity, UndoKind+":") }

// canHaveUndo reports whether the operation with this identity is of a kind that can be undone.
func canHaveUndo(identity string) bool {
	kind, _, _ := strings.Cut(identity, ":")
	return kind == "do" || kind == "item"
}

// ChildKind is the kind, in the identity of an operation, of those that wait for a child.
const ChildKind = "child"

// FormerKind is the kind, in the identity of a result, of those that have the former child of an
// operation, whose name they have. Flow.Results does not return them.
const FormerKind = "former"

func isChildOp(identity string) bool { return strings.HasPrefix(identity, ChildKind+":") }

// The kinds, in the identity of an operation, of those that wait for a signal.
const (
	AwaitKind = "await" // the name of the operation, without a key, is that of the signal
	AskKind   = "ask"   // the signal has the identity of the operation as its name, and answers its question
)

// awaited returns the name of the signal for which the operation with this identity waits; ok is
// false if the operation is of another kind.
func awaited(identity string) (name string, ok bool) {
	kind, name, _ := strings.Cut(identity, ":")
	if kind == AskKind {
		return identity, true
	}
	name, _, _ = strings.Cut(name, "[") // the key of ForKey
	return name, kind == AwaitKind
}

// Function is the name of step 0 in the definition of a flow.
const Function = "function"

// Operation is the name of the step in the definition of an operation. Operations with the same
// policy and limits share a definition, and all operations of a workflow share a queue.
const Operation = "operation"

// SkipKind is the kind, in the identity of an operation, of those that only say that the function
// has left out an operation of that name. A retry of the run forgets them.
const SkipKind = "skip"

// OpName returns the name of an operation with this identity, as it is shown: with its key or
// index, and without its kind.
func OpName(identity string) string {
	_, name, _ := strings.Cut(identity, ":")
	return name
}
