package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var released = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// folder creates a folder to pack. Times and modes of its files differ between machines and must
// not be visible in the archive.
func folder(t *testing.T, mode os.FileMode, at time.Time) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tideover_v1")
	for name, text := range map[string]string{"tideover": "program", "man/man1/tideover.1": "page", "LICENSE": "terms"} {
		path := filepath.Join(dir, name)
		write(t, path, text)
		m := mode &^ 0o111
		if name == "tideover" {
			m = mode | 0o100
		}
		if err := errors.Join(os.Chmod(path, m), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func packed(t *testing.T, dir, suffix string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a"+suffix)
	if err := pack(file, dir, released); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var members = []string{
	"tideover_v1/LICENSE 644 2026-11-15T12:00:00Z terms",
	"tideover_v1/man/man1/tideover.1 644 2026-11-15T12:00:00Z page",
	"tideover_v1/tideover 755 2026-11-15T12:00:00Z program",
}

func TestArchivesHaveTheSameBytesWhoeverPacksThem(t *testing.T) {
	t.Parallel()
	for suffix, read := range map[string]func(*testing.T, []byte) []string{".tar.gz": untar, ".zip": unzip} {
		data := packed(t, folder(t, 0o600, time.Unix(1e9, 0)), suffix)
		if again := packed(t, folder(t, 0o755, time.Unix(1.5e9, 0)), suffix); !bytes.Equal(data, again) {
			t.Errorf("%s: two packers made different bytes", suffix)
		}
		if got := read(t, data); !slices.Equal(got, members) {
			t.Errorf("%s has\n%s\nwant\n%s", suffix, strings.Join(got, "\n"), strings.Join(members, "\n"))
		}
	}
}

func untar(t *testing.T, data []byte) (list []string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		list = append(list, fmt.Sprintf("%s %o %s %s", h.Name, h.Mode, h.ModTime.UTC().Format(time.RFC3339), text))
	}
}

func unzip(t *testing.T, data []byte) (list []string) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		list = append(list, fmt.Sprintf("%s %o %s %s", f.Name, f.Mode().Perm(), f.Modified.UTC().Format(time.RFC3339), text))
	}
	return list
}

func TestWhatCantBePackedIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "in/file"), "text")
	if err := os.Symlink("file", filepath.Join(dir, "in/link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ file, folder, want string }{
		{"a.rar", "in", "a.rar is neither .tar.gz nor .zip"},
		{"a.zip", "nowhere", "nowhere"},
		{"a.zip", "in", "link is not a file"},
	} {
		err := pack(filepath.Join(dir, tt.file), filepath.Join(dir, tt.folder), released)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("pack(%s, %s) = %v, want %q", tt.file, tt.folder, err, tt.want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "in/b"), "abc")
	write(t, filepath.Join(dir, "in/a"), "")
	write(t, filepath.Join(dir, "in/sub/c"), "not in the list")
	var out bytes.Buffer
	if err := run([]string{"sums", filepath.Join(dir, "in")}, &out); err != nil {
		t.Fatal(err)
	}
	const want = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n" +
		"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n"
	if out.String() != want {
		t.Errorf("sums:\n%swant\n%s", out.String(), want)
	}
	if err := run([]string{"pack", filepath.Join(dir, "a.zip"), filepath.Join(dir, "in"), "1794779407"}, &out); err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{nil, {"pack", "a.zip"}, {"pack", "a.zip", dir, "noon"}, {"sums", filepath.Join(dir, "none")}, {"licenses", dir}} {
		if err := run(args, &out); err == nil {
			t.Errorf("run(%q) is no error", args)
		}
	}
}
