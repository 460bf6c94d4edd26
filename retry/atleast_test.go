package retry

import (
	"testing"
	"time"
)

// AtLeast extends the delay of the schedule. ServerSlack and ServerWait, which are for
// waits that a server states, do not apply.
func TestAtLeastProlongsTheScheduledDelay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"fixed(10s) attempts=3 server-slack=90s server-wait=1s": 30 * time.Second,
		"fixed(1m) attempts=3 server-slack=90s":                 time.Minute,
		"exponential(1s..5s) attempts=3":                        30 * time.Second, // beyond the cap
	} {
		p, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		d := Decide(p, State{Attempt: 1}, Outcome{AtLeast: 30 * time.Second}, Gates{}, 0)
		if d.Stop != 0 || d.Wait != want || d.By == ByServer {
			t.Errorf("%s: waits %v by %v, stop %v; want %v", text, d.Wait, d.By, d.Stop, want)
		}
	}
	if d := Decide(Policy{Attempts: 3}, State{Attempt: 1}, Outcome{AtLeast: time.Second}, Gates{}, 0); d.Wait != time.Second {
		t.Errorf("without a schedule: waits %v, want 1s", d.Wait)
	}
	p, err := Parse("fixed(10s) attempts=1")
	if err != nil {
		t.Fatal(err)
	}
	if d := Decide(p, State{Attempt: 1}, Outcome{AtLeast: time.Second}, Gates{}, 0); d.Stop != StopAttempts {
		t.Errorf("the last attempt: stop %v, want %v", d.Stop, StopAttempts)
	}
}
