package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/engine"
)

// writers are the names of the competing writers.
var writers = []string{"ann", "bob", "cyd", "dee", "eve"}

// ledger is a store that writers compete for. It accepts a write only if the writer knows the
// current version.
type ledger struct {
	mu   sync.Mutex
	last page
}

// page is the current entry of the ledger.
type page struct {
	Version int
	By      string
}

// String describes the entry, for the progress of a writer whose write was rejected.
func (p page) String() string { return fmt.Sprintf("version %d of %s", p.Version, p.By) }

func (l *ledger) read() page {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// write writes the entry with the number version+1, if version is the current one. It returns the
// current entry, and whether the entry was written.
func (l *ledger) write(version int, by string) (now page, won bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if won = l.last.Version == version; won {
		l.last = page{version + 1, by}
	}
	return l.last, won
}

// entry is the result of one writer.
type entry struct {
	Version   int      `json:"version"`           // version that was written
	Proposals int      `json:"proposals"`         // number of tries
	LostTo    []string `json:"lost_to,omitempty"` // the writer of the current entry, for each rejected try
}

// round has the totals of all writers.
type round struct {
	Committed int `json:"committed"`
	Proposals int `json:"proposals"`
	Conflicts int `json:"conflicts"`
}

// contention returns the steps of a workflow: one step for each writer, all of which write to the
// ledger at the same time, and one that adds up their results.
func (d *Demo) contention() (parts []engine.Part) {
	for _, who := range writers {
		parts = append(parts, engine.Step(who, d.propose, engine.Policy("fixed(500ms) attempts=3")))
	}
	return append(parts, engine.Step("tally", tally, engine.After(writers...)))
}

// propose is the step of a writer. It writes an entry, and reports each conflict as progress.
func (d *Demo) propose(ctx context.Context, _ order) (entry, error) {
	t, _ := engine.TaskOf(ctx)
	return d.sign(ctx, t.Step, func(lost page) {
		_ = engine.Progress(ctx, "lost to "+lost.String()) // only information: an error does not matter
	})
}

// sign tries to write an entry until it succeeds, and calls lose after each conflict. Each try
// takes a while, so that other writers interfere.
func (d *Demo) sign(ctx context.Context, who string, lose func(page)) (e entry, err error) {
	base := d.ledger.read()
	e.Version, err = contend.Do(ctx, d.writer, func(ctx context.Context, try contend.Try) (int, error) {
		e.Proposals = try.Number
		if winner, ok := contend.Winner[page](try.Lost); ok {
			base = winner
		}
		if err := pause(ctx, 20*time.Millisecond+rand.N(60*time.Millisecond)); err != nil {
			return 0, err
		}
		now, won := d.ledger.write(base.Version, who)
		if !won {
			e.LostTo = append(e.LostTo, now.By)
			lose(now)
			return 0, contend.Lost(now, nil)
		}
		return now.Version, nil
	})
	return e, err
}

// tally adds up the results of the writers.
func tally(ctx context.Context, _ order) (sum round, err error) {
	for _, who := range writers {
		e, err := engine.Result[entry](ctx, who)
		if err != nil {
			return sum, err
		}
		sum.Committed++
		sum.Proposals += e.Proposals
		sum.Conflicts += len(e.LostTo)
	}
	return sum, nil
}
