package tideover_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "github.com/tideover/tideover"

// ranks says which package may import which: only those of a lower rank. A
// package below one of these ranks with it. Internal packages of the library
// are below all and know only each other.
var ranks = map[string]int{
	"internal": -1,
	"backoff":  0,
	"breaker":  1, "limit": 1,
	"retry": 2, "health": 2,
	"retryhttp": 3, "contend": 3, "otel": 3, "prom": 3,
	"engine": 4, "nostr": 4, "sim": 4,
	"cmd/tideover": 5,
	"bench":        6, "examples": 6,
}

type listed struct {
	ImportPath, Name, Doc, Dir, ForTest         string
	Standard                                    bool
	Imports, TestImports, XTestImports, GoFiles []string
}

// packages returns all packages of the module in the folder.
func packages(t *testing.T, dir string) (list []listed) {
	t.Helper()
	cmd := exec.Command("go", "list", "-json", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v", dir, err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// modules returns the folders of all modules in go.work.
func modules(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// room returns the entry of ranks that the import path belongs to.
func room(path string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(path, root+"/")
	if !ok {
		return "", false
	}
	for name := range ranks {
		if rest == name || strings.HasPrefix(rest, name+"/") {
			return name, true
		}
	}
	return rest, false
}

func TestImportsPointDownwards(t *testing.T) {
	for _, dir := range modules(t) {
		for _, p := range packages(t, dir) {
			from, known := room(p.ImportPath)
			if !known {
				if p.ImportPath != root {
					t.Errorf("%s has no rank", p.ImportPath)
				}
				continue
			}
			for _, imp := range append(append(p.Imports, p.TestImports...), p.XTestImports...) {
				to, ok := room(imp)
				if ok && to != from && ranks[to] >= ranks[from] {
					t.Errorf("%s (rank %d) imports %s (rank %d)", p.ImportPath, ranks[from], imp, ranks[to])
				}
			}
		}
	}
}

func TestTheLibraryHasNoDependencies(t *testing.T) {
	if _, err := os.Stat("go.sum"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("go.sum: %v, want none", err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(mod, []byte("require")) {
		t.Error("go.mod requires something")
	}
	for _, p := range packages(t, ".") {
		for _, imp := range append(append(p.Imports, p.TestImports...), p.XTestImports...) {
			ours := imp == root || strings.HasPrefix(imp, root+"/")
			if first, _, _ := strings.Cut(imp, "/"); !ours && strings.Contains(first, ".") {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	for _, dir := range modules(t) {
		for _, p := range packages(t, dir) {
			if len(p.GoFiles) == 0 { // only tests
				continue
			}
			if p.Doc == "" {
				t.Errorf("%s has no package comment", p.ImportPath)
			}
			if n := commented(t, p); n > 1 {
				t.Errorf("%s has %d package comments", p.ImportPath, n)
			}
		}
	}
}

// commented counts the files of the package whose package clause follows a
// comment directly.
func commented(t *testing.T, p listed) (n int) {
	t.Helper()
	for _, name := range p.GoFiles {
		src, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(src), "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, "package ") {
				if i > 0 && (strings.HasPrefix(lines[i-1], "//") || strings.HasSuffix(lines[i-1], "*/")) && !strings.HasPrefix(lines[i-1], "//go:") {
					n++
				}
				break
			}
		}
	}
	return n
}
