package main

import (
	"context"
	"fmt"

	"github.com/tideover/tideover/engine"
)

// Survey is the input of the workflow children: a product is reviewed in several countries.
type Survey struct {
	Product   string
	Countries []string
}

// survey starts a run of another workflow for each country, waits for all, and writes a report.
// Each child has its own history, retries and timeout, and can be seen and retried alone.
func (s *service) survey(review *engine.Workflow) func(*engine.Flow, Survey) (string, error) {
	return func(f *engine.Flow, in Survey) (string, error) {
		var inputs []Review
		for _, country := range in.Countries {
			inputs = append(inputs, Review{in.Product, country})
		}
		stars, err := engine.Children[Review, int](f, "review", review, inputs, engine.Parallel(8))
		if err != nil {
			return "", err // no further child begins, and those that have begun have ended
		}
		sum := 0
		for _, n := range stars {
			sum += n
		}
		return engine.Do(f, "report", func(ctx context.Context) (string, error) {
			return s.call(ctx, fmt.Sprintf("report on %s: %d stars in %d countries", in.Product, sum, len(stars)))
		})
	}
}

// Review is the input of a child.
type Review struct{ Product, Country string }

// review is the workflow of a child.
func (s *service) review(f *engine.Flow, in Review) (int, error) {
	_, err := engine.Do(f, "ask", func(ctx context.Context) (string, error) {
		return s.call(ctx, fmt.Sprintf("ask %s about %s", in.Country, in.Product))
	})
	return 4, err
}

func exampleSurvey(i int) Survey {
	return Survey{fmt.Sprintf("product-%d", i), []string{"at", "de", "fr", "it", "nl", "pl", "pt", "se"}}
}
