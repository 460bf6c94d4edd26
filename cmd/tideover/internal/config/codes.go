package config

import (
	"encoding/json"
	"fmt"

	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
)

// readCodes reads a list of codes, each within the limits.
func readCodes(at place, what string, least, most int) exitcode.Set {
	codes := exitcode.Set{} // an empty list is one that nothing is in, and not an absent one
	ok := at.Each(func(at place) {
		s, ok := at.Text()
		if !ok {
			return
		}
		r, err := exitcode.ParseRange(s)
		if err != nil {
			at.Bad("%v", err)
		} else if r.First < least || r.Last > most {
			at.Bad("%q: %s is from %d to %d", s, what, least, most)
		} else {
			codes = append(codes, r)
		}
	})
	if ok {
		at.Record(codes.String())
	}
	return codes
}

// jsonText returns a value as JSON, for what has no shorter form.
func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
