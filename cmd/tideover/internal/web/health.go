package web

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/textfmt"
)

// healthBody is how the server is.
type healthBody struct {
	State    string // succeeded, waiting or failed, for the eye
	Said     string
	Totals   totals
	Error    string // why nothing is known of the engine
	Engine   bool   // there is one
	Findings []finding
	Doctor   bool // it was asked
	Facts    []fact
	Disk     []fact
	Reload   reloadRow
}

type finding struct {
	doctor.Finding
	State string // how it is shown
}

type fact struct{ Name, Text string }

// reloadRow is what became of the file of the configuration.
type reloadRow struct {
	At       time.Time
	Problems []string
}

// unrelated names no run: a page that follows it is not repainted for every event,
// but at every beat.
const unrelated = "-"

func (h *handler) health(w http.ResponseWriter, r *http.Request) {
	p, err := h.lookAtHealth(r.Context(), time.Now())
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	h.show(w, r, http.StatusOK, "health", p.data)
}

func (h *handler) liveHealth(w http.ResponseWriter, r *http.Request) {
	h.stream(w, r, unrelated, h.lookAtHealth)
}

func (h *handler) lookAtHealth(ctx context.Context, now time.Time) (part, error) {
	b := healthBody{Engine: h.Engine != nil, Doctor: h.Config != nil && h.Engine != nil || h.Findings != nil, Facts: h.process(now)}
	p := part{template: "health-live", moving: true, data: page{Title: "Health", Place: "health", Live: "/live/health", Now: now}}
	if b.Engine {
		h.lookAtEngine(ctx, &b)
		if ctx.Err() != nil {
			return p, ctx.Err()
		}
		p.data.Dead = h.deadCount(ctx)
	}
	list := h.checkup.findings(h, now)
	for _, f := range list {
		f.What, f.Why, f.Do = h.Redact(f.What), h.Redact(f.Why), h.Redact(f.Do)
		b.Findings = append(b.Findings, finding{f, severities[f.Severity]})
	}
	at, problem := h.reload()
	if b.Reload.At = at; problem != nil {
		b.Reload.Problems = strings.Split(h.Redact(problem.Error()), "\n")
	}
	broken, weak := severe(list)
	b.State, b.Said = verdict(broken+b.wrong(), weak)
	p.data.Body = b
	return p, nil
}

// lookAtEngine adds how the engine is. That it can't be asked is part of that.
func (h *handler) lookAtEngine(ctx context.Context, b *healthBody) {
	var err error
	if b.Totals, err = h.totals(ctx, true); err != nil {
		b.Error = h.Redact(err.Error())
	}
	b.Facts = append(b.Facts, ofEngine(&b.Totals.Stats)...)
	b.Disk = h.disk()
}

// wrong counts what is wrong with engine and configuration.
func (b *healthBody) wrong() (n int) {
	s := &b.Totals.Stats
	n = len(s.Troubles) + len(s.Warnings) + len(s.Missing)
	for _, bad := range []bool{b.Error != "", s.Stuck > 0, len(s.Silent) > 0, len(b.Reload.Problems) > 0} {
		if bad {
			n++
		}
	}
	return n
}

// verdict says how the server is.
func verdict(bad, weak int) (state, text string) {
	switch {
	case bad == 1:
		return "failed", "One thing is wrong."
	case bad > 1:
		return "failed", fmt.Sprintf("%d things are wrong.", bad)
	case weak > 0:
		return "waiting", "All works; what is promised is weaker than it could be."
	}
	return "succeeded", "All is well."
}

// severities are how findings are shown.
var severities = map[string]string{journal.Broken: "failed", journal.Weak: "waiting", journal.Note: ""}

// process returns what there is to say of the process.
func (h *handler) process(now time.Time) []fact {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}}
	metrics.Read(sample)
	size := func(i int) string {
		if sample[i].Value.Kind() != metrics.KindUint64 {
			return "unknown"
		}
		return textfmt.RoundedSize(sample[i].Value.Uint64() >> 20 << 20)
	}
	return []fact{
		{"version", strings.TrimPrefix(h.Version, "tideover ")},
		{"up for", spacedDuration(now.Sub(h.began))},
		{"memory in use", size(0)},
		{"memory of the process", size(1)},
		{"goroutines", fmt.Sprint(runtime.NumGoroutine())},
		{"pages that are open", fmt.Sprint(h.streams.Load())},
	}
}

// ofEngine returns what there is to say of the engine.
func ofEngine(s *engine.Stats) []fact {
	return []fact{
		{"attempts that run", fmt.Sprint(s.Running)},
		{"waits and deadlines", fmt.Sprint(s.Waiting)},
		{"runs that lists have yet to see", fmt.Sprint(s.Behind)},
		{"attempts that do not end", fmt.Sprint(s.Stuck)},
	}
}

// worthShowing is the size from which on a file is told of.
const worthShowing = 64 << 10

// disk returns what the data folder takes, and what is left.
func (h *handler) disk() (list []fact) {
	sizes, err := h.Engine.DiskUsage()
	if err != nil {
		return nil
	}
	sums, total := map[string]int64{}, int64(0)
	for name, n := range sizes {
		sums[part0(name)] += n
		total += n
	}
	for name, n := range sums {
		if n < worthShowing && name != "log.db" && name != "view.db" {
			delete(sums, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, fact{name, textfmt.RoundedSize(uint64(sums[name]))})
	}
	list = append(list, fact{"in all", textfmt.RoundedSize(uint64(total))})
	if c := h.config(); c != nil {
		if free, err := doctor.Free(c.Server.Data); err == nil {
			list = append(list, fact{"left on the disk", textfmt.RoundedSize(free >> 20 << 20)})
		}
	}
	return list
}

// part0 returns what a file of the engine's folder belongs to: the log and the view
// have files beside them, and others are in folders.
func part0(name string) string {
	if folder, _, ok := strings.Cut(strings.ReplaceAll(name, `\`, "/"), "/"); ok {
		return folder + "/"
	}
	name, _, _ = strings.Cut(name, "-") // log.db-wal
	return name
}

// config returns the configuration, or nil if nothing is known of it.
func (h *handler) config() *config.Config {
	if h.Config == nil {
		return nil
	}
	return h.Config()
}

// reload returns what became of the configuration when it was last read again.
func (h *handler) reload() (time.Time, error) {
	if h.Reload == nil {
		return time.Time{}, nil
	}
	return h.Reload()
}

// checkupTime is how old what the doctor says may be.
const checkupTime = 30 * time.Second

// checkup is what the doctor last said, for all pages.
type checkup struct {
	mu   sync.Mutex
	at   time.Time
	list []doctor.Finding
}

// findings returns what weakens the promises of the engine on this machine, and what
// is wrong with how the server is asked.
func (c *checkup) findings(h *handler, now time.Time) []doctor.Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.at) >= checkupTime {
		c.at, c.list = now, nil
		if cfg := h.config(); cfg != nil && h.Engine != nil {
			c.list = doctor.Folder{Path: cfg.Server.Data, Keeps: !h.Clustered, Lazy: cfg.Server.Durability == "os"}.Check()
		}
		if h.Findings != nil {
			c.list = append(c.list, h.Findings()...)
		}
	}
	return slices.Clone(c.list)
}

// severe counts the findings that break a promise, and those that weaken one.
func severe(list []doctor.Finding) (broken, weak int) {
	for _, f := range list {
		switch f.Severity {
		case journal.Broken:
			broken++
		case journal.Weak:
			weak++
		}
	}
	return broken, weak
}
