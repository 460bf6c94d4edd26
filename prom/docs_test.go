package prom_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/prom"
)

// recorder keeps the collectors that are registered.
type recorder struct{ list []prometheus.Collector }

func (r *recorder) Register(c prometheus.Collector) error {
	r.list = append(r.list, c)
	return nil
}
func (*recorder) MustRegister(...prometheus.Collector) {}
func (*recorder) Unregister(prometheus.Collector) bool { return false }

var descText = regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: "(.*?)", (?:unit: "\w*", )?constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

// docs/metrics.md has all metrics of this package.
func TestThePageHasAllMetrics(t *testing.T) {
	r := new(recorder)
	if _, err := prom.New(r); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, c := range r.list {
		kind := "counter"
		if _, ok := c.(*prometheus.HistogramVec); ok {
			kind = "histogram"
		} else if _, ok := c.(*prometheus.CounterVec); !ok {
			kind = "gauge"
		}
		descriptions := make(chan *prometheus.Desc, 100)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			m := descText.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("unexpected %s", d)
			}
			rows = append(rows, []string{"`" + m[1] + "`", kind, strings.ReplaceAll(m[3], ",", ", "), m[2]})
		}
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	testfile.Section(t, "../docs/metrics.md", "metrics of calls", testfile.Table(t, []string{"name", "type", "labels", "meaning"}, rows))
}
