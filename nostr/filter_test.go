package nostr_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/tideover/tideover/nostr"
)

func TestFilterMatches(t *testing.T) {
	t.Parallel()
	e := &nostr.Event{
		ID: "id", PubKey: "author", Kind: 5900, CreatedAt: 100,
		Tags: nostr.Tags{{"p", "us"}, {"p", "them"}, {"e"}, {"t", "x", "y"}},
	}
	for name, test := range map[string]struct {
		f    nostr.Filter
		want bool
	}{
		"an empty filter wants all":               {nostr.Filter{}, true},
		"an empty list wants none":                {nostr.Filter{IDs: []string{}}, false},
		"by id":                                   {nostr.Filter{IDs: []string{"a", "id"}}, true},
		"by the beginning of an id is not enough": {nostr.Filter{IDs: []string{"i"}}, false},
		"by author":                               {nostr.Filter{Authors: []string{"author"}}, true},
		"by another author":                       {nostr.Filter{Authors: []string{"me"}}, false},
		"by kind":                                 {nostr.Filter{Kinds: []int{1, 5900}}, true},
		"by another kind":                         {nostr.Filter{Kinds: []int{1}}, false},
		"by the second tag of a name":             {nostr.Filter{Tags: map[string][]string{"p": {"them"}}}, true},
		"by one of two values":                    {nostr.Filter{Tags: map[string][]string{"p": {"x", "us"}}}, true},
		"by a second value of a tag it is not":    {nostr.Filter{Tags: map[string][]string{"t": {"y"}}}, false},
		"by two tags of which one is missing":     {nostr.Filter{Tags: map[string][]string{"p": {"us"}, "e": {"1"}}}, false},
		"by a tag without a value":                {nostr.Filter{Tags: map[string][]string{"e": {""}}}, false},
		"since is included":                       {nostr.Filter{Since: 100}, true},
		"too old":                                 {nostr.Filter{Since: 101}, false},
		"until is included":                       {nostr.Filter{Until: 100}, true},
		"too new":                                 {nostr.Filter{Until: 99}, false},
		"limit is not asked":                      {nostr.Filter{Limit: 1}, true},
		"all but one":                             {nostr.Filter{IDs: []string{"id"}, Kinds: []int{5900}, Since: 200}, false},
	} {
		if got := test.f.Matches(e); got != test.want {
			t.Errorf("%s: Matches: %t, want %t", name, got, test.want)
		}
	}
}

func TestFilterAsJSON(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]nostr.Filter{
		`{}`:         {},
		`{"ids":[]}`: {IDs: []string{}},
		`{"ids":["a"],"authors":["b"],"kinds":[1,2],"#e":["<&>"],"#p":[],"since":1,"until":2,"limit":3}`: {
			IDs: []string{"a"}, Authors: []string{"b"}, Kinds: []int{1, 2}, Since: 1, Until: 2, Limit: 3,
			Tags: map[string][]string{"p": {}, "e": {"<&>"}},
		},
	} {
		text, err := f.MarshalJSON()
		var plain, wanted any
		_, _ = json.Unmarshal(text, &plain), json.Unmarshal([]byte(want), &wanted)
		if err != nil || !reflect.DeepEqual(plain, wanted) {
			t.Errorf("MarshalJSON: %s, %v, want %s", text, err, want)
		}
		var back nostr.Filter
		if err := json.Unmarshal([]byte(want), &back); err != nil || !reflect.DeepEqual(back, f) {
			t.Errorf("UnmarshalJSON(%s): %+v, %v, want %+v", want, back, err, f)
		}
	}
}

func TestFiltersThatAreNot(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`null`, `[]`, `{"search":"x"}`, `{"ids":null}`, `{"#p":null}`, `{"ids":[1]}`, `{"kinds":["1"]}`, `{"since":"1"}`, `{"since":1.5}`,
		`{"#":["x"]}`, `{"#pp":["x"]}`, `{"#1":["x"]}`, `{"#\u0007":["x"]}`, `{"p":["x"]}`, `{"limit":null}`,
	} {
		var f nostr.Filter
		if err := json.Unmarshal([]byte(text), &f); err == nil {
			t.Errorf("UnmarshalJSON(%s): %+v, want an error", text, f)
		}
	}
}

func ExampleFilter() {
	f := nostr.Filter{Kinds: []int{5900}, Tags: map[string][]string{"p": {"7e7e"}}}
	text, _ := json.Marshal(f)
	fmt.Println(string(text), f.Matches(&nostr.Event{Kind: 5900, Tags: nostr.Tags{{"p", "7e7e"}}}))
	// Output: {"kinds":[5900],"#p":["7e7e"]} true
}
