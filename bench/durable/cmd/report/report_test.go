package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const peers = `date: 2026-01-02
go: go1.26.0
load: 0.10
module: example.com/peer v1.2.3
{"scenario":"throughput","system":"tideover","values":{"tasks/s":100,"start p50":0.4,"start p99":6}}
{"scenario":"throughput","system":"tideover-flow","values":{"tasks/s":85}}
{"scenario":"throughput","system":"river","values":{"tasks/s":10}}
{"scenario":"lateness","system":"tideover","values":{"late p50":0.5,"late p99":2}}
{"scenario":"throughput","system":"tideover","values":{"tasks/s":240,"start p50":0.4,"start p99":6}}
{"scenario":"throughput","system":"river","values":{"tasks/s":20}}
`

const many = `date: 2026-01-03
{"scenario":"waiting","system":"delayed 1000000","values":{"VmRSS filled":700,"VmHWM filled":1750,"disk":800,"start p99":3,"empty: start p99":2}}
`

func TestPage(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	const old = "# Page\n\n<!-- begin durable -->\n<!-- end durable -->\n\nBecause.\n\n<!-- begin waiting -->\n<!-- end waiting -->\n"
	if err := os.WriteFile(page, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	// Each command replaces only its own section of the page and keeps the other one.
	for _, s := range []struct{ section, in string }{{"durable", many}, {"waiting", many}, {"durable", peers}} {
		if err := run(strings.NewReader(s.in), new(strings.Builder), s.section, page); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2026-01-02, go1.26.0", "2026-01-03", "example.com/peer v1.2.3", "rounds: 0.10",
		"| start and complete, beside River | ≥ 10 × | 11.0 × | yes |",
		"| a flow of one operation, beside a workflow of one step | ≥ 0.8 × | 0.85 × | yes |",
		"| start, p99 | ≤ 5 ms | 6.00 ms | **no** |",
		"| late, p50 / p99, ms | 0.50 / 2.00 | – | – |",
		"| delayed 1000000: resident, when all wait | ≤ 600 MB | 700 MB | **no** |",
		"| delayed 1000000: its peak, beside that | ≤ 2 × | 2.50 × | **no** |",
		"| delayed 1000000: start of new work, p99, beside an empty engine | ≤ 2 × | 1.50 × | yes |",
		"# Page\n\n<!-- begin durable -->\n- 2026", "<!-- end durable -->\n\nBecause.\n\n<!-- begin waiting -->\n- 2026",
	} {
		if n := strings.Count(string(text), want); n != 1 {
			t.Errorf("the page has %q %d times, want once:\n%s", want, n, text)
		}
	}
}

func TestInputThatIsNoMeasurementIsAnError(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "date: today\n", "{garbage\n", "PASS\n"} {
		if err := run(strings.NewReader(in), new(strings.Builder), "durable", ""); err == nil {
			t.Errorf("run(%q): no error", in)
		}
	}
}
