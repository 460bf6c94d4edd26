package jetstream

import (
	"context"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
)

func TestAServerThatIsNotThereIsOneFinding(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3)
	cfg := Config{
		URL: nodes.URL(), Name: newName(), Shards: 2, SecondPlace: t.TempDir(),
		SystemUser: natstest.SystemUser, SystemPassword: natstest.SystemPassword,
	}
	log := openTest(t, cfg)
	for n := range cfg.Shards {
		mustLease(t, log, n)
	}
	nodes.Kill(1)
	dead := strings.TrimPrefix(nodes.NodeURL(1), "nats://")
	natstest.Wait(t, func(context.Context) error {
		found, err := Check(t.Context(), cfg)
		if err != nil {
			return err
		}
		if len(found) != 1 || !has(found, journal.Weak, "server n1 is not there; of 3 servers there are only n0, n2; no answer from "+dead) {
			return &foundError{found}
		}
		return nil
	})
	if found := check(t, log); !has(found, journal.Weak, "server n1 is not there") {
		t.Errorf("Check() of a member = %v", &foundError{found})
	}
}

func TestCopiesAreCountedByServer(t *testing.T) {
	t.Parallel()
	peer := func(name string, p natsjs.PeerInfo) *natsjs.PeerInfo { p.Name = name; return &p }
	well := natsjs.PeerInfo{Current: true}
	quiet := natsjs.PeerInfo{Active: time.Minute}
	behind := natsjs.PeerInfo{Lag: 30, Active: time.Second}
	for name, c := range map[string]struct {
		list []copies
		want string
	}{
		"all is well": {[]copies{{3, "a", []*natsjs.PeerInfo{peer("b", well), peer("c", well)}}}, ""},
		"one is not there": {
			[]copies{{3, "a", []*natsjs.PeerInfo{peer("b", quiet), peer("c", well)}}, {3, "c", []*natsjs.PeerInfo{peer("a", well), peer("b", behind)}}},
			"weak: server b is not there; ",
		},
		"one is behind": {
			[]copies{{3, "a", []*natsjs.PeerInfo{peer("b", behind), peer("c", well)}}, {}},
			"weak: server b is behind in 1 stream, by up to 30 entries; ",
		},
		"one that leads has trouble": {
			[]copies{{3, "a", []*natsjs.PeerInfo{peer("b", quiet), peer("c", well)}}, {3, "b", nil}, {3, "b", []*natsjs.PeerInfo{peer("a", well), peer("c", well)}}},
			"weak: 2 copies are not placed; weak: server b is behind in 1 stream, by up to 0 entries; ",
		},
		"few copies": {[]copies{{1, "a", nil}, {3, "a", []*natsjs.PeerInfo{peer("b", well), peer("c", well)}}}, "weak: 1 stream: 1 of 3 replicas; "},
	} {
		x := &examiner{findings: findings{redact: Config{}.redact}}
		x.checkCopies(c.list)
		if got := (&foundError{x.list}).Error(); got != c.want {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

func TestShardsThatNobodyHasAreFound(t *testing.T) {
	t.Parallel()
	nodes := natstest.Shared(t)
	cfg := Config{URL: nodes.URL(), Name: newName(), Shards: 3}
	log := openTest(t, cfg)
	mustLease(t, log, 0)
	found, err := Check(t.Context(), cfg)
	if err != nil || !has(found, journal.Broken, "2 shards have no owner: 1, 2") {
		t.Errorf("Check() = %v, %v", &foundError{found}, err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	found, err = Check(t.Context(), cfg)
	if err != nil || !has(found, journal.Note, "no process is in the cluster") || has(found, journal.Broken, "") {
		t.Errorf("Check() = %v, %v", &foundError{found}, err)
	}
}
