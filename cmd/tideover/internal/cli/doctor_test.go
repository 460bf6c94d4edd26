//go:build unix

package cli

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
)

func TestADiagnosisForPeople(t *testing.T) {
	t.Parallel()
	s := &screen{}
	weak := admin.Diagnosis{Engine: "the folder /d", Findings: []doctor.Finding{{Severity: "weak", What: "it leaks\x1b[1m", Why: "of a hole", Do: "mend it"}}}
	if got, want := strings.Join(renderDiagnosis(weak, s), "\n"), "runs are stored in the folder /d\n\nweak    it leaks\\x1b[1m\n        why  of a hole\n        do   mend it\n\n0 broken, 1 weak"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	note := admin.Diagnosis{Findings: []doctor.Finding{{Severity: "note"}}}
	if lines := renderDiagnosis(note, s); lines[len(lines)-1] != "no problems found" {
		t.Errorf("a note: %q", lines)
	}
}
