package metrics

import (
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
)

// The layers that retry.
const (
	Workflow     = "workflow"
	Session      = "session"
	Notification = "notification"
	Job          = "job"
	Provider     = "provider"
)

// Other is the name for everything that is not configured, so that the number of labels is bounded
// by the configuration.
const Other = "other"

// prefixes are the prefixes of internal workflows.
var prefixes = []struct{ prefix, layer string }{
	{session.Prefix, Session}, {"notify.", Notification}, {"nip90.", Job},
}

// SubjectOf returns the layer and the display name of a workflow.
func SubjectOf(workflow string) storm.Subject {
	for _, p := range prefixes {
		if name, ok := strings.CutPrefix(workflow, p.prefix); ok {
			return storm.Subject{Layer: p.layer, Name: name}
		}
	}
	return storm.Subject{Layer: Workflow, Name: workflow}
}

// WorkflowOf is the inverse of [SubjectOf].
func WorkflowOf(s storm.Subject) string {
	for _, p := range prefixes {
		if s.Layer == p.layer {
			return p.prefix + s.Name
		}
	}
	return s.Name
}
