package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const rounds = `date: 2026-01-02
module: example.com/peer v1.2.3
goos: linux
goarch: amd64
cpu: A Processor
BenchmarkDo/peer=hand-written-2   	 100	 11.0 ns/op	 10.0 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkDo/peer=tideover-2       	 100	 12.0 ns/op	 11.0 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkGiveUp/peer=hand-written-2	 100	 11.0 ns/op	 10.0 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkGiveUp/peer=tideover-2   	 100	 500 ns/op	 460 cpu-ns/op	 64 B/op	 1 allocs/op
PASS
BenchmarkDo/peer=hand-written-2   	 100	 22.0 ns/op	 20.0 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkDo/peer=tideover-2       	 100	 26.0 ns/op	 24.0 cpu-ns/op	 0 B/op	 0 allocs/op
`

func TestPage(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	const old = "# Page\n\n<!-- begin goals -->\nold\n<!-- end goals -->\n\nBecause.\n\n<!-- begin measurements -->\n<!-- end measurements -->\n"
	if err := os.WriteFile(page, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(strings.NewReader(rounds), new(strings.Builder), page); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2026-01-02", "linux/amd64, A Processor, 2 rounds", "example.com/peer v1.2.3",
		"| a | Do, success at once | ≤ 1.15 ×, 0 allocs | 1.15 ×, 0 allocs | yes |",
		"| k | give up after 4 attempts | ≤ 14 ×, 1 alloc | 46.00 ×, 1 alloc | **no** |",
		"# Page\n\n<!-- begin goals -->\n- 2026", "<!-- end goals -->\n\nBecause.\n\n<!-- begin measurements -->\n\n### Do\n",
		"| **tideover** | 1.15 | 17.5 | 19.0 | 0 | 0 |",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}

func TestInputThatIsNoMeasurementIsAnError(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "PASS\n", "BenchmarkDo/peer=x-2 garbage\n"} {
		if err := run(strings.NewReader(in), new(strings.Builder), ""); err == nil {
			t.Errorf("run(%q): no error", in)
		}
	}
}
