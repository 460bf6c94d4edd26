package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/boottime"
	"github.com/tideover/tideover/retry"
)

// Config says how an engine works. Dir or Log must be set.
type Config struct {
	// Dir is the folder that keeps everything. It is made if it is not there.
	// One process at a time can use it.
	Dir string

	// Log keeps the log instead of a folder. One that is a journal.Cluster is shared
	// with other processes: then Dir is where this one keeps what it lists and
	// searches, and may be lost.
	Log journal.Log

	// Durability says when something is stored. The zero value means on disk.
	Durability Durability

	// Workflows are those whose runs this process can work on. A workflow that is
	// given to Start is added.
	Workflows []*Workflow

	// Handlers do the work of steps that are data, by name.
	Handlers map[string]Handler

	// Concurrency is how many attempts are made at once. 0 means 256. An attempt whose
	// handler waits for another run by Wait counts: see [Engine.Wait].
	Concurrency int

	// Retention is how long runs are kept that succeeded or were canceled. 0 means
	// 14 days.
	Retention time.Duration

	// DeadRetention is how long dead runs are kept. 0 means 90 days.
	DeadRetention time.Duration

	// MaxPayload is the size of the largest input or output. 0 means 256 KiB,
	// more than 512 KiB is refused.
	MaxPayload int

	// Grace is how long an attempt may take to end after its context has, before
	// it is held to be stuck. 0 means 10 seconds.
	Grace time.Duration

	// Logger gets what an operator should know. nil means slog.Default.
	Logger *slog.Logger

	// Observer is shown all events, in order. It must not block for long: events
	// are dropped, and counted, when it is too far behind.
	Observer func(retry.Event)

	// Redact is applied to the text of every error before it is stored or shown.
	Redact func(string) string

	// Rand draws the randomness of waits and ids. nil means a good source; a test
	// wants the same one every time. It is called by one goroutine.
	Rand func() uint64

	snapshotAfter int64                          // bytes of log between snapshots, at least; tests want them often
	maxCalls      int                            // requests of other processes that are handled at once; tests want few
	uptime        func() (time.Duration, string) // time since boot, and the boot's id; nil reads the machine's; virtual time has none
}

// Durability says when something is stored.
type Durability int

// The durabilities.
const (
	Full Durability = iota // on disk before the answer: survives the loss of power
	OS                     // with the operating system: survives the end of the process
)

const (
	maxPayload = 512 << 10
	maxError   = 4 << 10
)

// withDefaults returns the config with its zero values replaced.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	check := func(name string, v int64) {
		if v < 0 {
			errs = append(errs, fmt.Errorf("%s: %d is negative", name, v))
		}
	}
	check("Concurrency", int64(c.Concurrency))
	check("Retention", int64(c.Retention))
	check("DeadRetention", int64(c.DeadRetention))
	check("MaxPayload", int64(c.MaxPayload))
	check("Grace", int64(c.Grace))
	if c.MaxPayload > maxPayload {
		errs = append(errs, fmt.Errorf("MaxPayload: %d is more than %d", c.MaxPayload, maxPayload))
	}
	if _, cluster := c.Log.(journal.Cluster); !cluster && (c.Dir == "") == (c.Log == nil) {
		errs = append(errs, errors.New("set either Dir or Log"))
	}
	c.Concurrency = cmp.Or(c.Concurrency, 256)
	c.Retention = cmp.Or(c.Retention, 14*24*time.Hour)
	c.DeadRetention = cmp.Or(c.DeadRetention, 90*24*time.Hour)
	c.MaxPayload = cmp.Or(c.MaxPayload, 256<<10)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	c.maxCalls = cmp.Or(c.maxCalls, maxCalls)
	c.snapshotAfter = cmp.Or(c.snapshotAfter, snapshotAfter)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.uptime == nil {
		c.uptime = boottime.Elapsed
	}
	if c.Redact == nil {
		c.Redact = func(s string) string { return s }
	}
	return c, errors.Join(errs...)
}
