//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detecttest"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// detect without --pack recognises every known message in a file.
func TestDetectReadsEveryMessage(t *testing.T) {
	t.Parallel()
	at := detecttest.Now.Format(time.RFC3339)
	for i := range detecttest.Messages {
		m := &detecttest.Messages[i]
		for _, code := range []int{0, 1} {
			got := clitest.Run(t, "detect", "--json", "--at", at, "--exit", fmt.Sprint(code), logFile(t, "Working.\n"+m.Text+"\n"))
			clitest.WantCode(t, got, 0)
			var stop struct {
				Reason   string    `json:"reason"`
				Terminal bool      `json:"terminal"`
				Until    time.Time `json:"until"`
			}
			if err := json.Unmarshal([]byte(got.Out), &stop); err != nil {
				t.Fatalf("%v: %s", err, got.Out)
			}
			final := m.Final && m.ReasonAt(code) != "completed"
			if stop.Reason != m.ReasonAt(code) || stop.Terminal != final || !stop.Until.Equal(m.UntilFrom(detecttest.Now, code, time.Local)) {
				t.Errorf("%s, exit code %d: %q is read as %s, want %s until %v, final %v", m.Tool, code, m.Text, got.Out, m.ReasonAt(code), m.UntilFrom(detecttest.Now, code, time.Local), final)
			}
		}
	}
}
