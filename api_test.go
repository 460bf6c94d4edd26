package tideover_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// publicFile is a source file of a package that programs outside this repository can
// import. It has only the exported declarations.
type publicFile struct {
	*ast.File
	imports map[string]string // import path by the name that the file uses for it
	aliases map[string]string // unexported aliases of the package, and the internal type each stands for
}

// publicPackages returns the files of all public packages by import path.
func publicPackages(t *testing.T) map[string][]publicFile {
	t.Helper()
	public := map[string][]publicFile{}
	for _, p := range packages(t) {
		top, _, _ := strings.Cut(strings.TrimPrefix(p.ImportPath, root+"/"), "/")
		if !isInternal(p.ImportPath) && top != "cmd" && top != "bench" && top != "examples" && len(p.GoFiles) > 0 {
			public[p.ImportPath] = parsePublic(t, p)
		}
	}
	if len(public) < 15 {
		t.Fatalf("%d public packages", len(public))
	}
	return public
}

func isInternal(importPath string) bool {
	return slices.Contains(strings.Split(importPath, "/"), "internal")
}

// parsePublic parses the files of the package and removes what is not exported.
func parsePublic(t *testing.T, p sourcePackage) (files []publicFile) {
	t.Helper()
	aliases := map[string]string{}
	for _, name := range p.GoFiles {
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		f := publicFile{File: tree, imports: map[string]string{}, aliases: aliases}
		for _, imp := range tree.Imports {
			from, _ := strconv.Unquote(imp.Path.Value)
			name := path.Base(from)
			if imp.Name != nil {
				name = imp.Name.Name
			}
			f.imports[name] = from
		}
		f.findAliases()
		files = append(files, f)
	}
	for _, f := range files {
		ast.FileExports(f.File)
		f.Decls = slices.DeleteFunc(f.Decls, isMethodOfUnexported)
	}
	return files
}

// isMethodOfUnexported reports whether a declaration is a method of a type that is not exported. Such a method may
// implement an interface of an internal package.
func isMethodOfUnexported(d ast.Decl) bool {
	fn, ok := d.(*ast.FuncDecl)
	if !ok || fn.Recv == nil {
		return false
	}
	receiver := strings.TrimLeft(types.ExprString(fn.Recv.List[0].Type), "*")
	return !ast.IsExported(receiver)
}

// findAliases records the unexported aliases for internal types: a signature that
// mentions one mentions the internal type.
func (f publicFile) findAliases() {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			if s, ok := s.(*ast.TypeSpec); ok && s.Assign.IsValid() && !s.Name.IsExported() {
				for _, found := range f.internalTypes(s.Type) {
					f.aliases[s.Name.Name] = found
				}
			}
		}
	}
}

// signatures yields the name and the type of every exported declaration. Constants and
// variables without a type are left out.
func (f publicFile) signatures() iter.Seq2[string, ast.Expr] {
	return func(yield func(string, ast.Expr) bool) {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = types.ExprString(d.Recv.List[0].Type) + "." + name
				}
				if !yield(name, d.Type) {
					return
				}
			case *ast.GenDecl:
				for name, typ := range declared(d) {
					if !yield(name, typ) {
						return
					}
				}
			}
		}
	}
}

// declared returns the types and the typed values of the declaration.
func declared(g *ast.GenDecl) map[string]ast.Expr {
	list := map[string]ast.Expr{}
	for _, s := range g.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			list[s.Name.Name] = s.Type
		case *ast.ValueSpec:
			if s.Type != nil {
				list[s.Names[0].Name] = s.Type
			}
		}
	}
	return list
}

// internalTypes returns the types of internal packages that a type mentions.
func (f publicFile) internalTypes(typ ast.Expr) (found []string) {
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field: // without its names
			ast.Inspect(n.Type, visit)
			return false
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && isInternal(f.imports[pkg.Name]) {
				found = append(found, types.ExprString(n))
			}
			return false
		case *ast.Ident:
			if internal, ok := f.aliases[n.Name]; ok {
				found = append(found, internal)
			}
		}
		return true
	}
	ast.Inspect(typ, visit)
	return found
}

func TestNoPublicSignatureMentionsAnInternalType(t *testing.T) {
	t.Parallel()
	for pkg, files := range publicPackages(t) {
		for _, f := range files {
			for name, typ := range f.signatures() {
				for _, found := range f.internalTypes(typ) {
					t.Errorf("%s: %s mentions %s, which callers can't import", pkg, name, found)
				}
			}
		}
	}
}

// Three adjacent strings are easily confused, and the compiler cannot help.
func TestNoFunctionTakesThreeStringsInARow(t *testing.T) {
	t.Parallel()
	for pkg, files := range publicPackages(t) {
		for _, f := range files {
			for name, typ := range f.signatures() {
				ast.Inspect(typ, func(n ast.Node) bool {
					if fn, ok := n.(*ast.FuncType); ok && adjacentStrings(fn) >= 3 {
						t.Errorf("%s: %s takes three strings in a row; use a struct", pkg, name)
					}
					return true
				})
			}
		}
	}
}

// adjacentStrings returns the length of the longest row of string parameters.
func adjacentStrings(fn *ast.FuncType) (longest int) {
	row := 0
	for _, typ := range parameters(fn) {
		if typ != "string" {
			row = 0
			continue
		}
		row++
		longest = max(longest, row)
	}
	return longest
}

// parameters returns the types of the parameters, one for each.
func parameters(fn *ast.FuncType) (list []string) {
	for _, field := range fn.Params.List {
		list = append(list, slices.Repeat([]string{types.ExprString(field.Type)}, max(len(field.Names), 1))...)
	}
	return list
}

// Must is New that panics, and MustX is X or NewX that panics: with the same parameters
// and the same result, without the error. The first parameter of Must may also
// be the text form of the parameter of New.
func TestMustIsNewThatPanics(t *testing.T) {
	t.Parallel()
	seen := 0
	for pkg, files := range publicPackages(t) {
		functions := map[string]*ast.FuncDecl{}
		for _, f := range files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
					functions[fn.Name.Name] = fn
				}
			}
		}
		for name, must := range functions {
			if rest, ok := strings.CutPrefix(name, "Must"); ok {
				seen++
				plain := rest
				if functions[plain] == nil {
					plain = "New" + rest
				}
				if problem := checkMust(must, functions[plain]); problem != "" {
					t.Errorf("%s: %s: %s", pkg, name, problem)
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("%d functions Must; does the test find them?", seen)
	}
}

// checkMust returns what is wrong with a function that should panic where plain
// returns an error.
func checkMust(must, plain *ast.FuncDecl) string {
	if plain == nil {
		return "there is no function of the same name without Must"
	}
	if !strings.Contains(must.Doc.Text(), "panics") {
		return "its comment does not say that it panics"
	}
	got, want := parameters(must.Type), parameters(plain.Type)
	if params := must.Type.TypeParams; params != nil && len(params.List) == 1 && len(got) > 0 && got[0] == params.List[0].Names[0].Name {
		got[0] = strings.TrimSuffix(types.ExprString(params.List[0].Type), " | string")
	}
	if !slices.Equal(got, want) {
		return "it takes (" + strings.Join(got, ", ") + "), want (" + strings.Join(want, ", ") + ")"
	}
	results := must.Type.Results.List
	if first := plain.Type.Results.List[0]; len(results) != 1 || types.ExprString(results[0].Type) != types.ExprString(first.Type) {
		return "its result is not that of the function it calls"
	}
	return ""
}
