package admin

import (
	"strings"
	"time"

	"github.com/tideover/tideover/internal/console/control"

	"github.com/tideover/tideover/cmd/tideover/internal/timeseries"
)

// Charts has the numbers of runs over time.
type Charts struct {
	store     *timeseries.Store
	clustered bool
}

// Chart has the numbers of runs in a period of time.
type Chart struct {
	Range     string       `json:"range"`                // hour, day or two-weeks
	Workflow  string       `json:"workflow,omitempty"`   // "" means all workflows
	Interval  float64      `json:"interval_seconds"`     // length of the interval of a point
	Since     time.Time    `json:"since"`                // when the server began to count
	Merged    bool         `json:"merged,omitempty"`     // too many workflows: the runs of this one count for "(other)"
	OneMember bool         `json:"one_member,omitempty"` // the server is a member of a cluster: only runs in its process count
	Total     ChartPoint   `json:"total"`                // of all points
	Points    []ChartPoint `json:"points"`               // the oldest first; the last interval is not complete yet
}

// ChartPoint has the numbers of runs in an interval.
type ChartPoint struct {
	Time      time.Time   `json:"time"`      // when the interval began
	Started   uint64      `json:"started"`   // runs
	Succeeded uint64      `json:"succeeded"` // runs
	Failed    uint64      `json:"failed"`    // runs that gave up
	Canceled  uint64      `json:"canceled"`  // runs
	Duration  Percentiles `json:"duration"`  // from the creation to the end, of runs that succeeded or failed
	Wait      Percentiles `json:"wait"`      // from the creation to the first attempt of a step or an operation
}

// Percentiles are estimates of the percentiles of durations. From 1 ms they are at most 26 % too long
// or 21 % too short; shorter ones count as 0.5 ms.
type Percentiles struct {
	Count uint64  `json:"count"` // number of durations; the percentiles are 0 if it is 0
	P50   float64 `json:"p50_seconds"`
	P95   float64 `json:"p95_seconds"`
	P99   float64 `json:"p99_seconds"`
}

// RangeNames has the names of the ranges of charts, the shortest first.
var RangeNames = func() (names []string) {
	for _, r := range timeseries.Ranges {
		names = append(names, r.Name)
	}
	return names
}()

// Get returns the chart of a workflow, or of all workflows except internal ones if the name is "".
func (c *Charts) Get(workflow, name string) (Chart, error) {
	if control.Internal(workflow) {
		return Chart{}, control.Invalid("workflow", "%q is an internal workflow, whose runs are not counted", control.Excerpt(workflow))
	}
	found, ok := c.store.Chart(workflow, name)
	if !ok {
		return Chart{}, control.Invalid("range", "unknown range %q", control.Excerpt(name)).WithHint("want one of " + strings.Join(RangeNames, ", "))
	}
	out := Chart{
		Range: found.Name, Workflow: workflow, Interval: found.Interval.Seconds(), Since: found.Since, Merged: found.Merged, OneMember: c.clustered,
		Total: newChartPoint(&found.Total), Points: make([]ChartPoint, len(found.Points)),
	}
	for i := range found.Points {
		out.Points[i] = newChartPoint(&found.Points[i])
	}
	return out, nil
}

func newChartPoint(p *timeseries.Point) ChartPoint {
	return ChartPoint{p.Time, p.Started, p.Succeeded, p.Failed, p.Canceled, newPercentiles(p.Took), newPercentiles(p.Wait)}
}

func newPercentiles(p timeseries.Percentiles) Percentiles {
	return Percentiles{p.Count, p.P50.Seconds(), p.P95.Seconds(), p.P99.Seconds()}
}
