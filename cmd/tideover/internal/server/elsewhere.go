package server

import (
	"context"
	"errors"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
)

// unknownPause is how long work rests that needs what this process does not know.
const unknownPause = 30 * time.Second

// elsewhere lets work rest that names a provider or a notifier which is not in the
// file of this process. Alone, that is final. In a cluster, others may have the
// next version of the file already, or this one may still have the last.
func elsewhere(handlers map[string]engine.Handler) {
	for name, handle := range handlers {
		handlers[name] = func(ctx context.Context, t *engine.Task) ([]byte, error) {
			out, err := handle(ctx, t)
			if errors.Is(err, gateway.ErrUnknownProvider) || errors.Is(err, outbox.ErrUnknown) {
				return nil, engine.Snooze(unknownPause, err.Error())
			}
			return out, err
		}
	}
}
