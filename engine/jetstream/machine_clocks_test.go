package jetstream

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

// bootOf returns the clock of a machine that was booted at a time.
func bootOf(id string, at time.Time) func() (time.Duration, string) {
	return func() (time.Duration, string) { return time.Since(at), id } // real clock: it is the clock that is compared
}

// Each member learns the time since boot of the other's machine, as soon as it has joined. What it
// learns is never less than the true difference, and more only by the time that a message takes.
func TestMembersCompareTheirClocks(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	cfg := Config{Replicas: 1, URL: natstest.SharedNode(t).URL(), Name: newName()}
	cfg.sinceBoot = bootOf("boot-a", begun.Add(-time.Hour))
	a := openTest(t, cfg)
	cfg.sinceBoot = bootOf("boot-b", begun.Add(-3*time.Hour))
	b := openTest(t, cfg)
	for _, test := range []struct {
		log  *Log
		boot string
		want time.Duration
	}{{a, "boot-b", -2 * time.Hour}, {b, "boot-a", 2 * time.Hour}} {
		var got time.Duration
		testwait.Until(t, "a message of "+test.boot, func() (ok bool) {
			got, ok = test.log.clocks.of(t.Context(), test.boot)
			return ok
		})
		if got < test.want || got > test.want+time.Since(begun) { // real clock: the message took at most as long as the test
			t.Errorf("ahead of %s by %v, want %v", test.boot, got, test.want)
		}
	}
	if by, ok := b.clocks.of(t.Context(), "boot-c"); ok {
		t.Errorf("ahead of a machine that sent nothing by %v", by)
	}
	l := mustLease(t, b, 0)
	if by, ok := l.Ahead(t.Context(), "boot-a"); !ok || by < 2*time.Hour {
		t.Errorf("the lease says %v, %v", by, ok)
	}
	if up, boot := l.SinceBoot(); boot != "boot-b" || up < 3*time.Hour {
		t.Errorf("the lease has the boot %s since %v", boot, up)
	}
}

func TestOtherMessagesAreNoClocks(t *testing.T) {
	t.Parallel()
	b := &backend{cfg: Config{sinceBoot: bootOf("own", time.Now())}}
	c := newMachineClocks(b)
	for text, want := range map[string]bool{
		"": false, "17": false, "0": false, "a clock": false,
		"clock": true, "clock x": true, "clock x y": true, "clock own 5": true, "clock x 99999999999999999999": true,
	} {
		if got := c.receive(&nats.Msg{Data: []byte(text)}); got != want || len(c.ahead) > 0 {
			t.Errorf("receive(%q) = %v, and %v is known", text, got, c.ahead)
		}
	}
	for i := range 2 * maxBoots {
		c.receive(&nats.Msg{Data: []byte("clock boot-" + time.Duration(i).String() + " 5")})
	}
	if len(c.ahead) > maxBoots {
		t.Errorf("%d boots are known", len(c.ahead))
	}
}
