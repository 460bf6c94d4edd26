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

// Other stands for all names that are not configured, so that there are never more
// labels than the configuration has names.
const Other = "other"

// prefixes begin the names of workflows that are not the file's.
var prefixes = []struct{ prefix, layer string }{
	{session.Prefix, Session}, {"notify.", Notification}, {"nip90.", Job},
}

// SubjectOf returns the layer of a workflow, and the name that people know it by.
func SubjectOf(workflow string) storm.Subject {
	for _, p := range prefixes {
		if name, ok := strings.CutPrefix(workflow, p.prefix); ok {
			return storm.Subject{Layer: p.layer, Name: name}
		}
	}
	return storm.Subject{Layer: Workflow, Name: workflow}
}

// WorkflowOf is the opposite of [SubjectOf].
func WorkflowOf(s storm.Subject) string {
	for _, p := range prefixes {
		if s.Layer == p.layer {
			return p.prefix + s.Name
		}
	}
	return s.Name
}
