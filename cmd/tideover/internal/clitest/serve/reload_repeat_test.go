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

// A file that can't be loaded because of another file is loaded when the other file changes.
func TestAReloadIsRepeatedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	dir := clitest.ShortDir(t)
	const first = "version: 1\nworkflows:\n  first: {steps: [{id: a, run: [echo]}]}\n"
	s := clitest.Serve(t, first, dir)
	token := filepath.Join(dir, "token.txt")
	clitest.WriteFile(t, s.File, first+"  second: {steps: [{id: a, run: [echo], env: {TOKEN: '${file:./token.txt}'}}]}\n")
	const refused = "the configuration was not reloaded"
	testwait.Until(t, "the reload fails", func() bool { return strings.Contains(s.Log.String(), refused) })
	clitest.WantCode(t, s.RunCommand("run", "second", "--wait"), 3)

	clitest.WriteFile(t, token, "")
	testwait.Until(t, "another reason is logged", func() bool { return strings.Count(s.Log.String(), refused) == 2 })
	clitest.WantIn(t, "log", s.Log.String(), "the file is empty")

	clitest.WriteFile(t, token, "s3cret-of-the-file\n")
	testwait.Until(t, "the new workflow runs", func() bool { return s.RunCommand("run", "second", "--wait").Code == 0 })
	if n := strings.Count(s.Log.String(), refused); n != 2 {
		t.Errorf("the failure is logged %d times, want once for each reason", n)
	}

	// The file is removed, and then it is back with the same content.
	text, err := os.ReadFile(s.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.File); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the missing file is reported", func() bool { return strings.Count(s.Log.String(), refused) == 3 })
	clitest.WriteFile(t, s.File, string(text))
	testwait.Until(t, "status has no problem", func() bool { return !strings.Contains(s.RunCommand("status").Out, "was not reloaded") })
}
