package web

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/textfmt"
)

// healthBody is the content of the page with the state of the server.
type healthBody struct {
	State    string // succeeded, waiting or failed, for the colour
	Said     string // the state in words
	Totals   pages.Totals
	Error    string // why the state of the engine is unknown
	Engine   bool   // the server has an engine
	Findings []finding
	Doctor   bool // the doctor has checked the server
	Facts    []pages.Fact
	Disk     []pages.Fact
	Reload   reloadRow
	Outputs  string // why outputs of attempts can't be stored; "" if they can
}

type finding struct {
	doctor.Finding
	State string // for the colour
	Label string // of its severity
}

// reloadRow is the result of the last reload of the configuration.
type reloadRow struct {
	At       time.Time
	Problems []string
}

// healthPage shows the state of the server.
type healthPage struct {
	server
	findings *findingsCache
	began    time.Time // when the server started
}

func (h healthPage) load(ctx context.Context, now time.Time) (pages.Part, error) {
	b := healthBody{Engine: h.HasEngine(), Facts: h.process(now)}
	p := pages.Part{Template: "health", Moving: true, Data: pages.Page{Title: "Health", Place: "health", Live: "/live/health", Now: now}}
	if b.Engine {
		h.addEngine(ctx, &b)
		if ctx.Err() != nil {
			return p, ctx.Err()
		}
		p.Data.Dead = h.DeadCount(ctx)
	}
	list, known := h.findings.list(h.control.System, now)
	b.Doctor = known
	for _, f := range list {
		f.What, f.Why, f.Do = h.redact(f.What), h.redact(f.Why), h.redact(f.Do)
		b.Findings = append(b.Findings, finding{f, severities[f.Severity], severityLabels[f.Severity]})
	}
	reload := h.control.System.Settings().Reload
	if b.Reload.At = reload.At; reload.Err != nil {
		b.Reload.Problems = strings.Split(h.redact(reload.Err.Error()), "\n")
	}
	broken, weak := severe(list)
	b.State, b.Said = verdict(broken+b.wrong(), weak)
	p.Data.Body = b
	return p, nil
}

// addEngine adds the state of the engine, or why it is unknown.
func (h healthPage) addEngine(ctx context.Context, b *healthBody) {
	var err error
	if b.Totals, err = h.Totals(ctx, true); err != nil {
		b.Error = h.redact(err.Error())
	}
	b.Facts = append(b.Facts, ofEngine(&b.Totals.Stats)...)
	b.Disk = h.disk()
	b.Outputs = h.redact(h.control.System.OutputProblem())
}

// wrong counts the problems of the engine and the configuration.
func (b *healthBody) wrong() (n int) {
	s := &b.Totals.Stats
	n = len(s.Troubles) + len(s.Warnings) + len(s.Missing)
	for _, bad := range []bool{b.Error != "", s.Stuck > 0, len(s.Silent) > 0, len(b.Reload.Problems) > 0, b.Outputs != ""} {
		if bad {
			n++
		}
	}
	return n
}

// verdict returns the state of the server, for the colour and in words.
func verdict(bad, weak int) (state, text string) {
	switch {
	case bad > 0:
		return "failed", "Unhealthy, " + textfmt.Plural(bad, "problem")
	case weak > 0:
		return "waiting", "Healthy, " + textfmt.Plural(weak, "warning")
	}
	return "succeeded", "Healthy"
}

// severities maps the severity of a finding to the state whose colour it has, and severityLabels to
// the name that the page shows.
var (
	severities     = map[string]string{journal.Broken: "failed", journal.Weak: "waiting", journal.Note: ""}
	severityLabels = map[string]string{journal.Broken: "problem", journal.Weak: "warning", journal.Note: "note"}
)

// process returns the version, uptime and memory use of the process, for the page.
func (h healthPage) process(now time.Time) []pages.Fact {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}}
	metrics.Read(sample)
	size := func(i int) string {
		if sample[i].Value.Kind() != metrics.KindUint64 {
			return "unknown"
		}
		return textfmt.RoundedSize(sample[i].Value.Uint64() >> 20 << 20)
	}
	return []pages.Fact{
		{Name: "version", Text: strings.TrimPrefix(h.control.System.Version(), "tideover ")},
		{Name: "uptime", Text: pages.SpacedDuration(now.Sub(h.began))},
		{Name: "heap in use", Text: size(0)},
		{Name: "memory in total", Text: size(1)},
		{Name: "goroutines", Text: fmt.Sprint(runtime.NumGoroutine())},
		{Name: "open pages", Text: fmt.Sprint(h.Open())},
	}
}

// ofEngine returns the counters of the engine, for the page.
func ofEngine(s *engine.Stats) []pages.Fact {
	return []pages.Fact{
		{Name: "running attempts", Text: fmt.Sprint(s.Running)},
		{Name: "waits and deadlines", Text: fmt.Sprint(s.Waiting)},
		{Name: "runs not indexed yet", Text: fmt.Sprint(s.Behind)},
		{Name: "attempts that ignore cancellation", Text: fmt.Sprint(s.Stuck)},
	}
}

// worthShowing is the size in bytes from which on a group of files is listed.
const worthShowing = 64 << 10

// disk returns the size of the data folder, and the free space.
func (h healthPage) disk() (list []pages.Fact) {
	usage, err := h.control.System.DiskUsage()
	if err != nil {
		return nil
	}
	sums, total := map[string]int64{}, int64(0)
	for name, n := range usage.Files {
		sums[fileGroup(name)] += n
		total += n
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if n := sums[name]; n >= worthShowing || name == "log.db" || name == "view.db" {
			list = append(list, pages.Fact{Name: name, Text: textfmt.RoundedSize(uint64(n))})
		}
	}
	list = append(list, pages.Fact{Name: "total", Text: textfmt.RoundedSize(uint64(total))})
	if usage.Free > 0 {
		list = append(list, pages.Fact{Name: "free on the disk", Text: textfmt.RoundedSize(usage.Free >> 20 << 20)})
	}
	return list
}

// fileGroup returns the name under which a file of the data folder is counted: that of its folder, or
// that of the database to which it belongs.
func fileGroup(name string) string {
	if folder, _, ok := strings.Cut(strings.ReplaceAll(name, `\`, "/"), "/"); ok {
		return folder + "/"
	}
	name, _, _ = strings.Cut(name, "-") // log.db-wal
	return name
}

// findingsAge is how old the cached findings of the doctor may be.
const findingsAge = 30 * time.Second

// findingsCache caches the findings of the doctor for all pages.
type findingsCache struct {
	mu    sync.Mutex
	at    time.Time
	last  []doctor.Finding
	known bool
}

// list returns the findings about the machine and the addresses. It returns false if the server has
// no such checks.
func (c *findingsCache) list(s *admin.System, now time.Time) ([]doctor.Finding, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.at) >= findingsAge {
		c.at = now
		c.last, c.known = s.Findings()
	}
	return slices.Clone(c.last), c.known
}

// severe counts the findings with the severities broken and weak.
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
