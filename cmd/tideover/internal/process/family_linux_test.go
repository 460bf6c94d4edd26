package process

import (
	"os"
	"testing"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]relative{
		"42 (sh) S 7 40 40 0 -1":          {42, 7, 40, 40},
		"42 (a) Z 1 (b) c) R 7 40 40 0":   {42, 7, 40, 40},
		"42 (line\nbreak) S 7 40 40 0 -1": {42, 7, 40, 40},
	} {
		if got, ok := parseStat(42, []byte(text)); !ok || got != want {
			t.Errorf("parseStat(%q) = %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "42", "42 (sh) Z 7 40 40", "42 (sh) X 7 40", "42 (sh) S", "42 (sh) S x y z"} {
		if got, ok := parseStat(42, []byte(text)); ok {
			t.Errorf("parseStat(%q) = %v, want nothing", text, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sh) S 7 40 40 0 -1"))
	f.Fuzz(func(_ *testing.T, data []byte) { parseStat(1, data) })
}

func TestProcessesHasUs(t *testing.T) {
	t.Parallel()
	for _, p := range processes() {
		if p.pid == os.Getpid() && p.parent == os.Getppid() {
			return
		}
	}
	t.Error("we are not among the processes")
}
