package shard

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
)

// A shard may end while a caller reads its view. The caller must ask the next owner, and not get an
// error of the view.
func TestAViewThatIsClosedIsAShardThatEnded(t *testing.T) {
	closed := fmt.Errorf("get: %w", view.ErrClosed)
	for _, tt := range []struct {
		op       op
		accepted bool
	}{{OpGet, false}, {OpList, false}, {OpWait, false}, {opStart, true}, {OpReplay, true}} {
		err := viewClosed(tt.op, closed)
		if _, not := errors.AsType[NotAccepted](err); not == tt.accepted || !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, not accepted: %v", tt.op, err, not)
		}
	}
	if err := viewClosed(OpGet, machine.ErrUnknown); !errors.Is(err, machine.ErrUnknown) || errors.Is(err, ErrClosed) {
		t.Errorf("another error becomes %v", err)
	}
}
