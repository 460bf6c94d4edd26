package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/tideover/tideover/engine"
)

func TestErrorsHaveCodesAndStatuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		code   Code
		status int
		field  string
	}{
		{engine.ErrNotFound, CodeNotFound, 404, ""},
		{engine.ErrState, CodeState, 409, ""},
		{engine.ErrConflict, CodeConflict, 409, ""},
		{engine.ErrInput, CodeBadRequest, 400, "input"},
		{engine.ErrTooLarge, CodeTooLarge, 413, ""},
		{engine.ErrAway, CodeAway, 503, ""},
		{engine.ErrClosed, CodeClosed, 503, ""},
		{context.Canceled, CodeClosed, 503, ""},
		{context.DeadlineExceeded, CodeClosed, 503, ""},
		{&http.MaxBytesError{Limit: 5}, CodeTooLarge, 413, ""},
		{errors.New("disk I/O error"), CodeInternal, 500, ""},
		{NewError(CodeBusy, "too many", "wait"), CodeBusy, 503, ""},
		{Invalid("key", "is too long"), CodeBadRequest, 400, "key"},
	} {
		for _, err := range []error{c.err, fmt.Errorf("list: %w", c.err)} {
			got := AsError(err)
			if got.Code != c.code || got.Status != c.status || got.Field != c.field || got.Message == "" {
				t.Errorf("AsError(%v) = %+v, want %s, %d and field %q", err, got, c.code, c.status, c.field)
			}
			if got.Code != CodeTooLarge && !errors.Is(got, c.err) {
				t.Errorf("AsError(%v) does not wrap its cause", err)
			}
		}
	}
}

func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	for code, status := range map[Code]int{
		CodeBadRequest: 400, CodeUnauthorized: 401, CodeForbidden: 403, CodeNotFound: 404, CodeNoEngine: 404, CodeMethod: 405,
		CodeAmbiguous: 409, CodeState: 409, CodeConflict: 409, CodeDead: 409, CodeCanceled: 409, CodeReplaced: 409,
		CodeTooLarge: 413, CodeMediaType: 415, CodeHost: 421, CodeInternal: 500, CodeBusy: 503, CodeClosed: 503, CodeAway: 503,
	} {
		if got := code.HTTPStatus(); got != status {
			t.Errorf("%s: %d, want %d", code, got, status)
		}
	}
	if got := Code("of a newer server").HTTPStatus(); got != 500 {
		t.Errorf("an unknown code: %d, want 500", got)
	}
}
