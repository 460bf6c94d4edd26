package doctor

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// found returns the findings, except those that depend on the machine.
func found(d Folder) (text string) {
	for _, f := range d.Check(context.Background()) {
		if f.Severity != journal.Note && !strings.Contains(f.What, "the disk of") && !strings.Contains(f.What, "the data folder is ") {
			text += f.Severity + ": " + f.What + "\n"
		}
	}
	return text
}

func TestFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lost := filepath.Join(dir, "lost")
	if err := os.Mkdir(lost, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lost, "log.created"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		folder Folder
		want   string
	}{
		{"the log is gone", Folder{Path: lost, Keeps: true}, "broken: the log is damaged: " + filepath.Join(lost, "log.db") +
			": it is missing, and there was a log here: the folder has log.created; restore a backup, which replaces the whole folder, or move the folder away to start with an empty one\n"},
		{"nothing is wrong", Folder{Path: dir, Keeps: true}, ""},
		{"it does not exist yet", Folder{Path: filepath.Join(dir, "a", "b"), Keeps: true}, ""},
		{"lazy", Folder{Path: dir, Keeps: true, Lazy: true}, "weak: server.durability is os\n"},
		{"a file", Folder{Path: file, Keeps: true}, "broken: " + file + " is not a folder\n"},
		{"below a file", Folder{Path: filepath.Join(file, "x"), Keeps: true}, "broken: the data folder: stat " + filepath.Join(file, "x") + ": not a directory\n"},
	} {
		if got := found(c.folder); got != c.want {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".doctor*")); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

func TestWhatAFolderTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // virtual time
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(dir, "log.db")
		if err := os.WriteFile(log, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		future := time.Now().Add(time.Hour)
		if err := os.Chtimes(log, future, future); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "blobs", "moved"), 0o700); err != nil {
			t.Fatal(err)
		}
		text := found(Folder{Path: dir, Keeps: true})
		for _, want := range []string{"weak: the data folder " + dir + " is accessible to other users", "weak: the clock is behind: the log was written 1h0m0s from now", "broken: the runs of " + dir + " were moved to another place"} {
			if !strings.Contains(text, want) {
				t.Errorf("found %q, want %q in it", text, want)
			}
		}
		// A folder that stores no runs may be marked as moved, and may be on any storage.
		if text := found(Folder{Path: dir}); strings.Contains(text, "moved") || strings.Contains(text, "clock") {
			t.Errorf("found %q", text)
		}
	})
}

func TestAFolderThatCanNotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // root can always write
		if dir = "/proc/self"; runtime.GOOS != "linux" {
			t.Skip("root can write everywhere")
		}
	}
	if text := found(Folder{Path: dir, Keeps: true}); !strings.Contains(text, "broken: the data folder can't be written") {
		t.Errorf("found %q", text)
	}
}

func TestWeakens(t *testing.T) {
	t.Parallel()
	for severity, want := range map[string]bool{journal.Note: false, journal.Weak: true, journal.Broken: true} {
		if got := Weakens([]Finding{{Severity: journal.Note}, {Severity: severity}}); got != want {
			t.Errorf("%s: %v", severity, got)
		}
	}
}
