package server

import (
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/metrics"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/cmd/tideover/internal/web"
	"github.com/tideover/tideover/gateway"
)

// attempts returns the attempts of all layers since the start.
func (s *server) attempts() map[storm.Subject]storm.Count {
	counts := s.tally.Counts()
	for name, l := range s.gateway.Loads() {
		counts[storm.Subject{Layer: metrics.Provider, Name: name}] = storm.Count{Attempts: l.Sent, First: l.Requests}
	}
	return counts
}

// stormy puts a storm into the stream of events, and into the log.
func (s *server) stormy(c storm.Change) {
	text := "retry storm"
	if c.Ended {
		text = "the retry storm is over"
	}
	s.Log.Warn(text, "layer", c.Layer, "name", c.Name, "amplification", c.Amplification, "attempts", c.Attempts, "since", c.Since)
	name := metrics.WorkflowOf(c.Subject)
	if c.Layer == metrics.Provider {
		name = gateway.EventPrefix + c.Name
	}
	s.tell(c.Event(name, time.Now()))
}

// storms returns those that go on, for the page.
func (s *server) storms(time.Time) (list []web.Storm) {
	for _, one := range s.alarm.Storms() {
		list = append(list, web.Storm{Layer: one.Layer, Name: one.Name, Ratio: one.Amplification, Since: one.Since})
	}
	return list
}
