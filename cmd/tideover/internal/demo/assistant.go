package demo

import (
	"context"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// assistant is the name of the session in the demo's configuration.
const assistant = "demo-assistant"

// rest is the time between the end of the session and its next start.
const rest = 5 * time.Second

// Sessions lists and resumes the sessions of the server that runs the demo. [*session.Manager]
// implements it.
type Sessions interface {
	List(ctx context.Context) ([]session.Status, error)
	Resume(ctx context.Context, name, by string) error
}

// resumeAssistant resumes the session of the assistant whenever it is completed, until the context
// ends. It does not resume a session that a user has stopped or paused.
func resumeAssistant(ctx context.Context, all Sessions) {
	for pause(ctx, time.Second) == nil {
		list, _ := all.List(ctx) // on an error, the list is empty; try again in a second
		for _, st := range list {
			if st.Name == assistant && st.State == "completed" && st.Ended != nil && time.Since(*st.Ended) >= rest {
				_ = all.Resume(ctx, assistant, "the demo") // on an error, try again in a second
			}
		}
	}
}
