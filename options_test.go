package tideover_test

import (
	"go/ast"
	"go/parser"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// optionUses are calls that take options of package engine, and the options that fit.
var optionUses = []struct{ call, fits string }{
	{`engine.Step("s", step, %s)`, "After Policy WithPolicy Concurrency HeartbeatTimeout MaxLost MaxWindows Attempts Version"},
	{`engine.Call("s", "handler", nil, %s)`, "After Policy WithPolicy Concurrency HeartbeatTimeout MaxLost MaxWindows Attempts"},
	{`engine.Function(%s)`, "Policy WithPolicy MaxLost Version"},
	{`engine.Operations(%s)`, "Policy WithPolicy HeartbeatTimeout MaxLost MaxWindows Attempts"},
	{`engine.Operation("o", "kind", %s)`, "After Policy WithPolicy Concurrency MaxLost"},
	{`engine.Branch("b", branch, %s)`, "After"},
	{`engine.Do(f, "o", do, %s)`, "Policy WithPolicy HeartbeatTimeout MaxLost MaxWindows Attempts ForKey"},
	{`engine.DoUndo(f, "o", do, undo, %s)`, "Policy WithPolicy HeartbeatTimeout MaxLost MaxWindows Attempts ForKey UndoPolicy"},
	{`engine.Map(f, "o", items, each, %s)`, "Policy WithPolicy HeartbeatTimeout MaxLost MaxWindows Attempts ForKey Parallel Labels"},
	{`engine.Collect(f, "o", items, each, %s)`, "Policy WithPolicy HeartbeatTimeout MaxLost MaxWindows Attempts ForKey Parallel Labels"},
	{`engine.MapUndo(f, "o", items, each, undoEach, %s)`, "Policy WithPolicy HeartbeatTimeout MaxLost MaxWindows Attempts ForKey Parallel Labels UndoPolicy"},
	{`engine.Sleep(f, "o", 1, %s)`, "ForKey"},
	{`engine.Now(f, "o", %s)`, "ForKey"},
	{`engine.Random(f, "o", %s)`, "ForKey"},
	{`engine.Skip(f, "o", %s)`, "ForKey"},
	{`engine.Await[int](f, "o", %s)`, "ForKey Within"},
	{`engine.Ask(f, "o", engine.Question{}, %s)`, "ForKey Within"},
	{`engine.Child[int](f, "o", nil, 1, %s)`, "ForKey Detached"},
	{`engine.Children[int, int](f, "o", nil, items, %s)`, "ForKey Detached Parallel Labels"},
}

// options are the options of package engine by their names.
var options = map[string]string{
	"After": `("s")`, "Policy": `("")`, "WithPolicy": `(retry.Policy{})`, "Concurrency": `(1)`, "HeartbeatTimeout": `(1)`, "MaxLost": `(1)`, "MaxWindows": `(1)`,
	"Attempts": `()`, "Version": `("")`, "ForKey": `("")`, "Parallel": `(1)`, "Labels": `(nil)`, "Within": `(1)`, "Detached": `()`, "UndoPolicy": `("")`,
}

// Each option compiles where it has an effect, and nowhere else.
func TestOnlyOptionsThatFitCompile(t *testing.T) {
	t.Parallel()
	known := newSourceImporter(t)
	for _, use := range optionUses {
		fits := strings.Fields(use.fits)
		for name, args := range options {
			call := strings.Replace(use.call, "%s", "engine."+name+args, 1)
			err := compile(t, known, call)
			switch {
			case slices.Contains(fits, name) && err != nil:
				t.Errorf("%s does not compile: %v", call, err)
			case !slices.Contains(fits, name) && (err == nil || !strings.Contains(err.Error(), "missing method")):
				t.Errorf("%s: got %v, want the compiler to say that a method is missing", call, err)
			}
		}
	}
}

// compile type-checks a call in the function of a flow.
func compile(t *testing.T, known *sourceImporter, call string) (err error) {
	t.Helper()
	f, err := parser.ParseFile(known.fset, "", `package p

import (
	"context"

	"`+root+`/engine"
	"`+root+`/retry"
)

var _ retry.Policy

func p(f *engine.Flow) {
	items := []int{1}
	step := func(context.Context, int) (int, error) { return 0, nil }
	branch := func(*engine.Flow) error { return nil }
	do := func(context.Context) (int, error) { return 0, nil }
	undo := func(context.Context, *int) error { return nil }
	each := func(context.Context, int) (int, error) { return 0, nil }
	undoEach := func(context.Context, int, *int) error { return nil }
	_, _, _, _, _, _, _ = items, step, branch, do, undo, each, undoEach
	`+call+`
}
`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	config := known.config(false)
	config.Error = func(e error) {
		if err == nil {
			err = e
		}
	}
	_, _ = config.Check("p", known.fset, []*ast.File{f}, &types.Info{})
	return err
}
