//go:build !race

package sim

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/backoff"
)

// science is the file that TestScience writes.
var science = flag.String("science", "", "run everything at full size, and write the document to this `file`")

// TestScience writes docs/science.md: make science.
func TestScience(t *testing.T) {
	if *science == "" {
		return // it is not a test, and the anchors are tests of their own
	}
	*full = true
	var doc strings.Builder
	doc.WriteString(scienceHead)
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
	doc.WriteString(claims(t))
	doc.WriteString(groups(t))
	if err := os.WriteFile(*science, []byte(doc.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

const scienceHead = `# What is true about backoff, measured

` + "`make science`" + ` writes this page with package sim, which runs the library's own code. ± is a 95 % interval over seeds.

## Anchors

Anchors are results that the simulator must reproduce. The expected numbers were published by others, or come from
independent simulations that were made before this library was written;
[the decision](adr/0015-simulator.md) explains the differences. ` + "`make anchors`" + ` checks them.
`

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

// claims returns the comparison with the claims of the sources.
func claims(t *testing.T) string {
	t.Helper()
	var doc strings.Builder
	doc.WriteString("\n## Claims of the sources\n\n### Jitter of 0.8 to 1.2 cuts a herd 20 to 40 times\n\nA thousand clients fail within 10 ms and retry after 1 s. A bucket is the interval in which retries are counted. The\nclaim is true only for buckets of 10 ms:\n\n| bucket | peak of retries without jitter, divided by the peak with it |\n| --- | --- |\n")
	for _, bucket := range []time.Duration{10 * ms, 100 * ms, second} {
		s, _ := Preset("herd")
		s.Bucket, s.Clients.Start = bucket, 9*ms
		r := run(t, s, 200, contestant(t, "exponential(1s..32s) attempts=2"), contestant(t, "exponential(1s..32s) attempts=2 jitter=20%"))
		fmt.Fprintf(&doc, "| %v | %.3g |\n", bucket, r[0].PeakRetries.Mean/r[1].PeakRetries.Mean)
	}
	doc.WriteString("\n### ±10 % is enough at 30 s\n\nA thousand clients fail at the same moment and retry every 30 s. They are spread when no second has more than twice\nthe mean:\n\n| jitter | periods of 30 s until they are spread |\n| --- | --- |\n")
	for _, jitter := range []string{"10%", "50%", "full"} {
		fmt.Fprintf(&doc, "| %s | %d |\n", jitter, periods(t, "fixed(30s) attempts=unlimited jitter="+jitter))
	}
	doc.WriteString("\n### Jitter of 0.5 to 1.5 times the delay, then the cap\n\nShare of the delays of exponential(1s..16s) that are exactly the cap:\n\n| retry | each delay is cut to the cap | the range ends at the cap (this library) |\n| --- | --- | --- |\n")
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
	doc.WriteString("\n### The new policy handles 5 to 10 devices\n\nDevices propose a change at the same moment, with five acceptors and the state machines of internal/paxos. The old\npolicy is `linear(10ms) attempts=4`, the new one is `contention`. In a partition, the devices were cut off while 20\nepochs were decided. The table has, in per cent, the devices that commit their change (\"devices\"), and the runs in\nwhich all devices do (\"all\"):\n\n| message, one way | devices | old: devices | old: all | new: devices | new: all | after a partition, old: all | new: all |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	percent := func(e Estimate) string { return written(Estimate{100 * e.Mean, 100 * e.Half, e.N}) }
	for _, hop := range []time.Duration{ms, 10 * ms, 50 * ms} {
		for _, n := range []int{2, 3, 5, 7, 10, 20} {
			calm := run(t, devices(n, hop, 0), 400, oldPolicy(t), newPolicy(t))
			healed := run(t, devices(n, hop, 20), 400, oldPolicy(t), newPolicy(t))
			fmt.Fprintf(&doc, "| %v | %d | %s | %s | %s | %s | %s | %s |\n", hop, n, percent(calm[0].Success), percent(calm[0].All),
				percent(calm[1].Success), percent(calm[1].All), percent(healed[0].All), percent(healed[1].All))
		}
	}
	doc.WriteString("\nThe claim is true if a message takes 1 ms. At 10 ms the new policy handles up to 5 devices and mostly 7, at 50 ms only\nup to 5. A `Scale` of package contend makes the first delay a multiple of the time of an attempt. ")
	far := contestant(t, "exponential(500ms..20s) jitter=1.0..1.5 attempts=11")
	r := run(t, devices(10, 50*ms, 0), 400, newPolicy(t), far)
	fmt.Fprintf(&doc, "With such a\ndelay and ten retries, all ten devices at 50 ms commit in %s %% of the runs.\n", percent(r[1].All))
	return doc.String()
}
