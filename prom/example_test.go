package prom_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/prom"
	"github.com/tideover/tideover/retry"
)

func Example() {
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	metrics := prom.Must(registry)
	door := breaker.Must(breaker.Config{}, breaker.WithName("billing"))
	metrics.Breaker(door)
	api := retry.Must("fixed(1ms) attempts=3", retry.WithName("billing"), retry.WithBreaker(door), metrics.Observe())

	left := 1
	_ = api.Do(context.Background(), func(context.Context) error {
		if left--; left >= 0 {
			return errors.New("busy")
		}
		return nil
	})

	families, _ := registry.Gather()
	for _, f := range families {
		if f.GetName() == "tideover_attempts_total" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	// Output: tideover_attempts_total 2
}
