//go:build unix

package cli

import (
	"strings"
	"testing"
)

func TestARetryOfARunThatSucceededSaysWhatIsPossible(t *testing.T) {
	t.Parallel()
	s := newService(t)
	id := strings.TrimSpace(s.want("run", "echo", "--input", "1"))
	s.over(id)
	got := s.verb("retry", id)
	wantCode(t, got, codeOwn)
	wantIn(t, "retry", got.stderr, "has succeeded")
	wantIn(t, "retry", got.stderr, "--from STEP or --input JSON starts it anew")
	// What was acknowledged is in the next list.
	for range 3 {
		id := strings.TrimSpace(s.want("run", "echo", "--input", "2", "--at", "2020-01-01T00:00:00Z"))
		wantIn(t, "runs", s.want("runs", "--limit", "1"), id)
	}
}
