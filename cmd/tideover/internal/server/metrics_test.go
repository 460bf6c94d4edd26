package server

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tideover/tideover/cmd/tideover/internal/metrics"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/retry"
)

const (
	metricsPage = "../../../../docs/metrics.md"
	dashboard   = "../../../../docs/grafana.json"
)

// metricInfo is the documentation of a metric.
type metricInfo struct {
	kind   string
	labels []string
	help   string
}

var descText = regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: "(.*?)", (?:unit: "\w*", )?constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

// allMetrics returns the metrics that this program defines, by name.
func allMetrics(t *testing.T) map[string]metricInfo {
	t.Helper()
	g, err := gateway.New([]gateway.Spec{gateway.Spec{Name: "p", Preset: gateway.OpenAI, BaseURL: &url.URL{Scheme: "https", Host: "a.example"}, Policy: retry.Policy{Attempts: 1}}.Fill()}, gateway.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addresses: new(addresses), connections: new(connections), parts: &parts{
		gateway: g, engine: new(engine.Engine), nip90: nip90.New(slog.New(slog.DiscardHandler), false),
		observer: &observer{tally: metrics.NewTally(), alarm: storm.New(storm.Rule{}, nil, nil)},
	}}
	all := map[string]metricInfo{}
	for _, c := range s.collectors() {
		ch := make(chan *prometheus.Desc, 100)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			m := descText.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("unexpected %s", d)
			}
			labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' })
			all[m[1]] = metricInfo{kindOf(m[1]), labels, m[2]}
		}
	}
	return all
}

// kindOf returns the type of a metric. [TestAStormIsSeenEverywhere] compares it with the types
// that a server reports.
func kindOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case name == "tideover_wait_seconds" || name == "tideover_gateway_ttfb_seconds":
		return "histogram"
	}
	return "gauge"
}

// Names, types, labels and meanings of metrics are part of the interface of tideover.
func TestDocsListAllMetrics(t *testing.T) {
	all := allMetrics(t)
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d := all[name]
		rows = append(rows, []string{"`" + name + "`", d.kind, strings.Join(d.labels, ", "), d.help})
	}
	testfile.Section(t, metricsPage, "all metrics", testfile.Table(t, []string{"name", "type", "labels", "meaning"}, rows))
}

var (
	metricName = regexp.MustCompile(`\btideover_\w+`)
	labelLists = regexp.MustCompile(`(?:by|without|on) \(([^)]*)\)`)
	matchers   = regexp.MustCompile(`\{([^}]*)\}`)
)

// Every query of the dashboard uses existing metrics and labels.
func TestTheDashboardUsesExistingMetrics(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title, UID  string
		Annotations struct{ List []struct{ Expr string } }
		Panels      []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	all, ids := allMetrics(t), map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: the id is taken, or there is no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			for _, problem := range queryProblems(target.Expr, all) {
				t.Errorf("panel %q: %s: %s", p.Title, target.Expr, problem)
			}
		}
	}
	for _, a := range board.Annotations.List {
		for _, problem := range queryProblems(a.Expr, all) {
			t.Errorf("annotation: %s: %s", a.Expr, problem)
		}
	}
	if len(ids) < 10 || board.Title == "" || board.UID == "" {
		t.Errorf("the dashboard %q (%q) has %d panels", board.Title, board.UID, len(ids))
	}
	if got := queryProblems(`sum by (colour) (tideover_attempts)`, all); len(got) != 2 {
		t.Errorf("a query with two mistakes: %q", got)
	}
}

// queryProblems returns the metrics and labels of a query that do not exist.
func queryProblems(expr string, all map[string]metricInfo) (problems []string) {
	labels := []string{"le", "instance", "job", ""}
	names := metricName.FindAllString(expr, -1)
	for _, name := range names {
		if base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count"); kindOf(base) == "histogram" {
			name = base
		}
		d, ok := all[name]
		if !ok {
			problems = append(problems, "there is no metric "+name)
		}
		labels = append(labels, d.labels...)
	}
	if len(names) == 0 && !strings.Contains(expr, "go_") && !strings.Contains(expr, "process_") {
		problems = append(problems, "no metric")
	}
	for _, m := range slices.Concat(labelLists.FindAllStringSubmatch(expr, -1), matchers.FindAllStringSubmatch(expr, -1)) {
		for part := range strings.SplitSeq(m[1], ",") {
			if label := strings.TrimSpace(strings.FieldsFunc(part+"=", func(r rune) bool { return strings.ContainsRune("=!~", r) })[0]); !slices.Contains(labels, label) {
				problems = append(problems, "no label "+label)
			}
		}
	}
	return problems
}
