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

// system is what stands in the folder that becomes the archive for Linux.
var system = map[string]string{
	"tideover": "program", "LICENSE": "terms", "THIRD_PARTY_LICENSES": "terms of others\n====\n",
	"completions/_tideover": "zsh", "completions/tideover.bash": "bash", "completions/tideover.fish": "fish", "completions/tideover.ps1": "powershell",
	"man/man1/tideover.1": "page", "man/man1/tideover-serve.1": "page of serve", "man/man7/tideover-policy.7": "page of policies",
	"systemd/tideover.service":      "# /etc/systemd/system/tideover.service\n[Service]\nExecStart=/usr/local/bin/tideover serve\n",
	"systemd/user/tideover.service": "# ~/.config\n[Service]\nExecStart=%h/.local/bin/tideover serve --config x\n",
}

// folder creates a folder to pack. Times and modes of its files differ between machines and must
// not be visible in the archive.
func folder(t *testing.T, mode os.FileMode, at time.Time, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		write(t, path, text)
		m := mode &^ 0o111
		if strings.HasPrefix(filepath.Base(name), "tideover") && filepath.Dir(name) == "." {
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
	file := filepath.Join(t.TempDir(), "tideover_0.1.0_linux_amd64"+suffix)
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
	"tideover_0.1.0_linux_amd64/LICENSE 644 2026-11-15T12:00:00Z terms",
	"tideover_0.1.0_linux_amd64/man/man1/tideover.1 644 2026-11-15T12:00:00Z page",
	"tideover_0.1.0_linux_amd64/tideover 755 2026-11-15T12:00:00Z program",
}

func TestFilesHaveTheSameBytesWhoeverPacksThem(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		data := packed(t, folder(t, 0o600, time.Unix(1e9, 0), system), f.suffix)
		if again := packed(t, folder(t, 0o755, time.Unix(1.5e9, 0), system), f.suffix); !bytes.Equal(data, again) {
			t.Errorf("%s: two packers made different bytes", f.suffix)
		}
		for n := 0; n < len(data)/2; n += 17 { // a download may be cut off
			if _, err := f.read(data[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes are read without an error", f.suffix, n, len(data))
				break
			}
		}
	}
}

func TestArchivesHaveOneFolder(t *testing.T) {
	t.Parallel()
	few := map[string]string{"tideover": "program", "man/man1/tideover.1": "page", "LICENSE": "terms"}
	for suffix, read := range map[string]func(*testing.T, []byte) []string{".tar.gz": untar, ".zip": unzip} {
		data := packed(t, folder(t, 0o600, time.Unix(1e9, 0), few), suffix)
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
	write(t, filepath.Join(dir, "strange/tideover.exe"), "text")
	for _, tt := range []struct{ file, folder, want string }{
		{"tideover_0.1.0_linux_amd64.rar", "in", "tideover_0.1.0_linux_amd64.rar is not the name"},
		{"tideover_0.1.0.zip", "in", "tideover_0.1.0.zip is not the name"},
		{"tideover_0.1.0_windows_amd64.zip", "nowhere", "nowhere"},
		{"tideover_0.1.0_windows_amd64.zip", "in", "link is not a file"},
		{"tideover_0.1.0_linux_amd64.deb", "strange", "packages have no place for tideover.exe"},
		{"tideover_0.1.0_linux_amd64.rpm", "strange", "packages have no place for tideover.exe"},
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
	write(t, filepath.Join(dir, "in/SHA256SUMS"), "not in the list")
	var out bytes.Buffer
	if err := run([]string{"sums", filepath.Join(dir, "in")}, &out); err != nil {
		t.Fatal(err)
	}
	const want = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n" +
		"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n"
	if out.String() != want {
		t.Errorf("sums:\n%swant\n%s", out.String(), want)
	}
	zip := filepath.Join(dir, "tideover_0.1.0_windows_amd64.zip")
	for _, args := range [][]string{{"pack", zip, filepath.Join(dir, "in"), "1794779407"}, {"unpack", zip, dir}} {
		if err := run(args, &out); err != nil {
			t.Errorf("run(%q) = %v", args, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "sub/c")); err != nil || string(text) != "not in the list" {
		t.Errorf("unpacked %q, %v", text, err)
	}
	for _, args := range [][]string{
		nil, {"pack", zip}, {"pack", zip, dir, "noon"}, {"unpack", zip, filepath.Join(dir, "none")}, {"unpack", dir, dir}, {"sums", filepath.Join(dir, "none")},
		{"licenses", dir}, {"sbom", "noon", dir}, {"sbom", "1", dir}, {"formula", filepath.Join(dir, "none"), dir, "0.1.0"}, {"certificates", zip}, {"verify", dir},
	} {
		if err := run(args, &out); err == nil {
			t.Errorf("run(%q) is no error", args)
		}
	}
}
