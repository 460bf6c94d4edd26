package demo

import (
	"context"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// assistant is the name of the session in the demo's configuration.
const assistant = "demo-assistant"

// rest is the pause of the assistant between two tasks.
const rest = 5 * time.Second

// Sessions are the sessions of the server that runs the demo. [*session.Manager] implements it.
type Sessions interface {
	List(ctx context.Context) ([]session.Status, error)
	Resume(ctx context.Context, name, by string) error
}

// resumeAssistant starts the assistant again whenever it has completed its work, until the context
// ends. An assistant that a user has stopped or paused stays as it is.
func resumeAssistant(ctx context.Context, all Sessions) {
	for pause(ctx, time.Second) == nil {
		list, _ := all.List(ctx) // on an error, the engine is shutting down, or logs it itself
		for _, st := range list {
			if st.Name == assistant && st.State == "completed" && st.Ended != nil && time.Since(*st.Ended) >= rest {
				_ = all.Resume(ctx, assistant, "the demo") // on an error, try again in a second
			}
		}
	}
}
