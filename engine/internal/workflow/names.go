package workflow

import (
	"encoding/json"
	"fmt"
	"reflect"
)

const maxName = 128 // of a workflow, a step or an operation

// MaxKey is the length of the longest key of an operation, and of the longest code of an error, in bytes.
const MaxKey = 128

// CheckName returns what is wrong with the name of a workflow or step. Names are used in
// URLs, commands and files.
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("name: %q must have 1 to %d characters", name, maxName)
	}
	for _, c := range []byte(name) {
		if c >= 128 || nameCharacters[c/64]&(1<<(c%64)) == 0 {
			return fmt.Errorf("name: %q may have letters, digits, '-', '_' and '.'", name)
		}
	}
	return nil
}

// nameCharacters has a bit for each ASCII character that a name may have. Each call of an operation
// checks a name.
var nameCharacters = func() (set [2]uint64) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") {
		set[c/64] |= 1 << (c % 64)
	}
	return set
}()

// HasControl reports whether the text has a control character. It is called for the key of each operation.
func HasControl(text string) bool {
	for _, c := range []byte(text) {
		if c < ' ' {
			return true
		}
	}
	return false
}

// checkType returns an error if values of the type can't be stored as JSON. what is
// "input" or "output".
func checkType(t reflect.Type, what string) error {
	if bad := unstorable(t, map[reflect.Type]bool{}); bad != nil {
		return fmt.Errorf("%s: %v can't be stored as JSON, because it contains %v", what, t, bad)
	}
	return nil
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// unstorable returns a part of the type that encoding/json can't write; nil if there is
// none. seen has the types that were checked already.
func unstorable(t reflect.Type, seen map[reflect.Type]bool) reflect.Type {
	if seen[t] || t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return t
	case reflect.Array, reflect.Slice, reflect.Pointer, reflect.Map:
		return unstorable(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
				continue
			}
			if bad := unstorable(f.Type, seen); bad != nil {
				return bad
			}
		}
	default:
	}
	return nil
}
