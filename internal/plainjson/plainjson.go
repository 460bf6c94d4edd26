// Package plainjson encodes JSON without the escapes for HTML, which make texts longer and
// harder to read.
package plainjson

import (
	"bytes"
	"encoding/json"
)

// Marshal is [json.Marshal] without the escapes of <, > and &.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
