package tideover_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxCircle has, for large packages, how many files use each other in a circle. A file uses another
// one if it names something that the other one declares: a type, a function, a method or a field.
// To understand one file of a circle, a reader may need all of them. If the number of a package
// falls, its limit here must follow, so that it does not grow again.
var maxCircle = map[string]int{
	"cmd/tideover/internal/cli": 20,
	"cmd/tideover/internal/web": 2,
	"engine":                    0,
	"engine/internal/cluster":   0,
	"engine/internal/flow":      0,
	"engine/internal/machine":   4,
	"engine/internal/shard":     4,
	"engine/jetstream":          0,
	"gateway":                   27,
}

func TestFewFilesUseEachOtherInACircle(t *testing.T) {
	t.Parallel()
	known := newSourceImporter(t)
	for path, most := range maxCircle {
		p, ok := known.ours[root+"/"+path]
		if !ok {
			t.Errorf("there is no package %s", path)
			continue
		}
		circle := largestCircle(usedFiles(t, known, p))
		switch n := len(circle); {
		case n > most:
			t.Errorf("%s: %d of %d files use each other in a circle, at most %d may: %s", path, n, len(p.GoFiles), most, strings.Join(circle, " "))
		case n < most:
			t.Errorf("%s: only %d of %d files use each other in a circle: lower the limit %d in maxCircle", path, n, len(p.GoFiles), most)
		}
		t.Logf("%s: %d of %d files", path, len(circle), len(p.GoFiles))
	}
}

// sourceImporter imports packages from their source, without the bodies of functions: those of this
// repository and of the standard library. Other packages are empty: what they declare is not needed
// to find uses inside a package.
type sourceImporter struct {
	context build.Context
	fset    *token.FileSet
	ours    map[string]sourcePackage
	done    map[string]*types.Package
}

func newSourceImporter(t *testing.T) *sourceImporter {
	t.Helper()
	s := &sourceImporter{context: build.Default, fset: token.NewFileSet(), ours: map[string]sourcePackage{}, done: map[string]*types.Package{"unsafe": types.Unsafe}}
	s.context.CgoEnabled = false // the files without cgo declare the same names
	for _, p := range packages(t) {
		s.ours[p.ImportPath] = p
	}
	return s
}

// Import implements [types.Importer].
func (s *sourceImporter) Import(path string) (*types.Package, error) {
	if pkg := s.done[path]; pkg != nil {
		return pkg, nil
	}
	dir := filepath.Join(s.context.GOROOT, "src", path)
	if p, ok := s.ours[path]; ok {
		dir = p.Dir
	} else if _, err := os.Stat(dir); err != nil {
		dir = filepath.Join(s.context.GOROOT, "src", "vendor", path)
	}
	found, err := s.context.ImportDir(dir, 0)
	if err != nil { // it is not ours
		pkg := types.NewPackage(path, filepath.Base(path))
		pkg.MarkComplete()
		s.done[path] = pkg
		return pkg, nil
	}
	files, err := s.parse(found)
	if err != nil {
		return nil, err
	}
	s.done[path], _ = s.config(true).Check(path, s.fset, files, nil)
	return s.done[path], nil
}

func (s *sourceImporter) parse(p *build.Package) (files []*ast.File, err error) {
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(s.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// config returns a configuration that ignores errors: empty packages cause many.
func (s *sourceImporter) config(ignoreBodies bool) *types.Config {
	return &types.Config{Importer: s, IgnoreFuncBodies: ignoreBodies, Error: func(error) {}, Sizes: types.SizesFor("gc", s.context.GOARCH)}
}

// usedFiles returns, for each file of a package without its tests, the other files that it uses.
func usedFiles(t *testing.T, s *sourceImporter, p sourcePackage) map[string][]string {
	t.Helper()
	files, err := s.parse(p.Package)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, _ := s.config(false).Check(p.ImportPath, s.fset, files, info)
	fileOf := func(pos token.Pos) string { return filepath.Base(s.fset.Position(pos).Filename) }
	used := map[string]map[string]bool{}
	for _, name := range p.GoFiles {
		used[name] = map[string]bool{}
	}
	for id, object := range info.Uses {
		from := fileOf(id.Pos())
		if object.Pkg() == pkg && object.Pos().IsValid() && fileOf(object.Pos()) != from {
			used[from][fileOf(object.Pos())] = true
		}
	}
	graph := map[string][]string{}
	for name, others := range used {
		graph[name] = slices.Sorted(maps.Keys(others))
	}
	return graph
}

// largestCircle returns the largest set of nodes of a graph each of which leads to all others, in
// order; nil if no node leads to another one and back.
func largestCircle(graph map[string][]string) (largest []string) {
	reached := map[string]map[string]bool{}
	for from := range graph {
		seen := map[string]bool{}
		for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
			for _, to := range graph[todo[0]] {
				if !seen[to] {
					seen[to] = true
					todo = append(todo, to)
				}
			}
		}
		reached[from] = seen
	}
	for _, from := range slices.Sorted(maps.Keys(graph)) {
		var circle []string
		for to := range reached[from] {
			if reached[to][from] {
				circle = append(circle, to)
			}
		}
		if len(circle) > len(largest) {
			largest = slices.Sorted(slices.Values(circle))
		}
	}
	return largest
}

func TestLargestCircle(t *testing.T) {
	t.Parallel()
	for want, graph := range map[string]map[string][]string{
		"":      {"a": {"b", "c"}, "b": {"c"}, "c": nil},
		"a b":   {"a": {"b"}, "b": {"a", "c"}, "c": nil},
		"c d e": {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"e"}, "e": {"c"}},
	} {
		if got := strings.Join(largestCircle(graph), " "); got != want {
			t.Errorf("largestCircle(%v) = %q, want %q", graph, got, want)
		}
	}
}

// maxComplex is how many functions of all modules, without tests and generated code, have a
// cyclomatic complexity of more than 15. If the number falls, the limit must follow.
const maxComplex = 17

func TestFewFunctionsAreComplex(t *testing.T) {
	t.Parallel()
	total, byModule := 0, map[string]int{}
	for _, p := range packages(t) {
		fset := token.NewFileSet()
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if ast.IsGenerated(f) {
				continue
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if n := complexity(d); ok && n > 15 {
					total++
					byModule[p.module]++
					t.Logf("%s: %s has %d", fset.Position(fn.Pos()), fn.Name.Name, n)
				}
			}
		}
	}
	for _, module := range slices.Sorted(maps.Keys(byModule)) {
		t.Logf("%s: %d functions", module, byModule[module])
	}
	switch {
	case total > maxComplex:
		t.Errorf("%d functions have a complexity of more than 15, at most %d may: split them (-v lists them)", total, maxComplex)
	case total < maxComplex:
		t.Errorf("only %d functions have a complexity of more than 15: lower maxComplex", total)
	}
}

// complexity returns the cyclomatic complexity of a function: 1, and 1 for each if, loop, case, && and
// ||, also those of function literals in it.
func complexity(fn ast.Node) int {
	n := 1
	ast.Inspect(fn, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil { // default decides nothing
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

func TestComplexity(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		"":                                 1,
		"if a && b || c { return }":        4,
		"for range x { for { } }":          3,
		"switch x { case 1, 2: default: }": 2,
		"select { case <-c: default: }":    2,
		"f := func() { if a { } }; f()":    2,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package x\nfunc f() { "+body+" }", parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := complexity(f.Decls[0]); got != want {
			t.Errorf("complexity of %q = %d, want %d", body, got, want)
		}
	}
}
