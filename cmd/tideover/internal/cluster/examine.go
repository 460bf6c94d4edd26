package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/journal"
)

// examineTime is how long somebody who asks waits for all that servers say. For one
// to be there at all it is waited much shorter.
const examineTime = 30 * time.Second

// Examine returns what weakens the promise of the cluster. Servers that can't be
// reached, or refuse us, are a finding too.
func Examine(ctx context.Context, o Options) ([]journal.Finding, error) {
	c, err := o.log()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	defer cancel()
	list, err := jetstream.Check(ctx, c)
	if err != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		return []journal.Finding{{
			Severity: journal.Broken, What: o.Redact(err.Error()), Why: "nothing can be recorded",
			Do: "see that the servers run, that this machine reaches them, and that the credentials are right",
		}}, nil
	}
	return list, err
}
