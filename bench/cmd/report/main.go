// Report reads the measurements of bench/run.sh from standard input, prints the
// ratios to the baselines, and writes them into a page of the documentation.
package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/benchreport"
)

func main() { benchreport.Main(run) }

func run(in io.Reader, out io.Writer, page string) error {
	r, err := parse(in)
	if err != nil {
		return err
	}
	return benchreport.Publish(out, page,
		benchreport.Section{Name: "goals", Text: r.setting() + "\n" + r.summary()},
		benchreport.Section{Name: "measurements", Text: r.tables()})
}

func (r *results) setting() string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s, %s, %s/%s, %s, %d rounds\n", r.about["date"], runtime.Version(), r.about["goos"], r.about["goarch"],
		r.about["cpu"], len(r.scenarios[0].peers[0].cpu))
	fmt.Fprintf(&b, "- peers:\n  - %s\n", strings.Join(r.modules, "\n  - "))
	b.WriteString("- to reproduce: `make bench`, or `ROUNDS=12 BENCHTIME=500ms bash bench/run.sh`\n")
	return b.String()
}

// summary returns a table that compares the measurements with the goals.
func (r *results) summary() string {
	var b strings.Builder
	b.WriteString("| row | work | our goal | measured | met |\n|---|---|--:|--:|---|\n")
	for _, g := range goals {
		c := r.scenario(g.scenario)
		if c == nil || c.peer(g.peer) == nil {
			continue
		}
		s := c.peer(g.peer)
		met := "yes"
		if !g.met(c, s) {
			met = "**no**"
		}
		fmt.Fprintf(&b, "| %s | %s | %v | %s | %s |\n", g.row, g.what, g, g.measured(c, s), met)
	}
	return b.String()
}

// tables returns one table for each scenario, with the cheapest library first.
func (r *results) tables() string {
	var b strings.Builder
	for _, c := range r.scenarios {
		fmt.Fprintf(&b, "\n### %s\n\n", c.name)
		b.WriteString("| | × baseline | cpu ns | wall ns | B | allocs |\n|---|--:|--:|--:|--:|--:|\n")
		for _, s := range slices.SortedStableFunc(slices.Values(c.peers), func(x, y *series) int {
			return cmp.Compare(c.ratio(x), c.ratio(y))
		}) {
			name := s.peer
			if strings.HasPrefix(name, "tideover") {
				name = "**" + name + "**"
			}
			fmt.Fprintf(&b, "| %s | %.2f | %s | %s | %.0f | %.0f |\n", name, c.ratio(s), oneDecimal(benchreport.Median(s.cpu)), oneDecimal(benchreport.Median(s.wall)), s.bytes, s.allocs)
		}
	}
	return b.String()
}

// oneDecimal returns a number with one decimal place below 100, and none above.
func oneDecimal(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
