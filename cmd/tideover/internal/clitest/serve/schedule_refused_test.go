//go:build unix

package serve_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
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
	s := clitest.Serve(t, refusedFile, "")
	testwait.Until(t, "the message is sent", func() bool {
		text, _ := os.ReadFile(filepath.Join(s.Folder, "told"))
		return strings.Contains(string(text), "start-refused nightly")
	})
	const what = "schedule nightly: a start of workflow nightly was refused"
	clitest.WantIn(t, "status", s.RunCommand("status").Out, what+" since ")
	clitest.WantIn(t, "status --json", s.RunCommand("status", "--json").Out, `"warnings":[{"what":"`+what)
	clitest.WantIn(t, "schedules", s.RunCommand("schedules").Out, "nightly: the start at ")
	clitest.WantIn(t, "schedules --json", s.RunCommand("schedules", "--json").Out, `"refused":{"at":`)
	health := s.RunCommand("health")
	clitest.WantCode(t, health, 0)
	clitest.WantIn(t, "health", health.Out, "healthy\nwarning: "+what)
	doctor := s.RunCommand("doctor")
	clitest.WantCode(t, doctor, 1)
	clitest.WantIn(t, "doctor", doctor.Out, "broken  "+what)
	page := s.Read("/overview")
	clitest.WantIn(t, "the page", page, what)
	clitest.WantIn(t, "the page", page, "1 schedule could not start a run")
}
