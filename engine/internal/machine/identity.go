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

// The kinds of operations. They are stored in the identities of operations.
const (
	DoKind       = "do"
	ItemKind     = "item" // an item of a map
	MapKind      = "map"
	SleepKind    = "sleep"
	AwaitKind    = "await" // the name of the operation, without a key, is that of the signal
	AskKind      = "ask"   // the signal has the identity of the operation as its name, and answers its question
	ChildKind    = "child"
	ChildrenKind = "children"
	NowKind      = "now"
	RandomKind   = "random"
	SkipKind     = "skip"   // the function has left out an operation of that name
	UndoKind     = "undo"   // it undoes the operation of that name
	FormerKind   = "former" // of a result only: the former child of the operation of that name; Flow.Results does not return it
)

// OpKind says what the operations of a kind are.
type OpKind struct {
	Name       string
	Waits      Waits  // what an operation, or each of its items, waits for
	Items      string // kind of the items of an operation; "" for none
	IsItem     bool   // it may be an item of another one: then its name ends with an index, see CutIndex
	IsShown    bool   // its result is shown
	CanUndo    bool   // it can be undone
	IsOptional bool   // the function need not call it again, and a retry of the run forgets it
}

// opKinds has the most frequent kinds first.
var opKinds = [...]OpKind{
	{Name: DoKind, Waits: ForAttempts, IsShown: true, CanUndo: true},
	{Name: ItemKind, Waits: ForAttempts, IsItem: true, IsShown: true, CanUndo: true},
	{Name: ChildKind, Waits: ForChild, IsItem: true, IsShown: true},
	{Name: AwaitKind, Waits: ForSignal, IsShown: true},
	{Name: AskKind, Waits: ForSignal, IsShown: true},
	{Name: SleepKind, Waits: ForTime},
	{Name: MapKind, Waits: ForAttempts, Items: ItemKind},
	{Name: ChildrenKind, Waits: ForChild, Items: ChildKind},
	{Name: NowKind, IsShown: true},
	{Name: RandomKind, IsShown: true},
	{Name: SkipKind, IsOptional: true},
	{Name: UndoKind, Waits: ForAttempts, IsShown: true, IsOptional: true},
	{}, // others
}

// OpKindOf returns the kind of the operation with this identity, which may be the name of the kind only.
func OpKindOf(identity string) *OpKind {
	for i := range opKinds {
		k := &opKinds[i]
		if n := len(k.Name); len(identity) >= n && (len(identity) == n || identity[n] == ':') && identity[:n] == k.Name {
			return k
		}
	}
	return &opKinds[len(opKinds)-1]
}

// Waits says what an operation waits for before it ends.
type Waits uint8

const (
	ForNothing  Waits = iota // it ends with its call
	ForAttempts              // it has a definition, with their policy and limits
	ForTime
	ForSignal // or for a time, if that comes first
	ForChild
)

// IsMovable reports whether a user may end or move the wait.
func (w Waits) IsMovable() bool { return w == ForAttempts || w == ForTime }

func isUndo(identity string) bool { return strings.HasPrefix(identity, UndoKind+":") }

func isChildOp(identity string) bool { return strings.HasPrefix(identity, ChildKind+":") }

func isQuestion(identity string) bool { return strings.HasPrefix(identity, AskKind+":") }

// awaited returns the name of the signal for which the operation with this identity waits; ok is
// false if the operation is of another kind.
func awaited(identity string) (name string, ok bool) {
	switch k := OpKindOf(identity); {
	case k.Waits != ForSignal:
		return "", false
	case k.Name == AskKind:
		return identity, true
	}
	return BaseName(OpName(identity)), true
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

// Function is the name of step 0 in the definition of a flow.
const Function = "function"

// Operation is the name of the step in the definition of an operation. Operations with the same
// policy and limits share a definition, and all operations of a workflow share a queue.
const Operation = "operation"

// OpName returns the name of an operation with this identity, as it is shown: with its key or
// index, and without its kind.
func OpName(identity string) string {
	_, name, _ := strings.Cut(identity, ":")
	return name
}
