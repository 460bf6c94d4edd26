//go:build !race

package sim

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/testfile"
)

var science = flag.Bool("science", false, "run everything at full size, and compare the results with docs/science.md; with -update write them")

const sciencePage = "../docs/science.md"

// TestScience writes the tables of docs/science.md: make science.
func TestScience(t *testing.T) {
	if !*science {
		return // the anchors have their own tests
	}
	*full = true
	testfile.Section(t, sciencePage, "herd", herds(t))
	testfile.Section(t, sciencePage, "long period", longPeriods(t))
	testfile.Section(t, sciencePage, "cap", caps())
	testfile.Section(t, sciencePage, "devices", groups(t))
	var doc strings.Builder
	for _, a := range []struct {
		head string
		test func(*testing.T)
	}{
		{"Optimistic writers with attempts=unlimited (seconds; calls of a writer)", TestAnchorOptimisticWriters},
		{"Colliding proposals (share of the runs in which all commit)", TestAnchorGroup},
		{"Colliding proposals of a register with three acceptors", TestAnchorRegister},
		{"Metastable failure", TestAnchorMetastableFailure},
		{"Layers", TestAnchorLayers},
		{"Token bucket", TestAnchorTokenBucket},
		{"Hedging", TestAnchorHedging},
		{"M/M/1 (seconds)", TestAnchorMM1},
		{"Rate limit (seconds; calls of a client)", TestAnchorRateLimit},
	} {
		rows = nil
		passed := t.Run(a.head, a.test)
		fmt.Fprintf(&doc, "\n### %s\n\n", a.head)
		if !passed {
			doc.WriteString("This anchor does not hold.\n\n")
		}
		if len(rows) == 0 {
			doc.WriteString("This anchor compares two policies and has no expected numbers. The comparison holds.\n")
			continue
		}
		doc.WriteString(table(rows))
	}
	testfile.Section(t, sciencePage, "anchors", doc.String())
}

// table formats the rows of an anchor. Rows that have several measures of one case, such as
// "herd: time" and "herd: calls", are one line. The heading says that attempts are unlimited.
func table(rows []measured) string {
	var names, cases []string
	cells := map[string]string{} // by case
	for _, r := range rows {
		about, name, found := strings.Cut(r.what, ": ")
		if !found {
			name = "measured"
		}
		about = strings.ReplaceAll(strings.ReplaceAll(about, " attempts=unlimited", ""), "|", "\\|")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if !slices.Contains(cases, about) {
			cases = append(cases, about)
		}
		cells[about] += fmt.Sprintf(" %s | %.4g |", written(r.got), r.want)
	}
	var doc strings.Builder
	fmt.Fprintf(&doc, "| | %s | expected |\n|%s\n", strings.Join(names, " | expected | "), strings.Repeat(" --- |", 1+2*len(names)))
	for _, about := range cases {
		fmt.Fprintf(&doc, "| %s |%s\n", about, cells[about])
	}
	return doc.String()
}

func TestTableHasALineForEachCase(t *testing.T) {
	t.Parallel()
	one, half := Estimate{Mean: 1}, Estimate{Mean: 0.5, Half: 0.01}
	for _, tt := range []struct {
		rows []measured
		want string
	}{
		{[]measured{{"p50", one, 1}}, "| | measured | expected |\n| --- | --- | --- |\n| p50 | 1 | 1 |\n"},
		{
			[]measured{{"herd attempts=unlimited N=2: time", half, 0.5}, {"herd attempts=unlimited N=2: calls", one, 1}},
			"| | time | expected | calls | expected |\n| --- | --- | --- | --- | --- |\n| herd N=2 | 0.500 ± 0.010 | 0.5 | 1 | 1 |\n",
		},
	} {
		if got := table(tt.rows); got != tt.want {
			t.Errorf("table(%v) = %q, want %q", tt.rows, got, tt.want)
		}
	}
}

// written formats an estimate with its significant digits.
func written(e Estimate) string {
	if e.Half == 0 {
		return fmt.Sprintf("%.4g", e.Mean)
	}
	digits := max(0, 1-int(math.Floor(math.Log10(e.Half))))
	return fmt.Sprintf("%.*f ± %.*f", digits, e.Mean, digits, e.Half)
}

// herds is the table of the peaks after a failure of all clients.
func herds(t *testing.T) string {
	t.Helper()
	var doc strings.Builder
	doc.WriteString("| bucket | peak of retries without jitter, divided by the peak with it |\n| --- | --- |\n")
	for _, bucket := range []time.Duration{10 * ms, 100 * ms, second} {
		s, _ := Preset("herd")
		s.Bucket, s.Clients.Start = bucket, 9*ms
		r := run(t, s, 200, contestant(t, "exponential(1s..32s) attempts=2"), contestant(t, "exponential(1s..32s) attempts=2 jitter=20%"))
		fmt.Fprintf(&doc, "| %v | %.3g |\n", bucket, r[0].PeakRetries.Mean/r[1].PeakRetries.Mean)
	}
	return doc.String()
}

// longPeriods is the table of the periods until clients are spread.
func longPeriods(t *testing.T) string {
	t.Helper()
	var doc strings.Builder
	doc.WriteString("| jitter | periods of 30 s until they are spread |\n| --- | --- |\n")
	for _, jitter := range []string{"10%", "50%", "full"} {
		fmt.Fprintf(&doc, "| %s | %d |\n", jitter, periods(t, "fixed(30s) attempts=unlimited jitter="+jitter))
	}
	return doc.String()
}

// caps is the table of the delays that are exactly the cap.
func caps() string {
	var doc strings.Builder
	doc.WriteString("| retry | each delay is cut to the cap | the range ends at the cap (this library) |\n| --- | --- | --- |\n")
	for k := 4; k <= 7; k++ {
		cut, ours := onTheCap(k)
		fmt.Fprintf(&doc, "| %d | %.1f %% | %.1f %% |\n", k, 100*cut, 100*ours)
	}
	return doc.String()
}

// periods returns the number of retries after which clients that began at the
// same time are spread: no second has more than twice the mean. It returns -1 if
// that takes more than 1000 retries.
func periods(t *testing.T, text string) int {
	t.Helper()
	const clients, window = 1000, 30
	p := policy(t, text)
	at := make([]float64, clients)
	root := newStream(1)
	for k := 1; k <= 1000; k++ {
		var seconds [window]int
		top := 0
		for i := range at {
			d := p.Delay(1, 0, root.derive(forClient, uint64(i)).draw(forBackoff, uint64(k)))
			at[i] += d.Seconds()
			n := &seconds[int(at[i])%window]
			*n++
			top = max(top, *n)
		}
		if top < 2*clients/window {
			return k
		}
	}
	return -1
}

// onTheCap returns the share of k-th delays that are exactly the cap: with
// samples cut off at the cap, and with our schedule.
func onTheCap(k int) (cut, ours float64) {
	const n, most = 100_000, 16 * second
	s := backoff.Schedule{Kind: backoff.Exponential, Base: second, Cap: most, Jitter: backoff.Wide}
	root := newStream(1)
	for i := range uint64(n) {
		u := root.draw(forBackoff, i)
		plain := min(second<<(k-1), 64*second)
		if min(time.Duration(float64(plain)*(0.5+unit(u))), most) == most {
			cut++
		}
		if s.Delay(k, 0, u) == most {
			ours++
		}
	}
	return cut / n, ours / n
}

// groups is the table of colliding proposals.
func groups(t *testing.T) string {
	t.Helper()
	var doc strings.Builder
	doc.WriteString("| message, one way | devices | old: devices | old: all | new: devices | new: all | after a partition, old: all | new: all |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	percent := func(e Estimate) string { return written(Estimate{100 * e.Mean, 100 * e.Half, e.N}) }
	for _, hop := range []time.Duration{ms, 10 * ms, 50 * ms} {
		for _, n := range []int{2, 3, 5, 7, 10, 20} {
			calm := run(t, devices(n, hop, 0), 400, oldPolicy(t), newPolicy(t))
			healed := run(t, devices(n, hop, 20), 400, oldPolicy(t), newPolicy(t))
			fmt.Fprintf(&doc, "| %v | %d | %s | %s | %s | %s | %s | %s |\n", hop, n, percent(calm[0].Success), percent(calm[0].All),
				percent(calm[1].Success), percent(calm[1].All), percent(healed[0].All), percent(healed[1].All))
		}
	}
	const far = "exponential(500ms..20s) jitter=1.0..1.5 attempts=11"
	r := run(t, devices(10, 50*ms, 0), 400, newPolicy(t), contestant(t, far))
	fmt.Fprintf(&doc, "\nWith `%s`, all ten devices at 50 ms commit in\n%s %% of the runs.\n", far, percent(r[1].All))
	return doc.String()
}
