package web

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
)

// TestPagesAnswerErrorsAsTheAPIDoes checks that pages answer errors with the statuses of
// docs/openapi.yaml.
func TestPagesAnswerErrorsAsTheAPIDoes(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{
		engine.ErrNotFound: 404, session.ErrUnknown: 404, engine.ErrState: 409, engine.ErrConflict: 409, engine.ErrInput: 400, engine.ErrTooLarge: 413,
		engine.ErrAway: 503, engine.ErrClosed: 503, context.Canceled: 503, context.DeadlineExceeded: 503, errors.New("disk I/O error"): 500,
	} {
		if got := pages.StatusOf(fmt.Errorf("look: %w", err)); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}
