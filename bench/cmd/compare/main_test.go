package main

import (
	"fmt"
	"strings"
	"testing"
)

// line is a measurement of the throughput.
func line(label string, tasks, p50, p99 float64) string {
	return fmt.Sprintf(`%s {"scenario":"throughput","system":"tideover","values":{"tasks/s":%g,"start p50":%g,"start p99":%g}}`+"\n", label, tasks, p50, p99)
}

func TestCompare(t *testing.T) {
	for _, test := range []struct {
		name             string
		newer, again     [3]float64
		worse            bool
		tasks, p50, tail string // verdicts
	}{
		{"the same", [3]float64{1000, 5, 9}, [3]float64{1000, 5, 9}, false, "ok", "ok", "not counted"},
		{"better", [3]float64{2000, 1, 1}, [3]float64{2000, 1, 1}, false, "ok", "ok", "not counted"},
		{"slower", [3]float64{900, 5, 9}, [3]float64{900, 5, 9}, true, "worse", "ok", "not counted"},
		{"slower, but so is the second build", [3]float64{900, 5, 9}, [3]float64{1030, 5, 9}, false, "within noise", "ok", "not counted"},
		{"later", [3]float64{1000, 6, 90}, [3]float64{1000, 6, 9}, true, "ok", "worse", "not counted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var in, out strings.Builder
			for range 3 {
				in.WriteString(line("old", 1000, 5, 9))
				in.WriteString(line("new", test.newer[0], test.newer[1], test.newer[2]))
				in.WriteString(line("again", test.again[0], test.again[1], test.again[2]))
			}
			worse, err := run(strings.NewReader(in.String()), &out)
			if err != nil || worse != test.worse {
				t.Fatalf("run = %v, %v; want %v\n%s", worse, err, test.worse, &out)
			}
			rows := strings.Split(out.String(), "\n")
			for i, verdict := range []string{test.tasks, test.p50, test.tail} {
				if !strings.HasSuffix(strings.TrimSpace(rows[i+1]), verdict) {
					t.Errorf("row %q; want %q", rows[i+1], verdict)
				}
			}
		})
	}
}

func TestCompareRefusesWhatIsNoMeasurement(t *testing.T) {
	for _, in := range []string{"", "old nonsense\n"} {
		if _, err := run(strings.NewReader(in), new(strings.Builder)); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
}
