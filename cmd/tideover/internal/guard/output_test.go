//go:build unix

package guard_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
)

// TestMain runs the guard if the test binary is started with the hidden command name.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guard.Name {
		os.Exit(guard.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// slowWriter receives output as on a busy machine: it takes 5 s for each part.
type slowWriter struct{ strings.Builder }

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(5 * time.Second) // real clock: it runs in a bubble
	return w.Builder.Write(p)
}

// Virtual time does not pass while the command runs, so the whole delay is after its end.
func TestTheOutputOfACommandIsReadLate(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(t.TempDir(), "lock")
	const filler = 40 << 10 // bytes; more than one read returns, and less than the pipe holds
	script := "printf '%040960d\\n' 0; echo 'retry after 3600s'; exit 1"
	synctest.Test(t, func(t *testing.T) {
		var out slowWriter
		got, err := guard.Run(t.Context(), guard.Command{
			Self: self, Args: []string{"sh", "-c", script}, Env: os.Environ(), Lock: lock, Grace: time.Minute, Stdout: &out, Stderr: os.Stderr,
		})
		if err != nil || got.Code != 1 || got.Told {
			t.Fatalf("guard.Run: %+v, %v", got, err)
		}
		if text := out.String(); len(text) < filler || !strings.HasSuffix(text, "\nretry after 3600s\n") {
			t.Errorf("%d bytes of the output were read, to %q", len(text), text[max(0, len(text)-20):])
		}
	})
}
