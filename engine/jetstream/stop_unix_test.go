//go:build unix

package jetstream

import (
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
)

func TestTheShardsOfAStoppedProcessAreTakenOverAndItNotices(t *testing.T) {
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName()}
	log := openTest(t, cfg)
	c := startChild(t, cfg.URL, cfg.Name)
	id, _, _ := strings.Cut(c.await("owner"), " ")
	c.await("appended 20")
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	expel(t, log, id, log.backend.timing.expelAt)
	l := takeOver(t, log, 0)
	_, last, err := l.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	appendEntries(t, l, last+1, last+10)
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if text := c.await("error"); !strings.Contains(text, journal.ErrStale.Error()) {
		t.Errorf("the stopped process goes on with %q; want %q", text, journal.ErrStale)
	}
	c.await("lost")
	appendEntries(t, l, last+11, last+12)
	wantLog(t, l, 1, last+12)
}
