package guard_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
)

//nolint:paralleltest // it changes the environment
func TestCommandsInheritAllButWhatIsOurs(t *testing.T) {
	for _, name := range []string{"TIDEOVER_TOKEN", "TIDEOVER_SERVER_LISTEN", "TIDEOVER_ENGINE_TOKEN", "TIDEOVER_GATEWAY_TOKEN", "DVM_KEY", "DVM_KEY_2", "OTHER"} {
		t.Setenv(name, "x=y")
	}
	for _, c := range []struct {
		hidden []string
		want   string
	}{
		{nil, "DVM_KEY DVM_KEY_2 OTHER"},
		{[]string{"DVM_KEY", "UNSET"}, "DVM_KEY_2 OTHER"},
	} {
		var got []string
		for _, kv := range guard.Environ(c.hidden...) {
			if name, ok := strings.CutSuffix(kv, "=x=y"); ok {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("Environ(%q) has %s, want %s", c.hidden, text, c.want)
		}
	}
}

func TestTailKeepsTheLastLines(t *testing.T) {
	t.Parallel()
	tail := &guard.Tail{Size: 20}
	if got := tail.Lines(3); got != "" {
		t.Errorf("Lines(3) = %q without output", got)
	}
	for range 10 {
		_, _ = tail.Write([]byte("first\nsecond\xff\nthird\n\n"))
	}
	for n, want := range map[int]string{1: "third", 2: "second\uFFFD\nthird", 9: "irst\nsecond\uFFFD\nthird"} {
		if got := tail.Lines(n); got != want {
			t.Errorf("Lines(%d) = %q, want %q", n, got, want)
		}
	}
}
