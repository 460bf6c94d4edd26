package tideover_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// realClock starts the comment that gives the reason for a use of the real
// clock. The comment is on the line of the use, on the line above it, or in the
// doc comment of the function, where it applies to the whole function.
const realClock = "real clock: "

// shortTimeout is the limit below which a timeout counts as a use of the real clock.
const shortTimeout = 10 * time.Second

// TestUsesOfTheRealClockHaveAReason finds the places where the outcome of a test may
// depend on the speed of the machine: a sleep, a timer, an elapsed time, a comparison with
// the current time, a timeout below ten seconds. Code in a bubble of testing/synctest and
// benchmarks are free to do that; every other place needs a reason. With -v it lists them.
//
// A wait for a condition belongs to internal/testwait.
func TestUsesOfTheRealClockHaveAReason(t *testing.T) {
	t.Parallel()
	uses := 0
	for _, files := range testFiles(t) {
		p := newClockPackage(t, files)
		for _, u := range p.uses() {
			uses++
			if u.reason == "" {
				t.Errorf("%s: %s uses the real clock: run it in testing/synctest, wait for a condition with internal/testwait, or give the reason in a comment `// %s…`", u.at, u.what, realClock)
				continue
			}
			t.Logf("%s: %s: %s", u.at, u.what, u.reason)
		}
	}
	t.Logf("%d uses of the real clock", uses)
}

func TestUsesOfTheRealClockAreFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		source string
		want   string // uses that have no reason
	}{
		"a sleep":                   {`func TestX(t *testing.T) { time.Sleep(1) }`, "time.Sleep"},
		"an elapsed time":           {`func TestX(t *testing.T) { if time.Since(start) > limit { t.Fail() } }`, "time.Since"},
		"a limit":                   {`func TestX(t *testing.T) { for !time.Now().After(limit) {} }`, "a comparison with time.Now"},
		"a short timeout":           {`func TestX(t *testing.T) { context.WithTimeout(ctx, 9*time.Second) }`, "context.WithTimeout of 9s"},
		"a constant":                {"const short = time.Second / 2\nfunc TestX(t *testing.T) { context.WithTimeout(ctx, short) }", "context.WithTimeout of 500ms"},
		"a timeout of a client":     {`func TestX(t *testing.T) { _ = http.Client{Timeout: time.Second} }`, "Client.Timeout of 1s"},
		"a deadline of a socket":    {`func TestX(t *testing.T) { c.SetDeadline(time.Now().Add(time.Second)) }`, "SetDeadline of 1s"},
		"a long timeout":            {`func TestX(t *testing.T) { context.WithTimeout(ctx, 10*time.Second) }`, ""},
		"in a bubble":               {`func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`, ""},
		"beside a bubble":           {`func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) {}); time.Sleep(1) }`, "time.Sleep"},
		"for bubbles only":          {"func nap() { time.Sleep(1) }\nfunc TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { nap() }) }", ""},
		"for a bubble and a test":   {"func nap() { time.Sleep(1) }\nfunc TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { nap() }); nap() }", "time.Sleep"},
		"for nothing":               {"func nap() { time.Sleep(1) }", "time.Sleep"},
		"a helper with a bubble":    {"func bubble(t *testing.T, f func()) { synctest.Test(t, func(t *testing.T) { f() }) }\nfunc TestX(t *testing.T) { bubble(t, func() { time.Sleep(1) }) }", ""},
		"a reason on the line":      {"func TestX(t *testing.T) {\n\ttime.Sleep(1) // real clock: a pace\n}", ""},
		"a reason above":            {"func TestX(t *testing.T) {\n\t// real clock: a pace\n\ttime.Sleep(1)\n}", ""},
		"a reason for the function": {"// TestX waits. real clock: a pace\nfunc TestX(t *testing.T) {\n\n\ttime.Sleep(1)\n}", ""},
		"a reason for another line": {"func TestX(t *testing.T) {\n\t// real clock: a pace\n\n\n\ttime.Sleep(1)\n}", "time.Sleep"},
		"a benchmark":               {`func BenchmarkX(b *testing.B) { time.Since(start) }`, ""},
	} {
		file := filepath.Join(t.TempDir(), "x_test.go")
		if err := os.WriteFile(file, []byte("package x\n"+test.source), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range newClockPackage(t, []string{file}).uses() {
			if u.reason == "" {
				got = append(got, u.what)
			}
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: found %q, want %q", name, got, test.want)
		}
	}
}

// testFiles returns the files of tests and of packages for tests, by folder.
func testFiles(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		switch {
		case d.IsDir() && (path == "bench" || strings.HasPrefix(path, ".") && path != "."):
			return filepath.SkipDir // benchmarks measure the real clock
		case strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, ".go") && strings.HasSuffix(dir, "test"):
			found[dir] = append(found[dir], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// clockUse is one use of the real clock.
type clockUse struct {
	at     token.Position
	what   string
	reason string
}

// clockPackage is the syntax of the test files of one folder.
type clockPackage struct {
	fset      *token.FileSet
	files     []*ast.File
	functions []*ast.FuncDecl
	constants map[string]ast.Expr
	// bubbles are the ranges of the source that run in a bubble: arguments of
	// synctest.Test, and functions that only bubbles call.
	bubbles []*ast.BlockStmt
	starts  map[string]bool // the functions that run a parameter in a bubble
}

func newClockPackage(t *testing.T, names []string) *clockPackage {
	t.Helper()
	p := &clockPackage{fset: token.NewFileSet(), constants: map[string]ast.Expr{}, starts: map[string]bool{}}
	for _, name := range names {
		file, err := parser.ParseFile(p.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		p.files = append(p.files, file)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				p.functions = append(p.functions, f)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.ValueSpec); ok && len(s.Names) == len(s.Values) {
				for i, name := range s.Names {
					p.constants[name.Name] = s.Values[i]
				}
			}
			return true
		})
	}
	p.findBubbles()
	return p
}

// findBubbles fills bubbles.
func (p *clockPackage) findBubbles() {
	inBubble := map[*ast.Ident]bool{}
	for known := -1; known < len(p.starts); {
		known, p.bubbles = len(p.starts), nil
		for _, f := range p.functions {
			p.inspectBubbles(f.Body, func(arg ast.Expr) {
				switch arg := arg.(type) {
				case *ast.FuncLit:
					p.bubbles = append(p.bubbles, arg.Body)
				case *ast.Ident:
					inBubble[arg] = true
				}
			})
		}
		for _, f := range p.functions {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && (inBubble[id] || p.inBubble(id)) && isFunctionParameter(f, id.Name) {
					p.starts[f.Name.Name] = true
				}
				return true
			})
		}
	}
	// A function that is only referred to by code in bubbles runs in one itself. To
	// begin with, all functions are candidates but those that the test binary calls.
	candidates := map[string]bool{}
	for _, f := range p.functions {
		candidates[f.Name.Name] = !isRoot(f)
	}
	references := map[string][]*ast.Ident{}
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && candidates[id.Name] {
				references[id.Name] = append(references[id.Name], id)
			}
			return true
		})
	}
	bodies := map[string][]*ast.BlockStmt{}
	declared := map[*ast.Ident]bool{}
	for _, f := range p.functions {
		bodies[f.Name.Name] = append(bodies[f.Name.Name], f.Body)
		declared[f.Name] = true
	}
	inCandidate := func(id *ast.Ident) bool {
		for name, is := range candidates {
			if is && slices.ContainsFunc(bodies[name], func(b *ast.BlockStmt) bool { return contains(b, id) }) {
				return true
			}
		}
		return false
	}
	for changed := true; changed; {
		changed = false
		for _, name := range slices.Sorted(maps.Keys(candidates)) {
			if !candidates[name] {
				continue
			}
			calls := slices.DeleteFunc(slices.Clone(references[name]), func(id *ast.Ident) bool { return declared[id] })
			outside := slices.ContainsFunc(calls, func(id *ast.Ident) bool {
				return !inBubble[id] && !p.inBubble(id) && !inCandidate(id)
			})
			if len(calls) == 0 || outside {
				candidates[name], changed = false, true
			}
		}
	}
	for name, is := range candidates {
		if is {
			p.bubbles = append(p.bubbles, bodies[name]...)
		}
	}
}

// inspectBubbles calls visit with what may be run in a bubble: the arguments of
// synctest.Test, and of functions that run a parameter in a bubble.
func (p *clockPackage) inspectBubbles(body ast.Node, visit func(arg ast.Expr)) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if name := calledName(call); name == "synctest.Test" || name == "enginetest.Test" || p.starts[name] {
			for _, arg := range call.Args {
				visit(arg)
			}
		}
		return true
	})
}

func (p *clockPackage) inBubble(n ast.Node) bool {
	return slices.ContainsFunc(p.bubbles, func(b *ast.BlockStmt) bool { return contains(b, n) })
}

func contains(b *ast.BlockStmt, n ast.Node) bool { return b.Pos() <= n.Pos() && n.End() <= b.End() }

// isRoot reports whether the test binary calls the function.
func isRoot(f *ast.FuncDecl) bool {
	name := f.Name.Name
	return f.Recv == nil && (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") || isBenchmark(f))
}

func isBenchmark(f *ast.FuncDecl) bool { return strings.HasPrefix(f.Name.Name, "Benchmark") }

// isFunctionParameter reports whether the function has a parameter of the name that is a
// function.
func isFunctionParameter(f *ast.FuncDecl, name string) bool {
	for _, field := range f.Type.Params.List {
		if _, ok := field.Type.(*ast.FuncType); !ok {
			continue
		}
		if slices.ContainsFunc(field.Names, func(n *ast.Ident) bool { return n.Name == name }) {
			return true
		}
	}
	return false
}

// calledName returns the called function as it is written, without its type arguments.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return f.Sel.Name
	}
	return ""
}

// uses returns the uses of the real clock outside bubbles and benchmarks.
func (p *clockPackage) uses() (found []clockUse) {
	for _, file := range p.files {
		reasons := p.reasons(file)
		for _, d := range file.Decls {
			f, _ := d.(*ast.FuncDecl)
			if f != nil && isBenchmark(f) {
				continue
			}
			whole := ""
			if f != nil && f.Doc != nil {
				whole = reasonIn(f.Doc)
			}
			ast.Inspect(d, func(n ast.Node) bool {
				what := p.use(n)
				if what == "" || p.inBubble(n) {
					return true
				}
				at := p.fset.Position(n.Pos())
				found = append(found, clockUse{at, what, cmp.Or(reasons[at.Line], reasons[at.Line-1], whole)})
				return true
			})
		}
	}
	return found
}

// reasons returns the reasons in the file's comments, by the last line of the comment.
func (p *clockPackage) reasons(file *ast.File) map[int]string {
	found := map[int]string{}
	for _, group := range file.Comments {
		if reason := reasonIn(group); reason != "" {
			found[p.fset.Position(group.End()).Line] = reason
		}
	}
	return found
}

func reasonIn(group *ast.CommentGroup) string {
	_, reason, _ := strings.Cut(strings.ReplaceAll(group.Text(), "\n", " "), realClock)
	return strings.TrimSpace(reason)
}

// use returns how the node uses the clock, "" if it does not.
func (p *clockPackage) use(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := calledName(n)
		switch name {
		case "time.Sleep", "time.After", "time.NewTimer", "time.Tick", "time.NewTicker", "time.AfterFunc", "time.Since", "time.Until":
			return name
		case "context.WithTimeout", "context.WithTimeoutCause":
			return p.short(name, n.Args[1])
		}
		if s, ok := n.Fun.(*ast.SelectorExpr); ok {
			switch s.Sel.Name {
			case "After", "Before", "Sub", "Compare":
				if isNow(s.X) || len(n.Args) == 1 && isNow(n.Args[0]) {
					return "a comparison with time.Now"
				}
			case "SetDeadline", "SetReadDeadline", "SetWriteDeadline":
				if add, ok := n.Args[0].(*ast.CallExpr); ok && calledName(add) == "Add" {
					return p.short(s.Sel.Name, add.Args[0])
				}
			}
		}
	case *ast.CompositeLit:
		if s, ok := n.Type.(*ast.SelectorExpr); ok && (s.Sel.Name == "Client" || s.Sel.Name == "Dialer") {
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok && fmt.Sprint(kv.Key) == "Timeout" {
					return p.short(s.Sel.Name+".Timeout", kv.Value)
				}
			}
		}
	}
	return ""
}

// isNow reports whether the expression is time.Now().
func isNow(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && calledName(call) == "time.Now"
}

// short returns a description of the timeout if it is known to be short.
func (p *clockPackage) short(name string, d ast.Expr) string {
	v, ok := p.value(d, 0)
	if !ok || v <= 0 || v >= float64(shortTimeout) {
		return ""
	}
	return fmt.Sprintf("%s of %v", name, time.Duration(v))
}

var units = map[string]time.Duration{
	"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
	"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

// value returns the value of an expression of literals, units of time and constants.
func (p *clockPackage) value(e ast.Expr, depth int) (float64, bool) {
	if depth > 10 {
		return 0, false
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		v, err := strconv.ParseFloat(strings.ReplaceAll(e.Value, "_", ""), 64)
		return v, err == nil
	case *ast.SelectorExpr:
		unit, ok := units[e.Sel.Name]
		return float64(unit), ok
	case *ast.ParenExpr:
		return p.value(e.X, depth+1)
	case *ast.Ident:
		if c := p.constants[e.Name]; c != nil {
			return p.value(c, depth+1)
		}
	case *ast.BinaryExpr:
		x, okX := p.value(e.X, depth+1)
		y, okY := p.value(e.Y, depth+1)
		switch {
		case !okX || !okY:
		case e.Op == token.MUL:
			return x * y, true
		case e.Op == token.QUO:
			return x / y, true
		case e.Op == token.ADD:
			return x + y, true
		}
	}
	return 0, false
}
