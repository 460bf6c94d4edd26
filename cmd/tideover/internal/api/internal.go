package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/tideover/tideover/engine"
)

// Names of workflows that are not a user's. The configuration refuses them.
const (
	sessionPrefix = "session."
	notifyPrefix  = "notify."
	giveUpSuffix  = ".on-give-up"
	jobPrefix     = "nip90."
	answers       = jobPrefix + "answer"
)

// Internal reports whether a workflow is one that tideover runs on its own
// account: a session, a message, the answer to a job, or what follows when a run
// gives up. Nobody starts or repeats its runs, and lists have them only on request.
func Internal(workflow string) bool {
	return workflow == answers || strings.HasPrefix(workflow, sessionPrefix) || strings.HasPrefix(workflow, notifyPrefix) || strings.HasSuffix(workflow, giveUpSuffix)
}

// Message reports whether a workflow sends messages, whose dead runs are messages
// that could not be sent.
func Message(workflow string) bool {
	return strings.HasPrefix(workflow, notifyPrefix) && !strings.HasSuffix(workflow, giveUpSuffix)
}

// InternalNames returns the names that [Internal] means, for a filter of the engine.
func InternalNames() []string {
	return []string{sessionPrefix + "*", notifyPrefix + "*", "*" + giveUpSuffix, answers}
}

// Startable refuses runs of workflows that are [Internal], and of jobs that customers
// ask for: neither started nor in the place of others.
func Startable(workflow string) error {
	if !Internal(workflow) && !strings.HasPrefix(workflow, jobPrefix) {
		return nil
	}
	p := &Problem{Status: http.StatusConflict, Code: CodeState}
	switch {
	case strings.HasSuffix(workflow, giveUpSuffix):
		p.Message = workflow + " is started when a run gives up"
		p.Hint = "retry the one that failed"
	case strings.HasPrefix(workflow, sessionPrefix):
		p.Message = workflow + " is a session; use tideover sessions"
	case strings.HasPrefix(workflow, jobPrefix):
		p.Message = workflow + " is started by who asks for it over Nostr"
		p.Hint = "use tideover nip90 request"
	default:
		p.Message = workflow + " sends messages"
		p.Hint = "use tideover notify"
	}
	return p
}

// exclude returns the workflows that a filter leaves out. One that is named is
// meant.
func (f *Filter) exclude() []string {
	if f.Internal || f.Workflow != "" {
		return nil
	}
	return InternalNames()
}

// named refuses the name of a workflow that there is not, and of which there never
// was a run.
func (s *server) named(ctx context.Context, workflow string) error {
	if _, ok := s.engine.Workflow(workflow); ok || workflow == "" {
		return nil
	}
	stats, err := s.engine.Stats(ctx)
	if err != nil {
		return err
	}
	for _, w := range stats.Workflows {
		if w.Name == workflow {
			return nil
		}
	}
	page, err := s.engine.List(ctx, engine.Filter{Workflow: workflow, Limit: 1})
	if err != nil || len(page.Runs) > 0 {
		return err
	}
	return &Problem{
		Status: http.StatusNotFound, Code: CodeNotFound, Message: "there is no workflow " + excerpt(workflow), Hint: s.known(),
	}
}
