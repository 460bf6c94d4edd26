package server

import (
	"context"
	"sync"

	"github.com/tideover/tideover/cmd/tideover/internal/tracing"
	"github.com/tideover/tideover/retry"
)

// openTracing sends spans, if somebody wants them, until stop is called, which is
// after everything else has ended.
func (s *server) openTracing(ctx context.Context) (stop func(), err error) {
	t := s.cfg.Tracing
	if t == nil {
		return func() {}, nil
	}
	s.spans, err = tracing.New(tracing.Options{
		Config: t, Secrets: s.cfg.Secrets(), Redact: s.Source.Redactor.String, Version: s.Version, Logger: s.Log,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = s.spans.Run(ctx) }) // which only ends when it is told to
	return func() { cancel(); running.Wait() }, nil
}

// record shows an event to those who keep it.
func (s *server) record(ev retry.Event) {
	if s.trail != nil {
		s.trail.Observe(ev)
	}
	if s.spans != nil {
		s.spans.Observe(ev)
	}
}
