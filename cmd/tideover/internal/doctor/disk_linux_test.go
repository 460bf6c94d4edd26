package doctor

import (
	"os"
	"strings"
	"testing"
)

func TestAFolderInMemory(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/dev/shm", "doctor-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d, err := diskOf(dir)
	if err != nil || d.kind != inMemory || d.free == 0 {
		t.Skipf("/dev/shm is %+v, %v", d, err)
	}
	text := ""
	for _, f := range (Folder{Path: dir, Keeps: true}).Check(t.Context()) {
		text += f.Severity + ": " + f.What + "\n"
	}
	if !strings.Contains(text, "broken: the data folder is in memory (tmpfs)") {
		t.Errorf("found %q", text)
	}
	for _, f := range (Folder{Path: dir}).Check(t.Context()) {
		if strings.Contains(f.What, "in memory") {
			t.Errorf("what can be made anew may be in memory: %+v", f)
		}
	}
}
