package nostr

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Filter selects events. A nil or zero field does not restrict them; an event
// must match all other fields.
type Filter struct {
	IDs     []string
	Authors []string
	Kinds   []int
	Tags    map[string][]string // by the tag's one-letter name, without "#"
	Since   int64               // seconds since 1970; 0 means any time
	Until   int64               // the same
	Limit   int                 // of stored events, the newest; 0 means all
}

// Matches reports whether the event matches. It ignores Limit.
func (f *Filter) Matches(e *Event) bool {
	switch {
	case f.IDs != nil && !slices.Contains(f.IDs, e.ID),
		f.Authors != nil && !slices.Contains(f.Authors, e.PubKey),
		f.Kinds != nil && !slices.Contains(f.Kinds, e.Kind),
		f.Since != 0 && e.CreatedAt < f.Since,
		f.Until != 0 && e.CreatedAt > f.Until:
		return false
	}
	for name, values := range f.Tags {
		if !slices.ContainsFunc(e.Tags, func(t Tag) bool {
			return t.Name() == name && len(t) > 1 && slices.Contains(values, t[1])
		}) {
			return false
		}
	}
	return true
}

// MarshalJSON returns the filter in the JSON form of NIP-01.
func (f Filter) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	add := func(name string, value any) {
		text, _ := json.Marshal(value) // strings and numbers
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(name))
		b.WriteByte(':')
		b.Write(text)
	}
	if f.IDs != nil {
		add("ids", f.IDs)
	}
	if f.Authors != nil {
		add("authors", f.Authors)
	}
	if f.Kinds != nil {
		add("kinds", f.Kinds)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Tags)) {
		add("#"+name, f.Tags[name])
	}
	if f.Since != 0 {
		add("since", f.Since)
	}
	if f.Until != 0 {
		add("until", f.Until)
	}
	if f.Limit != 0 {
		add("limit", f.Limit)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// UnmarshalJSON parses a filter. It rejects unknown fields: ignoring a
// restriction would return more events than were requested.
func (f *Filter) UnmarshalJSON(data []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	if fields == nil {
		return fmt.Errorf("filter: null")
	}
	var out Filter
	for name, text := range fields {
		var into any
		var values []string
		tag, isTag := strings.CutPrefix(name, "#")
		switch {
		case name == "ids":
			into = &out.IDs
		case name == "authors":
			into = &out.Authors
		case name == "kinds":
			into = &out.Kinds
		case name == "since":
			into = &out.Since
		case name == "until":
			into = &out.Until
		case name == "limit":
			into = &out.Limit
		case isTag && isLetter(tag):
			into = &values
		default:
			return fmt.Errorf("filter: %q is not known", name)
		}
		if string(text) == "null" {
			return fmt.Errorf("filter: %s: null", name)
		}
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("filter: %s: %w", name, err)
		}
		if isTag {
			if out.Tags == nil {
				out.Tags = map[string][]string{}
			}
			out.Tags[tag] = values
		}
	}
	*f = out
	return nil
}

func isLetter(s string) bool {
	return len(s) == 1 && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z')
}
