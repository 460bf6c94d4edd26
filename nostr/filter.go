package nostr

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
	Until   int64               // seconds since 1970; 0 means any time
	Limit   int                 // largest number of stored events, the newest; 0 means all
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
	add := func(set bool, name string, value any) {
		if !set {
			return
		}
		text, _ := json.Marshal(value) // strings and numbers
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", name, text)
	}
	add(f.IDs != nil, "ids", f.IDs)
	add(f.Authors != nil, "authors", f.Authors)
	add(f.Kinds != nil, "kinds", f.Kinds)
	for _, name := range slices.Sorted(maps.Keys(f.Tags)) {
		add(true, "#"+name, f.Tags[name])
	}
	add(f.Since != 0, "since", f.Since)
	add(f.Until != 0, "until", f.Until)
	add(f.Limit != 0, "limit", f.Limit)
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
		return fmt.Errorf("filter: null: want an object")
	}
	var out Filter
	known := map[string]any{
		"ids": &out.IDs, "authors": &out.Authors, "kinds": &out.Kinds, "since": &out.Since, "until": &out.Until, "limit": &out.Limit,
	}
	for name, text := range fields {
		into, values := known[name], []string(nil)
		tag, isTag := strings.CutPrefix(name, "#")
		if isTag && isLetter(tag) {
			into = &values
		}
		if into == nil {
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
