package jetstream

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
)

// diary is the output of a logger, which a test can read while it is written.
type diary struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (d *diary) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

func newDiary() (*diary, *slog.Logger) {
	d := &diary{}
	return d, slog.New(slog.NewTextHandler(d, nil))
}

func TestSettingsThatHaveNoEffectAreTold(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{
		URL: nodes.URL(), Name: newName(), Shards: 2, Replicas: 1, LeaseTime: 15 * time.Second, Prefix: "engine.",
		SystemUser: natstest.SystemUser, SystemPassword: natstest.SystemPassword,
	}
	told := func(cfg Config) string {
		t.Helper()
		d, logger := newDiary()
		cfg.Logger = logger
		if err := mustOpen(t, cfg).Close(); err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	if text := told(cfg); strings.Contains(text, "has no effect") {
		t.Errorf("the log of the member that makes the cluster: %s", text)
	}
	if text := told(cfg); strings.Contains(text, "key=") {
		t.Errorf("the log of a member with the same settings: %s", text)
	}
	cfg.Replicas, cfg.LeaseTime, cfg.MaxBytes = 3, 20*time.Second, 2<<20
	text := told(cfg)
	for _, want := range []string{
		"key=engine.replicas wanted=3 actual=1", "key=engine.lease-time wanted=20s actual=15s", `key=engine.max-bytes wanted=2097152 actual="no limit"`,
		"level=WARN", "nats stream edit",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log says %s; want %q in it", text, want)
		}
	}
	cfg.Shards = 4
	_, err := Open(t.Context(), cfg)
	wantErr(t, "Open with other shards", err, nil, "engine.shards: cluster "+cfg.Name+" has 2, not 4", "write 2 or leave it out")
	found, err := Check(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][2]string{
		{journal.Broken, "engine.shards is 4, and cluster " + cfg.Name + " has 2"}, {journal.Note, "engine.replicas is 3, and cluster " + cfg.Name + " has 1"},
		{journal.Note, "engine.lease-time is 20s, and"}, {journal.Note, "engine.max-bytes is 2097152, and"},
	} {
		if !has(found, want[0], want[1]) {
			t.Errorf("Check() = %v; want %q", &foundError{found}, want)
		}
	}
}

func TestASettingThatWasChangedByHandHasEffect(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{URL: nodes.URL()})
	js := admin(t, nodes)
	s, err := js.Stream(t.Context(), log.backend.names.logStream(0))
	if err != nil {
		t.Fatal(err)
	}
	changed := s.CachedInfo().Config
	changed.MaxBytes = 4 << 20
	natstest.Wait(t, func(ctx context.Context) error { _, err := js.UpdateStream(ctx, changed); return err })
	cfg := Config{URL: nodes.URL(), Name: log.backend.cfg.Name, MaxBytes: 4 << 20}
	found, err := Check(t.Context(), cfg)
	if err != nil || has(found, journal.Note, "max-bytes") {
		t.Errorf("Check() = %v, %v", &foundError{found}, err)
	}
}
