package plan

import (
	"bytes"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	seed := uint64(1)
	plans := parse(t, Options{}, "http attempt-timeout=30s", "fixed(1s)", "daemon total-timeout=5m")
	plans = append(plans, parse(t, Options{Seed: &seed, List: 2}, "contention", "fixed(1s) attempts=unlimited")...)
	plans = append(plans, parse(t, Options{Seed: &seed}, "task")...)
	var b bytes.Buffer
	if err := JSON(&b, plans); err != nil {
		t.Fatal(err)
	}
	testfile.Golden(t, "testdata/plans.json", b.Bytes())
}
