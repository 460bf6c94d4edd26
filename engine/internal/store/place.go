package store

import (
	"context"
	"fmt"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// CallPolicy is how an answer of a cluster is waited for.
var CallPolicy = retry.Must("exponential(20ms..1s) jitter=full attempts=unlimited total-timeout=1m")

// Place says where the runs of a workflow are in a cluster. It is decided once.
type Place string

// The places. They are stored.
const (
	Undecided Place = ""
	Gathered  Place = "gathered" // in the shard of the workflow
	Spread    Place = "spread"   // in all shards
)

// PlaceOf returns where the runs of a workflow are. If that is not decided, and wanted is
// not [Undecided], it is decided to be wanted.
func PlaceOf(ctx context.Context, log journal.Cluster, workflow string, wanted Place) (Place, error) {
	place, err := retry.Value(ctx, CallPolicy, func(ctx context.Context) (string, error) {
		return log.Settle(ctx, "workflow."+workflow, string(wanted))
	})
	if err != nil {
		return Undecided, fmt.Errorf("where the runs of %s are: %w", workflow, err)
	}
	return Place(place), nil
}

// PlaceFor returns the place of runs that are, or are not, counted by a limit: only the
// owner of one shard can count them.
func PlaceFor(limited bool) Place {
	if limited {
		return Gathered
	}
	return Spread
}
