package config

import (
	"encoding/json"
	"fmt"

	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
)

// codes reads a list of codes, each within the limits.
func (l *loader) codes(at place, what string, least, most int) exitcode.Set {
	codes := exitcode.Set{} // an empty list is one that nothing is in, and not an absent one
	ok := l.list(at, func(at place) {
		s, ok := l.scalar(at)
		if !ok {
			return
		}
		r, err := exitcode.ParseRange(s)
		if err != nil {
			l.bad(at, "%v", err)
		} else if r.First < least || r.Last > most {
			l.bad(at, "%q: %s is from %d to %d", s, what, least, most)
		} else {
			codes = append(codes, r)
		}
	})
	if ok {
		l.value(at, codes.String())
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
