package store

import (
	"context"
	"fmt"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// CallPolicy is the retry policy of requests in a cluster.
var CallPolicy = retry.Must("exponential(20ms..1s) jitter=full attempts=unlimited total-timeout=1m")

// Place says in which shards of a cluster the runs of a workflow are. It is decided once and
// never changes.
type Place string

// The places. The values are stored.
const (
	Undecided Place = ""
	Gathered  Place = "gathered" // all runs are in one shard
	Spread    Place = "spread"   // the runs are in all shards
)

// PlaceOf returns the place of a workflow. If it is not decided yet, PlaceOf decides for wanted,
// unless wanted is [Undecided].
func PlaceOf(ctx context.Context, log journal.Cluster, workflow string, wanted Place) (Place, error) {
	place, err := retry.Value(ctx, CallPolicy, func(ctx context.Context) (string, error) {
		return log.Settle(ctx, "workflow."+workflow, string(wanted))
	})
	if err != nil {
		return Undecided, fmt.Errorf("can't determine in which shards the runs of workflow %q are: %w", workflow, err)
	}
	return Place(place), nil
}

// PlaceFor returns the place for a workflow with or without a limit of runs or attempts. Runs
// with a limit must be in one shard, because its owner counts them.
func PlaceFor(limited bool) Place {
	if limited {
		return Gathered
	}
	return Spread
}
