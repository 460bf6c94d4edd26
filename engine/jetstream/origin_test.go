package jetstream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
)

// wiped deletes all streams of a cluster, as if its servers had lost their disks.
func wiped(t *testing.T, nodes *natstest.Cluster, cfg Config) {
	t.Helper()
	js := admin(t, nodes)
	n := names(cfg.Name)
	list := []string{n.bucketStream(), n.blobStream()}
	for i := range cfg.Shards {
		list = append(list, n.logStream(i))
	}
	for _, name := range list {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestANewClusterDoesNotLookLikeAnOldOne(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	diary, logger := newDiary()
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 2, Logger: logger, SecondPlace: t.TempDir()}
	log := openTest(t, cfg)
	if text := diary.String(); !log.Made() || !strings.Contains(text, `level=WARN msg="made a new cluster, with nothing in it"`) {
		t.Errorf("the log of the member that made it says %s", text)
	}
	diary, cfg.Logger = newDiary()
	cfg.Before = log.ClusterID()
	if second := openTest(t, cfg); second.Made() || second.ClusterID() != log.ClusterID() || strings.Contains(diary.String(), "level=ERROR") {
		t.Errorf("the log of who joins says %s", diary)
	}
	putBlob(t, mustLease(t, log, 1), "snapshot", "text")
	log.kill()
	wiped(t, nodes, cfg)
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"the process":      {func(c *Config) { c.SecondPlace = "" }, "this process was in one"},
		"the second place": {func(c *Config) { c.Before = "" }, "the second place has snapshots of 1 shard of one"},
	} {
		cfg := cfg
		c.change(&cfg)
		found, err := Check(t.Context(), cfg)
		if err != nil || !has(found, journal.Broken, "there is no cluster "+cfg.Name+", but there has been: "+c.want) {
			t.Errorf("of what %s knows: Check() = %v, %v", name, &foundError{found}, err)
		}
	}
	again := openTest(t, cfg)
	if text := diary.String(); !again.Made() || !strings.Contains(text, `level=ERROR msg="made a NEW cluster`) || !strings.Contains(text, "restore") {
		t.Errorf("the log of the member that made it again says %s", text)
	}
	diary, cfg.Logger = newDiary()
	openTest(t, cfg)
	if text := diary.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "not the cluster that this process was in before") {
		t.Errorf("the log of who joins another says %s", text)
	}
	if found, err := Check(t.Context(), cfg); err != nil || !has(found, journal.Broken, "is not the one that this process was in") {
		t.Errorf("Check() = %v, %v", &foundError{found}, err)
	}
}

func TestAStatusOfWhatIsGoneSaysSo(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 1}
	log := openTest(t, cfg)
	wiped(t, nodes, cfg)
	_, err := log.Status(t.Context())
	wantErr(t, "Status", err, nil, fmt.Sprintf("stream %s was deleted", log.backend.names.bucketStream()))
	if strings.Contains(err.Error(), "no leader") {
		t.Errorf("Status = %v", err)
	}
}
