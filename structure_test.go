package tideover_test

import (
	"bytes"
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
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

// ranks has the rank of each folder. A package imports only packages of lower rank, in
// its tests too. A package ranks with the longest path here that leads to it.
var ranks = map[string]int{
	"internal": -1, // known only to each other
	"backoff":  0,
	"breaker":  1, "limit": 1,
	"retry": 2, "health": 2,
	"retryhttp": 3, "contend": 3, "otel": 3, "prom": 3,
	"engine": 4, "nostr": 4, "sim": 4, "gateway": 4, "chaos": 4,
	"internal/console": 5, // what the pages of a program and of the server share
	"engine/page":      6,
	"cmd/tideover":     7,
	"bench":            8, "examples": 8,
}

// area is a folder of ranks whose packages have ranks among themselves.
type area struct {
	ranks map[string]int // by paths relative to the folder; "" is the folder itself
	tests bool           // imports of tests count, too
}

var areas = map[string]area{
	"engine": {tests: true, ranks: map[string]int{
		"journal": 0, "internal/codec": 0, "internal/disk": 0, "internal/goroutine": 0, "internal/sqlitefile": 0,
		"journal/journaltest": 1, "jetstream/natstest": 1, "internal/faultdisk": 1, "info": 1,
		"internal/machine": 2, "internal/view": 2, "journal/memlog": 2, "sqlitelog": 2, "jetstream": 2,
		"internal/store": 3, "internal/replay": 3, "internal/workflow": 3,
		"move": 4, "internal/describe": 4, "internal/admission": 4,
		"internal/flow":    5,
		"internal/shard":   6,
		"internal/cluster": 7,
		"":                 8,
		"enginetest":       9, "jetstream/clustertest": 9,
		"page": 10,
	}},
	"cmd/tideover": {ranks: map[string]int{
		// Tools that know nothing of the others.
		"internal/chart": 0, "internal/connlimit": 0, "internal/detect": 0, "internal/exitcode": 0, "internal/fileaccess": 0,
		"internal/lockfile": 0, "internal/process": 0, "internal/release": 0, "internal/screen": 0, "internal/starter": 0,
		"internal/strictyaml": 0,
		// Tools of tests.
		"internal/browsertest": 0, "internal/certtest": 0, "internal/detecttest": 0,

		"internal/account": 1, "internal/adopt": 1, "internal/audit": 1, "internal/chaosfile": 1, "internal/docsite": 1, "internal/doctor": 1, "internal/guard": 1, "internal/httpserver": 1,
		"internal/nip90client": 1, "internal/output": 1, "internal/plan": 1, "internal/quota": 1, "internal/simulate": 1, "internal/storm": 1,
		"internal/template": 1, "internal/timeseries": 1,
		"internal/cluster": 2, "internal/notify": 2, "internal/session": 2, "internal/steps": 2, "internal/tracing": 2,
		"internal/demo": 3, "internal/metrics": 3, "internal/nip90": 3, "internal/outbox": 3,
		"internal/admin": 4, "internal/config": 4,
		"internal/api": 5, "internal/client": 5, "internal/web": 5,
		"internal/server": 6, "internal/watch": 6,
		"internal/cli": 7, "internal/clitest": 7,
		"internal/clitest/suite": 8,
		"":                       8,
	}},
}

// onlyFor lists, for a package that not every package of higher rank may
// import, the packages that may. Paths are relative to cmd/tideover/internal.
var onlyFor = map[string][]string{"config": {"server", "cli"}}

// mayImport lists, for a package of the engine, the other ones that it may import. So the goroutine of a function can't
// reach the log, the view or the owner of its shard, and no package of the engine depends on a kind of log. Paths are
// relative to engine.
var mayImport = map[string][]string{
	"internal/cluster": {"info", "internal/flow", "internal/machine", "internal/shard", "internal/store", "internal/view", "internal/workflow", "journal", "move"},
	"internal/shard": {
		"info", "internal/admission", "internal/describe", "internal/flow", "internal/goroutine", "internal/machine", "internal/replay",
		"internal/store", "internal/view", "internal/workflow", "journal", "move",
	},
	"internal/flow":      {"info", "internal/admission", "internal/goroutine", "internal/machine", "internal/replay", "internal/workflow"},
	"internal/admission": {"info", "internal/machine", "internal/workflow"},
	"internal/workflow":  {"info", "internal/machine"},
}

func TestRoomsOfTheEngineImportFew(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		path, inside := strings.CutPrefix(p.ImportPath, root+"/engine/")
		allowed, limited := mayImport[path]
		if !inside || !limited {
			continue
		}
		for _, imported := range p.Imports {
			if other, ok := strings.CutPrefix(imported, root+"/engine/"); ok && !slices.Contains(allowed, other) {
				t.Errorf("engine/%s imports engine/%s: add it to mayImport only if the package needs to know it", path, other)
			}
		}
	}
}

// exceptions are imports that break the rules above today, relative to
// cmd/tideover/internal. An exception that is no longer needed fails the test.
var exceptions = map[string]string{
	"server -> watch": "it serves the sessions of watch",
	" -> enginetest":  "tests of flows run in virtual time",
}

// sourcePackage is a package of one of our modules.
type sourcePackage struct {
	*build.Package
	module string
}

// allImports returns the imports of the package and of its tests.
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

// longestPrefix returns the longest path of the table that is the path or a folder above it.
func longestPrefix[V any](table map[string]V, path string) (longest string, ok bool) {
	for prefix := range table {
		above := prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
		if above && (!ok || len(prefix) > len(longest)) {
			longest, ok = prefix, true
		}
	}
	return longest, ok
}

// relative returns the path of one of our packages relative to the root.
func relative(importPath string) (path string, ok bool) {
	return strings.CutPrefix(importPath, root+"/")
}

func TestImportsPointDownwards(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		path, _ := relative(p.ImportPath)
		from, known := longestPrefix(ranks, path)
		if !known {
			if p.ImportPath != root {
				t.Errorf("%s has no rank", p.ImportPath)
			}
			continue
		}
		for _, imp := range p.allImports() {
			path, ours := relative(imp)
			to, ok := longestPrefix(ranks, path)
			if ours && ok && to != from && ranks[to] >= ranks[from] {
				t.Errorf("%s (rank %d) imports %s (rank %d)", p.ImportPath, ranks[from], imp, ranks[to])
			}
		}
	}
}

func TestImportsPointDownwardsInsideAreas(t *testing.T) {
	t.Parallel()
	needed := map[string]bool{}
	for _, p := range packages(t) {
		path, _ := relative(p.ImportPath)
		folder, _ := longestPrefix(ranks, path)
		a, ok := areas[folder]
		if !ok {
			continue
		}
		for _, wrong := range a.upwardImports(p, folder) {
			needed[wrong] = true
			if exceptions[wrong] == "" {
				t.Errorf("%s: the import breaks the ranks of structure_test.go", wrong)
			}
		}
	}
	for wrong, why := range exceptions {
		if !needed[wrong] {
			t.Errorf("%s (%s): the exception is no longer needed", wrong, why)
		}
	}
}

// upwardImports returns the imports of the package that break the ranks of its
// area, in the form of the keys of exceptions.
func (a area) upwardImports(p sourcePackage, folder string) (list []string) {
	imports := p.Imports
	if a.tests {
		imports = p.allImports()
	}
	inside := func(importPath string) string {
		path, _ := relative(importPath)
		return strings.TrimPrefix(strings.TrimPrefix(path, folder), "/")
	}
	importer := inside(p.ImportPath)
	from, _ := longestPrefix(a.ranks, importer)
	for _, imp := range imports {
		if path, ours := relative(imp); !ours || path != folder && !strings.HasPrefix(path, folder+"/") {
			continue
		}
		imported := inside(imp)
		to, _ := longestPrefix(a.ranks, imported)
		if to == from {
			continue
		}
		importer, imported := strings.TrimPrefix(importer, "internal/"), strings.TrimPrefix(imported, "internal/")
		allowed, limited := onlyFor[imported]
		if a.ranks[to] >= a.ranks[from] || folder == "cmd/tideover" && limited && !slices.Contains(allowed, importer) {
			list = append(list, importer+" -> "+imported)
		}
	}
	return list
}

// renderings are packages that reach the engine only through those of operations.
var (
	operations = []string{"internal/console/control", "cmd/tideover/internal/admin"}
	renderings = []string{"internal/console/pages", "cmd/tideover/internal/api", "cmd/tideover/internal/client", "cmd/tideover/internal/web"}
)

// TestRenderingsCallNoMethodOfTheEngine parses the packages: a file can call a method of
// engine.Engine only if it names the type, opens an engine, or gets one from the operations.
func TestRenderingsCallNoMethodOfTheEngine(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		name, _ := relative(p.ImportPath)
		uses := namesEngine
		if slices.Contains(operations, name) {
			uses = exposesEngine
		} else if !slices.Contains(renderings, name) {
			continue
		}
		for _, file := range p.GoFiles {
			src, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range uses(t, src) {
				t.Errorf("%s/%s: %s", name, file, what)
			}
		}
	}
}

// parseWithEngine parses a file, and returns a function that reports whether an expression is one
// of the names of package engine.
func parseWithEngine(t *testing.T, src []byte) (*ast.File, func(e ast.Node, names ...string) bool) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	engine := ""
	for _, imp := range f.Imports {
		if imp.Path.Value == `"`+root+`/engine"` {
			if engine = "engine"; imp.Name != nil {
				engine = imp.Name.Name
			}
		}
	}
	return f, func(e ast.Node, names ...string) bool {
		sel, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		x, ok := sel.X.(*ast.Ident)
		return ok && engine != "" && x.Name == engine && slices.Contains(names, sel.Sel.Name)
	}
}

// namesEngine returns the places of a file that name engine.Engine or engine.Open.
func namesEngine(t *testing.T, src []byte) (list []string) {
	t.Helper()
	f, is := parseWithEngine(t, src)
	ast.Inspect(f, func(n ast.Node) bool {
		if n != nil && is(n, "Engine", "Open") {
			list = append(list, "names engine."+n.(*ast.SelectorExpr).Sel.Name)
		}
		return true
	})
	return list
}

// exposesEngine returns the exported functions and fields of a file from which another package gets
// an engine. Config.Engine is how package admin itself gets one.
func exposesEngine(t *testing.T, src []byte) (list []string) {
	t.Helper()
	f, is := parseWithEngine(t, src)
	has := func(n ast.Node) (found bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			found = found || n != nil && is(n, "Engine")
			return true
		})
		return found
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch d := n.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Type.Results != nil && has(d.Type.Results) {
				list = append(list, d.Name.Name+" returns an engine.Engine")
			}
		case *ast.TypeSpec:
			s, ok := d.Type.(*ast.StructType)
			if !ok || d.Name.Name == "Config" {
				return true
			}
			for _, field := range s.Fields.List {
				exported := len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported)
				if exported && has(field.Type) {
					list = append(list, d.Name.Name+" has an exported engine.Engine")
				}
			}
		}
		return true
	})
	return list
}

func TestTheRuleOfRenderingsFindsItsBreaks(t *testing.T) {
	t.Parallel()
	const head, alias = "package x\nimport \"" + root + "/engine\"\n", "package x\nimport e \"" + root + "/engine\"\n"
	for src, want := range map[string]int{
		head + "func f(x *engine.Engine) { x.Err() }":                       1,
		head + "var f = (*engine.Engine).Retry":                             1,
		head + "func f() { e, _ := engine.Open(nil, c) }":                   1,
		alias + "type s struct{ x *e.Engine }":                              1,
		head + "func f(i *engine.Info) bool { return true }":                0,
		"package x\nvar engine struct{ Engine int }\nvar y = engine.Engine": 0,
	} {
		if got := namesEngine(t, []byte(src)); len(got) != want {
			t.Errorf("namesEngine(%q) = %q, want %d", src, got, want)
		}
	}
	for src, want := range map[string]int{
		head + "func Get() *engine.Engine { return nil }":      1,
		head + "func get() *engine.Engine { return nil }":      0,
		head + "type Runs struct{ Engine *engine.Engine }":     1,
		head + "type Runs struct{ *engine.Engine }":            1,
		head + "type Runs struct{ engine *engine.Engine }":     0,
		head + "type Config struct{ Engine *engine.Engine }":   0,
		head + "func (r *Runs) Get() (*engine.Info, error) {}": 0,
	} {
		if got := exposesEngine(t, []byte(src)); len(got) != want {
			t.Errorf("exposesEngine(%q) = %q, want %d", src, got, want)
		}
	}
}

func TestPackagesOfTheCommandHaveARank(t *testing.T) {
	t.Parallel()
	command := areas["cmd/tideover"].ranks
	for _, p := range packages(t) {
		if path, ok := strings.CutPrefix(p.ImportPath, root+"/cmd/tideover/"); ok {
			if prefix, _ := longestPrefix(command, path); prefix == "" {
				t.Errorf("%s has no rank", p.ImportPath)
			}
		}
	}
}

// TestOnlyTestsReachTestfile keeps the flag -update out of programs, and out of the packages that others import.
func TestOnlyTestsReachTestfile(t *testing.T) {
	t.Parallel()
	reach := map[string]bool{root + "/internal/testfile": true}
	for grows := true; grows; {
		grows = false
		for _, p := range packages(t) {
			if reach[p.ImportPath] || !slices.ContainsFunc(p.Imports, func(path string) bool { return reach[path] }) {
				continue
			}
			reach[p.ImportPath], grows = true, true
			if p.Name == "main" || !strings.Contains(p.ImportPath, "/internal/") {
				t.Errorf("%s reaches internal/testfile outside its tests", p.ImportPath)
			}
		}
	}
}

func TestLongestPrefix(t *testing.T) {
	t.Parallel()
	table := map[string]int{"a": 1, "a/b": 2, "a/b/c": 3, "ab": 4}
	for path, want := range map[string]string{"a": "a", "a/x": "a", "a/b": "a/b", "a/bc": "a", "a/b/x": "a/b", "a/b/c/d": "a/b/c", "ab/c": "ab", "b": ""} {
		if got, ok := longestPrefix(table, path); got != want || ok != (want != "") {
			t.Errorf("longestPrefix(%q) = %q, %v, want %q", path, got, ok, want)
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

// Programs import these modules besides the library, and would inherit all
// their requirements.
func TestTheChaosAndGatewayModulesRequireOnlyTheLibrary(t *testing.T) {
	t.Parallel()
	requirement := regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+/\S+) v\S+`)
	for _, module := range []string{"chaos", "gateway"} {
		mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		required := requirement.FindAllSubmatch(mod, -1)
		if len(required) != 1 || string(required[0][1]) != root {
			t.Errorf("%s/go.mod requires %q, want only %s", module, required, root)
		}
	}
}
