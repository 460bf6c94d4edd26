package docsite

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"
)

func TestSearch(t *testing.T) {
	t.Parallel()
	s := loadTest(t, false)
	for query, want := range map[string]string{
		"install":              "/docs/install#install",
		"idempotency-key":      "/docs/",
		"retry budget":         "/docs/",
		"  RETRY   Budget ":    "/docs/",
		"--policy":             "/docs/",
		"tideover watch":       "/docs/",
		"circuit breaker":      "/docs/library#add-a-circuit-breaker-a-budget-and-limits",
		"decisions":            "/docs/adr#decisions",
		"one pure decision":    "/docs/guarantees#one-policy-one-decision", // before the decision itself
		"delay calculator":     "/docs/adr/0001-one-decision#",
		"writers that collide": "/docs/contend#writers-that-collide",

		"alert when it gives up": "/docs/notify#an-alert-when-tideover-gives-up",
		"alert gives up":         "/docs/notify#an-alert-when-tideover-gives-up",
	} {
		found := s.search(query)
		if len(found) == 0 || len(found) > maxResults || !strings.HasPrefix(found[0].URL, want) {
			t.Errorf("search(%q): %d results, the first is %v, want %s", query, len(found), found[:min(1, len(found))], want)
		}
		for _, r := range found {
			at, anchor, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL, Prefix), "/"), "#")
			if p := s.byPath[at]; p == nil || !p.anchors[anchor] {
				t.Errorf("search(%q) leads to %s", query, r.URL)
			}
		}
	}
	for _, query := range []string{"", "   ", "xyzzy", "retry xyzzy", "etry"} {
		if found := s.search(query); len(found) > 0 {
			t.Errorf("search(%q) has %d results, such as %v", query, len(found), found[0])
		}
	}
}

func TestSearchOrder(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"README.md": {Data: []byte("# First\n\nabout wolves\n\n## Wolf\n\ncunning\n\n## Other\n\nA wolf is a wolf.\n")},
		"docs/w.md": {Data: []byte("# Wolf page\n\nnothing\n\n## More\n\nwerewolf\n")},
	}
	s, err := load(files, []group{{"Start", []entry{{"README.md", ""}, {"docs/w.md", ""}}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range s.search("wolf") {
		got = append(got, r.URL)
	}
	want := []string{"/docs/w#wolf-page", "/docs#wolf", "/docs/w#more", "/docs#other"}
	if !slices.Equal(got, want) {
		t.Errorf("search(wolf) = %v, want %v", got, want)
	}
}

// Decisions are listed after all other pages, even if they match better.
func TestSearchListsDecisionsLast(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"README.md":                {Data: []byte("# First\n\nhas a wolf\n")},
		decisions + "README.md":    {Data: []byte("# Decisions\n\nabout a wolf or a wolf\n\n[wolf](0001-wolf.md)\n")},
		decisions + "0001-wolf.md": {Data: []byte("# The wolf\n\nwolf\n")},
	}
	s, err := load(files, []group{{"Start", []entry{{decisions + "README.md", ""}, {"README.md", ""}}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range s.search("wolf") {
		got = append(got, r.URL)
	}
	want := []string{"/docs/adr#decisions", "/docs#first", "/docs/adr/0001-wolf#the-wolf"}
	if !slices.Equal(got, want) {
		t.Errorf("search(wolf) = %v, want %v", got, want)
	}
	index, err := indexScript(s)
	if n := strings.Count(string(index), `"last":true`); err != nil || n != 1 {
		t.Errorf("the index for the script marks %d sections, want 1: %v", n, err)
	}
}

func TestExcerpt(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("before ", 30) + "the Wolf howls " + strings.Repeat("after ", 60)
	for _, c := range []struct{ text, query, want string }{
		{"The Wolf and the wolfhound", "wolf", "The [Wolf] and the [wolf]hound"},
		{"werewolf", "wolf", "werewolf"},
		{"a b", "b a", "[a] [b]"},
		{"retrying", "re retry", "[retry]ing"},
		{long, "wolf", "… before before before before before before before the [Wolf] howls after"},
		{"", "x", ""},
	} {
		var b strings.Builder
		for _, p := range excerpt(c.text, queryWords(c.query)) {
			if p.Marked {
				p.Text = "[" + p.Text + "]"
			}
			b.WriteString(p.Text)
		}
		if got := b.String(); got != c.want && !(len(c.text) > 200 && strings.HasPrefix(got, c.want) && strings.HasSuffix(got, "after …")) {
			t.Errorf("excerpt(%.30q, %q) = %q, want %q", c.text, c.query, got, c.want)
		}
	}
}

// FuzzExcerpt checks that an excerpt is valid UTF-8, and a part of the text.
func FuzzExcerpt(f *testing.F) {
	f.Add("The Wolf and the wolfhound", "wolf")
	f.Add(strings.Repeat("é ", 200)+"x", "x é")
	f.Add(strings.Repeat("日本", 200), "本")
	f.Add("İstanbul is", "i")
	f.Add("Ⱥ.İ x", "i") // the first letter grows in lower case, and the second shrinks
	f.Fuzz(func(t *testing.T, text, query string) {
		if !utf8.ValidString(text) || !utf8.ValidString(query) {
			t.Skip()
		}
		var b strings.Builder
		for _, p := range excerpt(text, queryWords(query)) {
			b.WriteString(p.Text)
			if !utf8.ValidString(p.Text) {
				t.Errorf("excerpt(%q, %q) has the part %q", text, query, p.Text)
			}
		}
		got := b.String()
		middle := strings.TrimSuffix(strings.TrimPrefix(got, "… "), " …")
		if !strings.Contains(strings.ToLower(text), strings.ToLower(middle)) {
			t.Errorf("excerpt(%q, %q) = %q, which is no part of it", text, query, got)
		}
	})
}
