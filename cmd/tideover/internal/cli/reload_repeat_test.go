//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// A file that can't be loaded because of another file is loaded when the other file changes.
func TestAReloadIsRepeatedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	const first = "version: 1\nworkflows:\n  first: {steps: [{id: a, run: [echo]}]}\n"
	s := serveFile(t, first, dir)
	token := filepath.Join(dir, "token.txt")
	write(t, s.file, first+"  second: {steps: [{id: a, run: [echo], env: {TOKEN: '${file:./token.txt}'}}]}\n")
	const refused = "the configuration was not reloaded"
	testwait.Until(t, "the reload fails", func() bool { return strings.Contains(s.out.String(), refused) })
	wantCode(t, s.runCommand("run", "second", "--wait"), 125)

	write(t, token, "")
	testwait.Until(t, "another reason is logged", func() bool { return strings.Count(s.out.String(), refused) == 2 })
	wantIn(t, "log", s.out.String(), "the file is empty")

	write(t, token, "s3cret-of-the-file\n")
	testwait.Until(t, "the new workflow runs", func() bool { return s.runCommand("run", "second", "--wait").code == 0 })
	if n := strings.Count(s.out.String(), refused); n != 2 {
		t.Errorf("the failure is logged %d times, want once for each reason", n)
	}

	// The file is removed, and then it is back with the same content.
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.file); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the missing file is reported", func() bool { return strings.Count(s.out.String(), refused) == 3 })
	write(t, s.file, string(text))
	testwait.Until(t, "status has no problem", func() bool { return !strings.Contains(s.runCommand("status").out, "was not reloaded") })
}
