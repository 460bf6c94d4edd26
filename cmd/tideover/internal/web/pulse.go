package web

import (
	"fmt"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

const (
	pulseWidth = 10 * time.Second // of a slice of time
	pulseCount = 60               // slices that are kept
)

// beats is what happened in a slice of time to the runs of users.
type beats struct {
	Began     int // runs
	Succeeded int // runs
	Failed    int // attempts
	Dead      int // runs
}

// pulse counts what happened in the last minutes. It goes by the times of events,
// so it needs no clock.
type pulse struct {
	mu    sync.Mutex
	slots [pulseCount]struct {
		at int64 // number of the slice of time
		beats
	}
}

// count counts an event. Those that are older than what is kept, and those of
// messages and sessions, are not.
func (p *pulse) count(ev *retry.Event) {
	if ev.Run == "" || api.Internal(ev.Name) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := ev.Time.UnixNano() / int64(pulseWidth)
	s := &p.slots[uint64(n)%pulseCount]
	if n < s.at {
		return
	}
	if n > s.at {
		s.at, s.beats = n, beats{}
	}
	switch ofRun := ev.Step == ""; {
	case ev.Kind == retry.RunStarted:
		s.Began++
	case ev.Kind == retry.AttemptFailed:
		s.Failed++
	case ev.Kind == retry.Succeeded && ofRun:
		s.Succeeded++
	case ev.Kind == retry.GaveUp && ofRun:
		s.Dead++
	}
}

// last returns what happened up to a time, the oldest slice first. The last one is
// not over.
func (p *pulse) last(now time.Time) (list [pulseCount]beats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := now.UnixNano() / int64(pulseWidth)
	for i := range list {
		at := n - pulseCount + 1 + int64(i)
		if s := &p.slots[uint64(at)%pulseCount]; s.at == at {
			list[i] = s.beats
		}
	}
	return list
}

// sparkline draws the pulse: runs that succeeded, and on top of them attempts that
// failed and runs that died.
type sparkline struct {
	Bars   []sparkBar
	Minute beats // what happened in the last minute
	All    beats // in all that is drawn
	Most   int   // the height of the drawing
	Span   time.Duration
	Width  time.Duration // of a bar
}

// sparkBar is a slice of time in which something happened. All measures are in
// percent.
type sparkBar struct {
	X, W  string
	Title string
	Parts []sparkPart
}

type sparkPart struct{ Y, H, Class string }

func (b *beats) add(o beats) {
	b.Began, b.Succeeded, b.Failed, b.Dead = b.Began+o.Began, b.Succeeded+o.Succeeded, b.Failed+o.Failed, b.Dead+o.Dead
}

func (b *beats) height() int { return b.Succeeded + b.Failed + b.Dead }

// newSparkline draws what happened up to a time.
func newSparkline(list [pulseCount]beats, now time.Time) sparkline {
	s := sparkline{Span: pulseCount * pulseWidth, Width: pulseWidth, Most: 1}
	for i := range list {
		s.All.add(list[i])
		if i >= pulseCount-int(time.Minute/pulseWidth) {
			s.Minute.add(list[i])
		}
		s.Most = max(s.Most, list[i].height())
	}
	end := now.Truncate(pulseWidth)
	for i := range list {
		if b := &list[i]; b.height() > 0 {
			s.Bars = append(s.Bars, s.bar(i, b, end.Add(time.Duration(i-pulseCount+1)*pulseWidth)))
		}
	}
	return s
}

func (s *sparkline) bar(i int, b *beats, at time.Time) sparkBar {
	const wide = 100.0 / pulseCount
	out := sparkBar{
		X: percent(float64(i) * wide), W: percent(wide * 0.8),
		Title: fmt.Sprintf("%s: %d succeeded, %s failed, %d gave up", at.Format(clockLayout), b.Succeeded, textfmt.Plural(b.Failed, "attempt"), b.Dead),
	}
	top := 100.0
	for _, part := range []struct {
		n     int
		class string
	}{{b.Succeeded, "succeeded"}, {b.Failed, "waiting"}, {b.Dead, "dead"}} {
		if part.n == 0 {
			continue
		}
		high := 100 * float64(part.n) / float64(s.Most)
		top -= high
		out.Parts = append(out.Parts, sparkPart{percent(top), percent(high), part.class})
	}
	return out
}

// Said is the drawing in words.
func (s sparkline) Said() string {
	return fmt.Sprintf("in the last %d minutes %s began, %d succeeded and %d gave up; %s failed",
		int(s.Span/time.Minute), textfmt.Plural(s.All.Began, "run"), s.All.Succeeded, s.All.Dead, textfmt.Plural(s.All.Failed, "attempt"))
}
