package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const measured = `date: 2026-01-02
go: go1.26.0
cores: 2
connections: 64
rate: 1600
pinning: Pinned.
load: 0.10
module: example.com/peer v1.2.3
{"scenario":"get","system":"direct","values":{"get/s":900,"failed":0}}
{"scenario":"get","system":"tuned","values":{"get/s":100,"get µs":50,"post µs":50,"steady µs":50,"failed":0}}
{"scenario":"get","system":"caddy","values":{"get/s":60,"failed":0}}
{"scenario":"get","system":"tideover","values":{"get/s":95,"get µs":55,"post µs":60,"steady µs":100,"failed":2}}
{"scenario":"steady","system":"direct","values":{"steady p50":0.1,"steady p99":1}}
{"scenario":"steady","system":"caddy","values":{"steady p50":0.3,"steady p99":3}}
{"scenario":"steady","system":"tideover","values":{"steady p50":0.4,"steady p99":4,"failed":1}}
{"scenario":"get","system":"tuned","values":{"get/s":200}}
{"scenario":"get","system":"caddy","values":{"get/s":120}}
{"scenario":"get","system":"tideover","values":{"get/s":150}}
`

func TestPage(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	const old = "# Page\n\n<!-- begin measurements -->\nold\n<!-- end measurements -->\n\nBecause.\n"
	if err := os.WriteFile(page, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(strings.NewReader(measured), new(strings.Builder), page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2026-01-02, go1.26.0, 2 cores", "example.com/peer v1.2.3", "rounds: 0.10", "- 64 connections; at a steady rate, 1600 requests per s\n- Pinned.\n",
		"| GET, throughput beside the tuned proxy | ≥ 0.9 × | 0.85 × | **no** |",
		"| the same by processor time | ≥ 0.9 × | 0.91 × | yes |",
		"| GET, throughput beside Caddy | ≥ 1.3 × | 1.42 × | yes |",
		"| latency at a steady rate, p50, more than direct | ≤ 1 ms | 0.30 ms | yes |",
		"| latency at a steady rate, p99, beside Caddy | ≤ 1 × | 1.33 × | **no** |",
		"| more than direct, p50 / p99, ms | – | – | 0.20 / 2.00 | 0.30 / 3.00 |",
		"| processor time, GET / POST / steady | – | 1.00 / 1.00 / 1.00 | – | 1.10 / 1.20 / 2.00 |",
		"| failed | 0 | 0 | 0 | 3 |",
		"# Page\n\n<!-- begin measurements -->\n- 2026", "<!-- end measurements -->\n\nBecause.\n",
	} {
		if n := strings.Count(string(text), want); n != 1 {
			t.Errorf("the page has %q %d times, want once:\n%s", want, n, text)
		}
	}
	if strings.Contains(string(text), "POST of 1 KiB, throughput") {
		t.Errorf("the page has a goal that was not measured:\n%s", text)
	}
}

func TestInputThatIsNoMeasurementIsAnError(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "date: today\n", "{garbage\n", "PASS\n"} {
		if err := run(strings.NewReader(in), new(strings.Builder), ""); err == nil {
			t.Errorf("run(%q): no error", in)
		}
	}
}
