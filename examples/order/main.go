// Order is the first example of docs/workflows.md: one workflow as code, in a program of one
// file. Kill it while it sleeps, and start it again: it continues.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tideover/tideover/engine"
)

type Order struct {
	ID    string
	Lines []string
}

type Receipt struct {
	Total int
	Held  []string
}

var order = engine.MustFlow("order", func(f *engine.Flow, in Order) (Receipt, error) {
	total, err := engine.Do(f, "price", func(ctx context.Context) (int, error) {
		return 25 * len(in.Lines), nil // call your service here
	}, engine.Policy("exponential(1s..1m) jitter=full attempts=5"))
	if err != nil {
		return Receipt{}, err
	}
	held, err := engine.Map(f, "reserve", in.Lines, reserve, engine.Parallel(8))
	if err != nil {
		return Receipt{}, err
	}
	if err := engine.Sleep(f, "cool-down", 10*time.Second); err != nil {
		return Receipt{}, err
	}
	return engine.Do(f, "ship", func(ctx context.Context) (Receipt, error) {
		fmt.Println("shipping", in.ID)
		return Receipt{total, held}, nil
	})
})

func reserve(ctx context.Context, line string) (string, error) {
	fmt.Println("reserving", line)
	return line + " is held", nil
}

func main() {
	ctx := context.Background()
	eng, err := engine.Open(ctx, engine.Config{Dir: "data", Workflows: []*engine.Workflow{order}})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close(ctx)

	run, err := eng.Start(ctx, order, Order{"4711", []string{"lamp", "desk"}}, engine.Key("order-4711"))
	if err != nil {
		log.Fatal(err)
	}
	info, err := run.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := engine.Output[Receipt](info)
	fmt.Println(receipt, err)
}
