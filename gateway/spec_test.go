package gateway

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

func TestFill(t *testing.T) {
	for _, tt := range []struct{ preset, base, format, header, scheme, posts, policy string }{
		{OpenAI, "https://api.openai.com", "openai", "Authorization", "Bearer", PostsAnswered, providerPolicy},
		{Anthropic, "https://api.anthropic.com", "anthropic", "X-Api-Key", "", PostsAnswered, providerPolicy},
		{Gemini, "https://generativelanguage.googleapis.com", "gemini", "X-Goog-Api-Key", "", PostsAnswered, providerPolicy},
		{Generic, "", "", "Authorization", "Bearer", PostsNever, genericPolicy},
	} {
		s := Spec{Name: "it", Preset: tt.preset}.Fill()
		base := ""
		if s.BaseURL != nil {
			base = s.BaseURL.String()
		}
		want, err := retry.Parse(tt.policy)
		if err != nil {
			t.Fatal(err)
		}
		if base != tt.base || s.Format != tt.format || s.AuthHeader != tt.header || s.AuthScheme != tt.scheme || s.RetryPosts != tt.posts || s.Policy != want {
			t.Errorf("%s: %+v", tt.preset, s)
		}
		if s.Breaker != breaker.Provider() || s.Queue != 1000 || s.FallbackAfter != 2 || s.StreamHold != 10*time.Second || s.StreamIdle != 5*time.Minute || s.MaxBody != 64<<20 {
			t.Errorf("%s: %+v", tt.preset, s)
		}
		if err := s.Validate(); (err != nil) != (tt.preset == Generic) {
			t.Errorf("%s: Validate = %v", tt.preset, err)
		}
		if len(Presets) != len(presets) || !slices.Contains(Presets, tt.preset) {
			t.Errorf("%s is not among %v", tt.preset, Presets)
		}
	}
}

func TestFillKeepsWhatIsSaid(t *testing.T) {
	said := Spec{
		Name: "it", Preset: OpenAI, BaseURL: mustURL(t, "http://x"), AuthHeader: "X-Key", Policy: policy(t, quick), RetryPosts: PostsNever,
		Queue: 3, Breaker: breaker.Default(), FallbackAfter: 1, StreamHold: -1, StreamIdle: -1, MaxBody: -1,
	}
	s := said.Fill()
	if s.BaseURL.Host != "x" || s.AuthHeader != "X-Key" || s.AuthScheme != "" || s.Policy != said.Policy || s.RetryPosts != PostsNever ||
		s.Queue != 3 || s.Breaker != breaker.Default() || s.FallbackAfter != 1 || s.StreamHold != -1 || s.StreamIdle != -1 || s.MaxBody != -1 {
		t.Errorf("%+v", s)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for _, tt := range []struct {
		field, word string
		change      func(*Spec)
	}{
		{"", "the name is not", func(s *Spec) { s.Name = "Not A Name" }},
		{"preset", `"odd" is none of openai`, func(s *Spec) { s.Preset = "odd" }},
		{"format", `"gemini" is not the format of the preset openai`, func(s *Spec) { s.Format = Gemini }},
		{"base-url", "is missing", func(s *Spec) { s.BaseURL = nil }},
		{"base-url", "does not start with", func(s *Spec) { s.BaseURL = mustURL(t, "ftp://x") }},
		{"base-url", "has no host", func(s *Spec) { s.BaseURL = mustURL(t, "http:///x") }},
		{"base-url", "has a user", func(s *Spec) { s.BaseURL = mustURL(t, "http://me:secret@x") }},
		{"base-url", "more than a path", func(s *Spec) { s.BaseURL = mustURL(t, "http://x?key=secret") }},
		{"auth", "two keys", func(s *Spec) { s.Keys = append(s.Keys, s.Keys[0]) }},
		{"auth", "is empty", func(s *Spec) { s.Keys[0].Value = NewSecret("") }},
		{"auth", "can't be sent in a header", func(s *Spec) { s.Keys[0].Value = NewSecret("secret\n") }},
		{"auth", "can't have keys", func(s *Spec) { s.Keyless = true }},
		{"auth", "at most 64", func(s *Spec) { s.Keys = make([]Key, 65) }},
		{"auth-header", "not the name of a header", func(s *Spec) { s.AuthHeader = "a b" }},
		{"auth-scheme", "not the name of a scheme", func(s *Spec) { s.AuthScheme = "a b" }},
		{"headers", "set by the HTTP client", func(s *Spec) { s.Headers = []Header{{"content-length", NewSecret("1")}} }},
		{"headers", "can't be sent in a header", func(s *Spec) { s.Headers = []Header{{"X-A", NewSecret("secret\r\nX-B: c")}} }},
		{"policy", "attempts", func(s *Spec) { s.Policy.Attempts = -5 }},
		{"policy", "reset-after", func(s *Spec) { s.Policy.ResetAfter = time.Minute }},
		{"retry-posts", "none of never", func(s *Spec) { s.RetryPosts = "sometimes" }},
		{"repeatable", "not a method and a path", func(s *Spec) { s.Repeatable = []Route{{"post", "x"}} }},
		{"rate.requests", "events", func(s *Spec) { s.Rate = limit.Frequency{Events: -1, Per: time.Second} }},
		{"rate.burst", "requires rate.requests", func(s *Spec) { s.Burst = 2 }},
		{"rate.concurrent", "negative", func(s *Spec) { s.Concurrent = -1 }},
		{"rate.queue", "below 1", func(s *Spec) { s.Queue = 0 }},
		{"stream.hold", "negative", func(s *Spec) { s.StreamHold = -2 }},
		{"stream.idle", "negative", func(s *Spec) { s.StreamIdle = -2 }},
		{"max-body", "negative", func(s *Spec) { s.MaxBody = -2 }},
		{"priority", "priority", func(s *Spec) { s.Priority = 9 }},
		{"breaker", "failure-rate", func(s *Spec) { s.Breaker.FailureRate = 3 }},
		{"breaker.open-for", "negative", func(s *Spec) { s.OpenFor = -1 }},
		{"fallback-after", "below 1", func(s *Spec) { s.FallbackAfter = 0 }},
	} {
		s := spec(t, "it", OpenAI, "http://localhost:1")
		s.Keys = slices.Clone(s.Keys)
		tt.change(&s)
		err := s.Validate()
		field, ok := errors.AsType[*FieldError](err)
		if !ok || field.Field != tt.field || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: Validate = %v, want %q", tt.field, err, tt.word)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v tells the secret", tt.field, err)
		}
	}
}

func TestFallbacksAreChecked(t *testing.T) {
	at := "http://localhost:1"
	for _, tt := range []struct {
		name  string
		specs []Spec
		want  []string
	}{
		{"each for the other", []Spec{spec(t, "a", OpenAI, at, fallback("b")), spec(t, "b", OpenAI, at, fallback("a"))}, nil},
		{"an unknown one, and itself, and one twice", []Spec{spec(t, "a", OpenAI, at, fallback("x", "a", "b", "b")), spec(t, "b", OpenAI, at)},
			[]string{`no provider "x"`, `"a" can't take over from itself`, `"b" is listed twice`}},
		{"another language", []Spec{spec(t, "a", OpenAI, at, fallback("b")), spec(t, "b", Anthropic, at)}, []string{`"a" has the format openai and "b" has the format anthropic`}},
		{"the same language by another preset", []Spec{spec(t, "a", OpenAI, at, fallback("b")), spec(t, "b", Generic, at, func(s *Spec) { s.Format = OpenAI })}, nil},
		{"an unknown language", []Spec{spec(t, "a", OpenAI, at, fallback("b")), spec(t, "b", Generic, at, func(s *Spec) { s.Format = "" })}, []string{`format of "b" is not known`}},
		{"no credentials", []Spec{spec(t, "a", OpenAI, at, fallback("b")), spec(t, "b", OpenAI, at, func(s *Spec) { s.Keys = nil })}, []string{`"b" has no credentials`}},
		{"needs no credentials", []Spec{spec(t, "a", OpenAI, at, fallback("b")), spec(t, "b", OpenAI, at, func(s *Spec) { s.Keys, s.Keyless = nil, true })}, nil},
		{"two of a name", []Spec{spec(t, "a", OpenAI, at), spec(t, "a", OpenAI, at)}, []string{"the name is used twice"}},
	} {
		err := ValidateAll(tt.specs)
		if (err == nil) != (len(tt.want) == 0) {
			t.Errorf("%s: ValidateAll = %v", tt.name, err)
		}
		for _, word := range tt.want {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: ValidateAll = %v, want %q", tt.name, err, word)
			}
		}
	}
}

func TestFillTwiceIsFillOnce(t *testing.T) {
	for _, preset := range Presets {
		for _, s := range []Spec{
			{Name: "it", Preset: preset, BaseURL: mustURL(t, "http://x")},
			{Name: "it", Preset: preset, BaseURL: mustURL(t, "http://x"), AuthHeader: "X-Key", StreamHold: -1, StreamIdle: -1, MaxBody: -1},
		} {
			once := s.Fill()
			if twice := once.Fill(); !reflect.DeepEqual(once, twice) {
				t.Errorf("Fill() = %+v, then %+v", once, twice)
			}
		}
	}
}

// New fills in the defaults and returns all problems of the specs.
func TestNewFillsAndValidates(t *testing.T) {
	t.Parallel()
	specs := []Spec{{Name: "it", Preset: Anthropic}}
	g, err := New(specs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s := g.table.Load().providers["it"].spec; s.Queue != defaultQueue || s.StreamIdle != defaultIdle || s.BaseURL == nil {
		t.Errorf("the spec is %+v", s)
	}
	if specs[0].BaseURL != nil || specs[0].Queue != 0 {
		t.Errorf("New changed its argument: %+v", specs[0])
	}
	_, err = New([]Spec{{Name: "one", Preset: Generic, Queue: -1}, {Name: "two", Preset: "other"}, {}}, Options{})
	for _, want := range []string{`provider "one": base-url: is missing`, `provider "one": rate.queue: -1 is below 1`, `provider "two": preset: "other" is none of`, `provider "": the name is not`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want it to say %s", err, want)
		}
	}
	if field, ok := errors.AsType[*FieldError](err); !ok || field.Provider != "one" {
		t.Errorf("New() = %v, want a FieldError", err)
	}
}
