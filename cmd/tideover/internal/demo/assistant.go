package demo

import (
	"context"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// assistant is the session of the demo's configuration.
const assistant = "demo-assistant"

// rest is how long the assistant has nothing to do when it is done.
const rest = 5 * time.Second

// Sessions are those of the server that shows the demo. A [*session.Manager] is one
// of these.
type Sessions interface {
	List(ctx context.Context) ([]session.Status, error)
	Resume(ctx context.Context, name, by string) error
}

// employ gives the assistant new work whenever it is done, until the context ends.
// One that somebody has stopped or paused is left alone.
func employ(ctx context.Context, all Sessions) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		list, err := all.List(ctx)
		if err != nil {
			continue // the engine ends, or says so itself
		}
		for _, st := range list {
			if st.Name == assistant && st.State == "completed" && st.Ended != nil && time.Since(*st.Ended) >= rest {
				_ = all.Resume(ctx, assistant, "the demo") // or in a second
			}
		}
	}
}
