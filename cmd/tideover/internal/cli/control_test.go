//go:build unix

package cli

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestARetryOfARunThatSucceededSaysWhatIsPossible(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	id := strings.TrimSpace(s.mustRun("run", "echo", "--input", "1"))
	s.waitForEnd(id)
	got := s.runCommand("retry", id)
	clitest.WantCode(t, got, CodeOwn)
	clitest.WantIn(t, "retry", got.Stderr, " succeeded") // "has", or "is" while the run is in memory
	clitest.WantIn(t, "retry", got.Stderr, "to start it again, use --from STEP or --input JSON")
	// A run that the server has acknowledged is in the next list.
	for range 3 {
		id := strings.TrimSpace(s.mustRun("run", "echo", "--input", "2", "--at", "2020-01-01T00:00:00Z"))
		clitest.WantIn(t, "runs", s.mustRun("runs", "--limit", "1"), id)
	}
}
