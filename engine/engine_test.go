package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/engine/journal/memlog"
)

type order struct{ ID string }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestAWorkflowGoesThrough(t *testing.T) {
	for _, mem := range []bool{true, false} {
		body := func(t *testing.T) {
			t.Helper()
			charged := 0
			w := must(NewWorkflow("order",
				Step("charge", func(ctx context.Context, o order) (string, error) {
					charged++
					if charged < 3 {
						return "", errors.New("flaky")
					}
					return "charged " + o.ID, nil
				}, Policy("fixed(20ms) attempts=5")),
				Step("pack", func(ctx context.Context, o order) (string, error) { return Result[string](ctx, "charge") }, After("charge")),
				Step("label", func(ctx context.Context, o order) (int, error) { return 42, nil }, After("charge")),
				Step("ship", func(ctx context.Context, o order) (string, error) {
					p, err := Result[string](ctx, "pack")
					return p + " and shipped", err
				}, After("pack", "label"))))
			cfg := Config{Workflows: []*Workflow{w}}
			if mem {
				cfg.Log = new(memlog.Store).Open()
			} else {
				cfg.Dir = t.TempDir()
			}
			e := must(Open(t.Context(), cfg))
			defer e.Close(context.Background())
			run := must(e.Start(t.Context(), w, order{"4711"}, Key("k")))
			again := must(e.Start(t.Context(), w, order{"4711"}, Key("k")))
			if again.ID != run.ID || !again.Existing {
				t.Errorf("a second start with the key is another run")
			}
			i, err := run.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if string(i.Output) != `"charged 4711 and shipped"` || i.State != "succeeded" {
				t.Errorf("%+v", i)
			}
		}
		if mem {
			synctest.Test(t, body)
		} else {
			body(t)
		}
	}
}
