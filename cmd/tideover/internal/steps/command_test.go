package steps

import (
	"slices"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/engine"
)

//nolint:paralleltest // it changes the environment
func TestCommandsDoNotInheritWhatIsHidden(t *testing.T) {
	t.Setenv("DVM_KEY", "PLANTED")
	hidden := []string(nil)
	r := &Runner{Hidden: func() []string { return hidden }}
	for _, seen := range []bool{true, false} { // in the second round the configuration hides the variable
		if got := slices.Contains(r.environment(&Step{Inherit: guard.InheritAll}, &engine.Task{}, nil), "DVM_KEY=PLANTED"); got != seen {
			t.Errorf("with %q hidden the command has the key: %v, want %v", hidden, got, seen)
		}
		hidden = []string{"DVM_KEY"}
	}
}
