package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// The input of the workflow can't be rendered: its template indexes a character of the date that
// does not exist.
const refusedFile = `version: 1
workflows:
  nightly:
    schedule: "@every 1s"
    input: {who: "{{ index .today 99 }}"}
    steps: [{id: say, run: [echo, "{{ .input.who }}"]}]
notify:
  log: {run: [sh, -c, 'echo "$TIDEOVER_EVENT $TIDEOVER_SUBJECT" >> $DIR/told']}
`

func TestARefusedScheduledStartIsShownEverywhere(t *testing.T) {
	t.Parallel()
	s := serveFile(t, refusedFile, "")
	testwait.Until(t, "the message is sent", func() bool {
		text, _ := os.ReadFile(filepath.Join(s.dir, "told"))
		return strings.Contains(string(text), "start-refused nightly")
	})
	const what = "schedule nightly: a start of workflow nightly was refused"
	wantIn(t, "status", s.runCommand("status").out, what+" since ")
	wantIn(t, "status --json", s.runCommand("status", "--json").out, `"warnings":[{"what":"`+what)
	wantIn(t, "schedules", s.runCommand("schedules").out, "nightly: the start at ")
	wantIn(t, "schedules --json", s.runCommand("schedules", "--json").out, `"refused":{"at":`)
	health := s.runCommand("health")
	wantCode(t, health, 0)
	wantIn(t, "health", health.out, "healthy\nwarning: "+what)
	doctor := s.runCommand("doctor")
	wantCode(t, doctor, 1)
	wantIn(t, "doctor", doctor.out, "broken  "+what)
	page := s.read("/overview")
	wantIn(t, "the page", page, what)
	wantIn(t, "the page", page, "1 schedule could not start a run")
}
