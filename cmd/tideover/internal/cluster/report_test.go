package cluster

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

func TestNewAndPastFindingsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lag := func(n string) journal.Finding {
			return journal.Finding{Severity: journal.Weak, What: "server b is " + n + " behind", Why: "w", Do: "d"}
		}
		gone := journal.Finding{Severity: journal.Broken, What: "server c is not there", Why: "w", Do: "d"}
		note := journal.Finding{Severity: journal.Note, What: "worth knowing"}
		answers := []struct {
			found []journal.Finding
			err   error
			want  string
		}{
			{[]journal.Finding{lag("3"), note}, nil, "WARN server b is 3 behind\n"},
			{[]journal.Finding{lag("5")}, nil, ""},
			{[]journal.Finding{lag("7"), gone}, nil, "ERROR server c is not there\n"},
			{nil, errors.New("oops"), "WARN oops\n"},
			{nil, errors.New("oops"), ""},
			{[]journal.Finding{lag("9")}, nil, "INFO server c is not there\n"},
			{nil, nil, "INFO server b is 9 behind\n"},
			{nil, nil, ""},
		}
		var text pad
		log := slog.New(slog.NewTextHandler(&text, nil))
		turn := 0
		look := func(context.Context) ([]journal.Finding, error) {
			a := answers[min(turn, len(answers)-1)]
			turn++
			return a.found, a.err
		}
		w := NewWatcher(look, log)
		if list := w.Findings(); len(list) != 1 || list[0].Severity != journal.Note {
			t.Errorf("before the first check: %v", list)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			w.Run(ctx)
			close(done)
		}()
		for i, a := range answers {
			synctest.Wait()
			if got := told(text.take()); got != a.want {
				t.Errorf("check %d: the log says %q; want %q", i+1, got, a.want)
			}
			kept := w.Findings()
			if a.err == nil && !slices.Equal(kept, a.found) || a.err != nil && (len(kept) != 1 || kept[0].Severity != journal.Weak || !strings.Contains(kept[0].What, a.err.Error())) {
				t.Errorf("check %d: the findings are %v; want %v, %v", i+1, kept, a.found, a.err)
			}
			time.Sleep(checkEvery)
		}
		cancel()
		<-done
	})
}

// pad is a writer that keeps the text that was written since the last call of take.
type pad struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *pad) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *pad) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.text.Reset()
	return p.text.String()
}

// told returns the level and the attribute what, or else error, of each log line.
func told(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		_, level, _ := strings.Cut(line, "level=")
		level, _, _ = strings.Cut(level, " ")
		_, what, ok := strings.Cut(line, ` what="`)
		if !ok {
			_, what, _ = strings.Cut(line, " error=")
			what, _, _ = strings.Cut(what, " ")
		}
		what, _, _ = strings.Cut(what, `"`)
		b.WriteString(level + " " + what + "\n")
	}
	return b.String()
}
