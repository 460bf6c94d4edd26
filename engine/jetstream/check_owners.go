package jetstream

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// A shard that changes hands has nobody for a moment.
const (
	handTime = 5 * time.Second
	handStep = 250 * time.Millisecond
)

// checkOwners looks for shards that nobody works on.
func (x *examiner) checkOwners(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	var v *view
	for ctx.Err() == nil {
		records, revision, err := x.bucket.all(ctx)
		if err == nil {
			v, err = newView(records, revision, x.settings.Shards)
		}
		if err == nil && (len(v.members) == 0 || len(v.orphans()) == 0) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(handStep):
		}
	}
	switch {
	case v == nil: // what is wrong with the bucket has been said
	case len(v.members) == 0:
		x.add(Note, "start one", "nothing is worked on", "no process is in the cluster")
	case len(v.orphans()) > 0:
		x.add(Broken, "see the log of the processes, and `tideover cluster`", "runs of theirs stand still", "%s nobody: %s",
			textfmt.PluralOf(len(v.orphans()), "shard has", "shards have"), numbers(v.orphans()))
	}
}

// orphans returns the shards that no member owns.
func (v *view) orphans() (list []int) {
	for n, r := range v.shards {
		if _, there := v.members[r.Owner]; !there {
			list = append(list, n)
		}
	}
	return list
}

// numbers lists the first few.
func numbers(list []int) string {
	const most = 10
	var text []string
	for i, n := range list {
		if i == most {
			text = append(text, fmt.Sprintf("and %d more", len(list)-most))
			break
		}
		text = append(text, fmt.Sprint(n))
	}
	return strings.Join(text, ", ")
}
