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
