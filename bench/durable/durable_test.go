package durable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/bench/durable"
)

const childEnv = "DURABLE_TEST_CHILD"

// The test is its own child process.
func TestMain(m *testing.M) {
	part := os.Getenv(childEnv)
	if part == "" {
		os.Exit(m.Run())
	}
	var w durable.Waiting
	err := json.Unmarshal([]byte(os.Args[1]), &w)
	if err == nil {
		err = w.Child(context.Background(), part, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(ctx context.Context, part string, w durable.Waiting) *exec.Cmd {
	text, err := json.Marshal(w)
	if err != nil {
		panic(err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", string(text))
	// Of itself the race detector sleeps for a second at the end.
	cmd.Env = append(os.Environ(), childEnv+"="+part, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return cmd
}

func TestThroughput(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"tideover", "tideover-flow"} {
		values, err := durable.Throughput(t.Context(), durable.Systems[system], servers(t), 300)
		if err != nil {
			t.Fatalf("%s: %v", system, err)
		}
		wantPositive(t, values, "tasks/s", "starts/s", "seconds", "start p50", "start p99", "own µs")
	}
}

func TestLateness(t *testing.T) {
	t.Parallel()
	values, err := durable.Lateness(t.Context(), durable.Systems["tideover"], servers(t), 300, 1000, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	wantPositive(t, values, "due/s", "late p50", "late p99", "scheduling p50")
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{durable.Delayed, durable.Retrying, durable.Sleeping} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			w := durable.Waiting{
				Dir: t.TempDir(), Runs: 100, Variant: variant, Seconds: 0.01, Rate: 1000, Due: 50, Ahead: 50 * time.Millisecond,
			}
			values, err := w.Measure(t.Context(), child)
			if err != nil {
				t.Fatal(err)
			}
			wantPositive(t, values, "VmRSS filled", "VmHWM filled", "heap filled", "disk", "disk log.db", "disk view.db",
				"fill seconds", "restart seconds", "open seconds", "VmRSS reopened", "tasks/s", "start p99", "late p99",
				"empty: tasks/s", "empty: start p99", "empty: late p99")
		})
	}
}

func TestPayloadsAreOfOneSize(t *testing.T) {
	t.Parallel()
	for _, p := range []durable.Payload{
		durable.NewPayload(0, time.Time{}), durable.NewPayload(1_234_567, time.Time{}), durable.NewPayload(42, time.Now()),
	} {
		text, err := json.Marshal(p)
		if err != nil || len(text) != 200 {
			t.Errorf("payload %d is %q, %d bytes, %v; want 200", p.ID, text, len(text), err)
		}
	}
}

func TestScriptsAreBash(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("scripts: %v, %v", scripts, err)
	}
	for _, s := range scripts {
		if out, err := exec.Command("bash", "-n", s).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", s, err, out)
		}
	}
}

func servers(t *testing.T) durable.Servers {
	return durable.Servers{Dir: filepath.Join(t.TempDir(), "data")}
}

func wantPositive(t *testing.T, values map[string]float64, names ...string) {
	t.Helper()
	for _, name := range names {
		if v, ok := values[name]; !ok || v <= 0 {
			t.Errorf("%s = %v, %v; want it positive. All: %v", name, v, ok, strings.ReplaceAll(fmt.Sprint(values), " ", "\n"))
		}
	}
}
