package tideover_test

import (
	"bytes"
	"errors"
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// sourcePackage is a package of one of our modules.
type sourcePackage struct {
	*build.Package
	module string
}

// allImports returns what the package and its tests import.
func (p sourcePackage) allImports() []string {
	return slices.Concat(p.Imports, p.TestImports, p.XTestImports)
}

// moduleLine is the line of a go.mod that names the module, usedModule a line of go.work
// that names the folder of one.
var (
	moduleLine = regexp.MustCompile(`(?m)^module (\S+)$`)
	usedModule = regexp.MustCompile(`(?m)^\t(\S+)$`)
)

// findPackages reads the packages of all modules in go.work, once for all tests. The go
// command could list them, but resolves all dependencies meanwhile.
var findPackages = sync.OnceValues(func() (list []sourcePackage, err error) {
	work, err := os.ReadFile("go.work")
	if err != nil {
		return nil, err
	}
	for _, use := range usedModule.FindAllSubmatch(work, -1) {
		dir := filepath.Clean(string(use[1]))
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			return nil, err
		}
		found, err := modulePackages(dir, string(moduleLine.FindSubmatch(mod)[1]))
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
})

// modulePackages returns the packages of the module in the folder.
func modulePackages(root, module string) (list []sourcePackage, err error) {
	err = filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != root {
			_, err := os.Stat(filepath.Join(dir, "go.mod"))
			if err == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") {
				return filepath.SkipDir
			}
		}
		p, err := build.ImportDir(dir, 0)
		if _, none := errors.AsType[*build.NoGoError](err); none {
			return nil
		}
		rel, _ := filepath.Rel(root, dir)
		p.ImportPath = path.Join(module, filepath.ToSlash(rel))
		list = append(list, sourcePackage{p, module})
		return err
	})
	return list, err
}

// packages returns the packages of all modules in go.work.
func packages(t *testing.T) []sourcePackage {
	t.Helper()
	list, err := findPackages()
	if err != nil || len(list) < 50 {
		t.Fatalf("%d packages: %v", len(list), err)
	}
	return list
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
	t.Parallel()
	for _, p := range packages(t) {
		from, known := room(p.ImportPath)
		if !known {
			if p.ImportPath != root {
				t.Errorf("%s has no rank", p.ImportPath)
			}
			continue
		}
		for _, imp := range p.allImports() {
			to, ok := room(imp)
			if ok && to != from && ranks[to] >= ranks[from] {
				t.Errorf("%s (rank %d) imports %s (rank %d)", p.ImportPath, ranks[from], imp, ranks[to])
			}
		}
	}
}

func TestTheLibraryHasNoDependencies(t *testing.T) {
	t.Parallel()
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
	for _, p := range packages(t) {
		if p.module != root {
			continue
		}
		for _, imp := range p.allImports() {
			ours := imp == root || strings.HasPrefix(imp, root+"/")
			if first, _, _ := strings.Cut(imp, "/"); !ours && strings.Contains(first, ".") {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
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

// commented counts the files of the package whose package clause follows a
// comment directly.
func commented(t *testing.T, p sourcePackage) (n int) {
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
