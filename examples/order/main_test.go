package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

func TestOrder(t *testing.T) {
	run := enginetest.Run(t, order, Order{"4711", []string{"lamp", "desk"}})
	receipt, err := engine.Output[Receipt](run)
	if err != nil || receipt.Total != 50 || len(receipt.Held) != 2 {
		t.Errorf("%+v, %v", receipt, err)
	}
	if took := run.Ended.Sub(run.Created); took < 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// real clock: enginetest.Test runs the function in a bubble
func TestOrderSurvivesACrash(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		s, err := e.Start(t.Context(), order, Order{"4711", []string{"lamp"}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // virtual: the run is in its cool-down
		e.Crash()
		run, err := e.Wait(t.Context(), s.ID)
		if err != nil || run.State != "succeeded" {
			t.Errorf("%+v, %v", run, err)
		}
	}, order)
}

// The files have the histories of runs that this version of the workflow has started.
func TestDeploy(t *testing.T) {
	histories := enginetest.Histories(t, "testdata/*.json")
	enginetest.Replay(t, histories, order)
}

func TestADeadRunIsRepaired(t *testing.T) {
	broken := true
	order := engine.MustFlow("order", func(f *engine.Flow, _ struct{}) (string, error) {
		return engine.Do(f, "ship", func(context.Context) (string, error) {
			if broken {
				return "", retry.Permanent(errors.New("no address"))
			}
			return "shipped", nil
		})
	})
	enginetest.Test(t, func(t *testing.T, eng *enginetest.Engine) {
		ctx := t.Context()
		s, err := eng.Start(ctx, order, struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		if run, err := eng.Wait(ctx, s.ID); err != nil || run.State != engine.StateDead {
			t.Fatalf("%+v, %v", run, err)
		}
		broken = false
		page, err := eng.List(ctx, engine.Filter{Workflow: "order", States: []string{engine.StateDead}})
		for _, dead := range page.Runs { // 50 at most; set Filter.After to page.Next for more
			err = errors.Join(err, eng.Retry(ctx, dead.ID, "cli:ada")) // the history of the run names who retried it
		}
		if run, waiting := eng.Wait(ctx, s.ID); err != nil || waiting != nil || run.State != "succeeded" {
			t.Errorf("%+v, %v, %v", run, waiting, err)
		}
	}, order)
}

// The following functions have other snippets of docs/workflows-howto.md.

type Article struct{ ID string }

type Stock struct{}

func (Stock) Price(context.Context, Article) (int, error) { return 7, nil }

func (Stock) Order(_ context.Context, a Article) error {
	if a.ID == "desk" {
		return retry.Permanent(errors.New("sold out"))
	}
	return nil
}

type Basket struct{ Articles []Article }

// real clock: enginetest.Test runs the function in a bubble
func TestVersions(t *testing.T) {
	before := engine.MustFlow("changed", func(f *engine.Flow, in Basket) (int, error) {
		price, err := engine.Do(f, "price", func(ctx context.Context) (int, error) { return 40, nil })
		if err != nil {
			return 0, err
		}
		if _, err := engine.Do(f, "audit", func(ctx context.Context) (string, error) { return "", nil }); err != nil {
			return 0, err
		}
		return price, engine.Sleep(f, "night", 8*time.Hour)
	}, engine.Function(engine.Version("1")))

	after := engine.MustFlow("changed", func(f *engine.Flow, in Basket) (int, error) {
		engine.Renamed(f, "price", "quote") // runs that have a result of "price" use it for "quote"
		engine.Removed(f, "audit")          // runs that have a result of "audit" no longer need it
		engine.Added(f, "stock")            // runs that have passed the place of "stock" execute it now

		quote, err := engine.Do(f, "quote", func(ctx context.Context) (int, error) { return 50, nil })
		if err != nil {
			return 0, err
		}
		if _, err := engine.Do(f, "stock", func(ctx context.Context) (int, error) { return 3, nil }); err != nil {
			return 0, err
		}
		if f.Version() != "1" { // only runs that start from now on get the discount
			quote -= 5
		}
		return quote, engine.Sleep(f, "night", 8*time.Hour)
	}, engine.Function(engine.Version("2")))

	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		s, err := e.Start(t.Context(), before, Basket{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // virtual, like all waits here
		e.Crash(after)        // the process dies, and the next one has the new code
		run, err := e.Wait(t.Context(), s.ID)
		if err != nil || run.State != "succeeded" || string(run.Output) != "40" {
			t.Errorf("%+v, %v", run, err)
		}
		if run := e.Run(after, Basket{}); string(run.Output) != "45" {
			t.Errorf("a new run: %+v", run)
		}
	}, before) // the workflows that the engine has at first
}

// receive is a workflow whose operations share a policy.
func receive(f *engine.Flow, in Basket) (int, error) {
	var stock Stock
	sum := 0
	for _, article := range in.Articles {
		price, err := engine.Do(f, "price", func(ctx context.Context) (int, error) {
			return stock.Price(ctx, article)
		}, engine.ForKey(article.ID))
		if err != nil {
			return 0, err
		}
		sum += price
	}

	outcomes, err := engine.Collect(f, "order", in.Articles, func(ctx context.Context, a Article) (string, error) {
		return a.ID, stock.Order(ctx, a)
	})
	if err != nil {
		return 0, err
	}
	for i, o := range outcomes {
		if o.Err != nil {
			engine.SetStatus(f, "not ordered: "+in.Articles[i].ID)
		}
	}

	_, err = engine.Do(f, "charge", func(ctx context.Context) (string, error) {
		return "", retry.Permanent(engine.Coded("card-declined", errors.New("the card was declined")))
	})
	if failed, ok := errors.AsType[*engine.OpError](err); ok && failed.Code == "card-declined" {
		return engine.Do(f, "release", func(ctx context.Context) (int, error) { return -sum, nil })
	}
	return sum, err
}

func TestSnippets(t *testing.T) {
	w := engine.MustFlow("receive", receive,
		engine.Operations(engine.Policy("exponential(1s..1m) jitter=full attempts=5 attempt-timeout=30s")))
	run := enginetest.Run(t, w, Basket{[]Article{{"lamp"}, {"desk"}}})
	if string(run.Output) != "-14" || run.Status != "not ordered: desk" {
		t.Errorf("%s, status %q: %s", run.Output, run.Status, run.Error)
	}
}
