package control

import (
	"context"
	"strings"
	"testing"
)

// The engine is closed after the change, so that the workflow can't be read.
func TestAChangeOfAWorkflowThatCantBeRead(t *testing.T) {
	t.Parallel()
	d := New(newTestEngine(t)).Workflows
	_, err := d.change(t.Context(), "echo", "ann", func(ctx context.Context, name, by string) error {
		if err := d.engine.PauseWorkflow(ctx, name, by); err != nil {
			return err
		}
		return d.engine.Close(ctx)
	})
	if err == nil || !strings.HasPrefix(err.Error(), "the change is stored, but ") {
		t.Errorf("got %v", err)
	}
}
