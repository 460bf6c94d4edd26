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
		"how to cancel a run":  "/docs/commands#commands-for-a-server",
		"idempotency-key":      "/docs/",
		"retry budget":         "/docs/",
		"  RETRY   Budget ":    "/docs/",
		"--policy":             "/docs/",
		"tideover watch":       "/docs/",
		"circuit breaker":      "/docs/library#add-a-circuit-breaker-a-budget-and-limits",
		"decisions":            "/docs/adr#decisions",
		"one pure decision":    "/docs/adr#decisions", // before the decision itself
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
	for _, query := range []string{"", "   ", "xyzzy", "how to xyzzy", "etry"} {
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

// questions are questions of users, each with the pages that answer it.
var questions = []struct{ query, pages string }{
	{"how to cancel a run", "commands"},
	{"how do I install tideover on linux", "install"},
	{"what happens after a crash of the server", "guarantees"},
	{"how can I use several API keys", "gateway-howto"},
	{"how to restore a backup", "operations"},
	{"retry a command every day at 3", "serve"},
	{"how do I get an email when a run fails", "notify"},
	{"where are my secrets stored", "security"},
	{"how long are runs kept", "operations"},
	{"how to approve a step before it runs", "yaml-recipes workflows-howto"},
	{"how do I add a server to the cluster", "cluster-howto"},
	{"which metrics does prometheus scrape", "metrics"},
	{"can I use the gateway with the openai sdk", "gateway"},
	{"how to continue claude code after the usage limit", "sessions"},
	{"what is a dead letter", "glossary workflows-howto"},
	{"how do I set up https", "tls"},
	{"retry-after header ignored", "http policy"},
	{"how to test my client against a slow server", "chaos"},
	{"difference between temporal and tideover", "comparison"},
	{"how do I undo a step that was done", "workflows-howto yaml-recipes"},
	{"upgrade without downtime", "operations cluster-howto"},
	{"start a run from curl", "api serve"},
	{"write a log to stdout of a command", "exec"},
	{"how to limit requests per minute", "gateway-howto"},
	{"pay for a job with nostr", "nip90"},
	{"which jitter is best", "science"},
	{"stop the server gracefully", "operations"},

	// Written after the ranking.
	{"how to see the output of a run", "commands serve-file"},
	{"rotate api keys without restart", "gateway-howto operations security"},
	{"rate limit 429 handling in go", "http library"},
	{"is exactly once guaranteed", "guarantees"},
	{"how do I run tideover in docker", "install"},
	{"pause a schedule", "commands page operations serve-file"},
	{"what does jitter=full mean", "policy"},
	{"send a slack message on failure", "notify"},
	{"how many runs per second", "durable-benchmarks measurements"},
	{"sleep for days in a workflow", "yaml-recipes workflows workflows-howto workflows-reference"},
	{"pass output of one step to the next", "templates serve-file yaml-recipes"},
	{"read only token for the page", "security tls"},
	{"simulate an outage", "sim"},
	{"change the port", "keys tls serve"},
	{"why was my request not retried", "http faq gateway-howto"},
	{"replace cron", "recipes"},
	{"nats connection lost", "cluster-reference cluster-howto"},
	{"grpc through the gateway", "gateway-howto gateway-reference"},
	{"how do I debug a stuck run", "operations workflows-howto commands faq"},
	{"workers on multiple machines", "cluster"},
	{"webhook with signature", "notify"},
	{"json schema for the config file", "serve-file keys"},
	{"timeout of a step", "serve-file policy"},
	{"run two steps in parallel", "serve-file yaml-recipes workflows-howto"},
	{"delete old runs", "operations commands"},
	{"use anthropic and openai as fallback", "gateway gateway-howto"},
	{"does it work on windows", "install exec"},
	{"benchmark against temporal", "comparison durable-benchmarks benchmarks"},
	{"what is a flow", "workflows glossary workflows-reference"},
}

// TestQuestions requires a page that answers the question among the first three results.
func TestQuestions(t *testing.T) {
	t.Parallel()
	s := loadTest(t, false)
	for _, q := range questions {
		found := s.search(q.query)
		found = found[:min(len(found), 3)]
		if !slices.ContainsFunc(found, func(r result) bool { return slices.Contains(strings.Fields(q.pages), r.section.page.Path) }) {
			t.Errorf("search(%q) does not find %s:", q.query, q.pages)
			for _, r := range found {
				t.Logf("%5d %s", r.score, r.URL)
			}
		}
	}
}

func TestDecisionsCountHalf(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"README.md":                {Data: []byte("# First wolf\n\nhas a wolf\n")},
		decisions + "README.md":    {Data: []byte("# Decisions\n\nabout a wolf\n\n[wolf](0001-wolf.md)\n")},
		decisions + "0001-wolf.md": {Data: []byte("# The wolf\n\nwolf or wolf\n")},
	}
	s, err := load(files, []group{{"Start", []entry{{decisions + "README.md", ""}, {"README.md", ""}}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range s.search("wolf") {
		got = append(got, r.URL)
	}
	want := []string{"/docs#first-wolf", "/docs/adr/0001-wolf#the-wolf", "/docs/adr#decisions"}
	if !slices.Equal(got, want) {
		t.Errorf("search(wolf) = %v, want %v", got, want)
	}
	index, err := indexScript(s)
	if n := strings.Count(string(index), `"seldom":true`); err != nil || n != 1 {
		t.Errorf("the index for the script marks %d sections, want 1: %v", n, err)
	}
}

func TestOtherWordsBelongToPages(t *testing.T) {
	t.Parallel()
	s := loadTest(t, false)
	for file, words := range otherWords {
		p := s.byFile[file]
		if p == nil {
			t.Errorf("there is no page %s", file)
			continue
		}
		for _, w := range strings.Fields(words) {
			if title := strings.ToLower(p.Title + " " + p.Label); slices.Contains(strings.Fields(title), w) {
				t.Errorf("%s has %q in its title already", file, w)
			}
		}
	}
}

// weighed returns the terms of a query, all with the same weight.
func weighed(query string) []term {
	list := termsOf(query)
	for i := range list {
		list[i].weight = 1
	}
	return list
}

func TestExcerpt(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("before ", 30) + "the Wolf howls " + strings.Repeat("after ", 60)
	for _, c := range []struct{ text, query, want string }{
		{"The Wolf and the wolfhound", "wolf", "The [Wolf] and the [wolfhound]"},
		{"werewolf", "wolf", "werewolf"},
		{"a b", "b a", "a [b]"},
		{"retrying", "re retry", "[retrying]"},
		{long, "wolf", "… before before before before before before before the [Wolf] howls after"},
		{"", "x", ""},
	} {
		var b strings.Builder
		for _, p := range excerpt(c.text, weighed(c.query)) {
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
		for _, p := range excerpt(text, weighed(query)) {
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
