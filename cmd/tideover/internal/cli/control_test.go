//go:build unix

package cli

import (
	"strings"
	"testing"
)

func TestARetryOfARunThatSucceededSaysWhatIsPossible(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	id := strings.TrimSpace(s.mustRun("run", "echo", "--input", "1"))
	s.waitForEnd(id)
	got := s.runCommand("retry", id)
	wantCode(t, got, codeOwn)
	wantIn(t, "retry", got.stderr, " succeeded") // "has", or "is" while the run is in memory
	wantIn(t, "retry", got.stderr, "to start it again, use --from STEP or --input JSON")
	// A run that the server has acknowledged is in the next list.
	for range 3 {
		id := strings.TrimSpace(s.mustRun("run", "echo", "--input", "2", "--at", "2020-01-01T00:00:00Z"))
		wantIn(t, "runs", s.mustRun("runs", "--limit", "1"), id)
	}
}
