// Compare reads measurements of two versions, taken in turn, and reports
// whether the new one is worse than the old one.
//
// Each line of its input is a label and a line of measure, such as
//
//	old {"scenario":"throughput", ...}
//
// The labels are old, new, and again for a second build of the new version: its
// difference from the first one is the noise of the machine. The new version is
// worse if a value that counts is worse by more than 3 %, and by more than the
// second build differs.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/tideover/tideover/internal/benchreport"
)

// tolerance is how much worse a value of the new version may be, as a share of the
// old value.
const tolerance = 0.03

// metric is a value of a scenario that is compared between the old and the new
// version.
type metric struct {
	scenario, value string
	more            bool // more is better
	counts          bool // false means that it is only printed
}

var metrics = []metric{
	{"throughput", "tasks/s", true, true},
	{"throughput", "start p50", false, true},
	{"throughput", "start p99", false, false},
	{"throughput", "own µs", false, true},
	{"lateness", "late p50", false, true},
	{"lateness", "late p99", false, false},
	{"waiting", "tasks/s", true, true},
	{"waiting", "start p50", false, true},
	{"waiting", "start p99", false, false},
	{"waiting", "VmRSS filled", false, true},
	{"waiting", "VmRSS reopened", false, true},
	{"waiting", "live heap filled", false, true},
	{"waiting", "disk", false, true},
	{"get", "get/s", true, true},
	{"get", "get µs", false, true},
	{"post", "post/s", true, true},
	{"post", "post µs", false, true},
	{"steady", "steady p50", false, true},
	{"steady", "steady p99", false, false},
	{"stream", "stream µs", false, true},
	{"stream", "first p50", false, true},
	{"stream", "later p50", false, true},
	{"memory", "VmRSS loaded", false, true},
	{"memory", "VmHWM loaded", false, false},
}

func main() {
	worse, err := run(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(2)
	}
	if worse {
		os.Exit(1)
	}
}

type key struct{ label, scenario, value string }

func run(in io.Reader, out io.Writer) (worse bool, err error) {
	series, err := parse(in)
	if err != nil {
		return false, err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "scenario\tvalue\told\tnew\tnew/old\tagain/new\t\t")
	for _, m := range metrics {
		of := func(label string) []float64 { return series[key{label, m.scenario, m.value}] }
		if len(of("old")) == 0 || len(of("new")) == 0 {
			continue
		}
		change, noise := ratio(of("new"), of("old")), ratio(of("again"), of("new"))
		verdict := m.verdict(change, noise)
		worse = worse || verdict == "worse"
		fmt.Fprintf(table, "%s\t%s\t%.4g\t%.4g\t%.3f\t%.3f\t%s\t\n", m.scenario, m.value, benchreport.Median(of("old")), benchreport.Median(of("new")), change, noise, verdict)
	}
	return worse, table.Flush()
}

// verdict judges a metric. change is the ratio of new to old; noise is the ratio of
// two measurements of the new version.
func (m metric) verdict(change, noise float64) string {
	loss := change - 1
	if m.more {
		loss = 1 - change
	}
	switch {
	case !m.counts:
		return "not counted"
	case loss <= tolerance:
		return "ok"
	case loss <= max(noise-1, 1-noise):
		return "within noise"
	default:
		return "worse"
	}
}

func parse(in io.Reader) (map[key][]float64, error) {
	series := map[key][]float64{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		label, text, _ := strings.Cut(lines.Text(), " ")
		var r benchreport.Result
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return nil, fmt.Errorf("not a measurement: %q: %w", lines.Text(), err)
		}
		for name, v := range r.Values {
			k := key{label, r.Scenario, name}
			series[k] = append(series[k], v)
		}
	}
	if lines.Err() == nil && len(series) == 0 {
		return nil, errors.New("the input has no measurements")
	}
	return series, lines.Err()
}

// ratio returns the median, over all rounds, of a divided by b. Without rounds it is 1.
func ratio(a, b []float64) float64 {
	if ratios := benchreport.Ratios(a, b); len(ratios) > 0 {
		return benchreport.Median(ratios)
	}
	return 1
}
