package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/textfmt"
)

// Check returns the problems of the servers, the cluster and the configuration that
// weaken the guarantees of a log, the worst first. It does not join the cluster and
// creates nothing. An error means that the check itself failed.
func Check(ctx context.Context, cfg Config) ([]journal.Finding, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check log: %w", err)
	}
	cfg = cfg.withDefaults()
	found, err := checkFromOutside(ctx, cfg)
	return found, disk.Wrapf(err, "check log %s", cfg.Name)
}

// checkDialTime is how long [Check] waits for a connection to a server.
const checkDialTime = 8 * time.Second

func checkFromOutside(ctx context.Context, cfg Config) ([]journal.Finding, error) {
	who, err := cfg.identity()
	if err != nil {
		return nil, err
	}
	dialing, cancel := context.WithTimeout(ctx, checkDialTime)
	c, err := dial(dialing, cfg, who)
	cancel()
	if err != nil {
		return nil, err
	}
	defer c.nc.Close()
	b := &backend{cfg: cfg, c: c, names: names(cfg.Name), bucket: newBucket(c, names(cfg.Name))}
	x := &examiner{findings: findings{redact: cfg.redact}, backend: b, outside: true}
	if x.second, err = openSecondCopy(cfg); err != nil {
		x.add(journal.Broken, "make the folder, or mount its disk", "no member can start", "%v", err)
	}
	if err := checkServer(c); err != nil {
		x.add(journal.Broken, "update or configure the server", "no member can start", "%v", err)
	}
	return x.examine(ctx)
}

func (x *examiner) examine(ctx context.Context) ([]journal.Finding, error) {
	if err := x.c.connected(); err != nil {
		return nil, err
	}
	x.checkConnection()
	x.checkServers(ctx)
	x.checkSecond()
	x.servers.dead = deadAddresses(ctx, x.cfg.URL)
	exists, err := x.findSettings(ctx)
	if err != nil {
		x.add(journal.Broken, "start the servers that are missing", "nothing can be recorded", "%s", x.servers.withMissing(fmt.Sprintf("the settings of the cluster can't be read: %v", err)))
	}
	if exists {
		x.checkCluster(ctx)
	}
	x.checkAddresses()
	return x.sorted(), ctx.Err()
}

// checkCluster checks a cluster that exists.
func (x *examiner) checkCluster(ctx context.Context) {
	x.checkOrigin()
	x.checkDifferences(ctx)
	x.checkStreams(ctx)
	x.checkClocks(ctx)
	x.checkTiming()
	if x.outside {
		x.checkOwners(ctx)
	}
}

// findSettings reports whether there is a cluster, and reads its settings.
func (x *examiner) findSettings(ctx context.Context) (exists bool, err error) {
	asking, cancel := context.WithTimeout(ctx, electionTime)
	defer cancel()
	for a := range asks.Attempts(asking, &err) {
		if x.settings, _, err = x.bucket.settings(a.Context()); errors.Is(err, errGone) {
			err = fmt.Errorf("%w: %w", errNoMessage, err) // without a bucket there are no settings
		}
	}
	if errors.Is(err, errNoMessage) {
		x.checkMissing(ctx)
		return false, nil
	}
	return err == nil || errors.Is(err, journal.ErrDamaged), plain(err)
}

// checkMissing finds out why there are no settings: the cluster was not created yet, or
// its bucket is gone.
func (x *examiner) checkMissing(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	if _, err := (stream{x.c, x.names.logStream(0)}).info(ctx); err == nil {
		x.add(journal.Broken, "restore it from a backup", "no member can start", "stream %s was deleted, or its settings were", x.bucket.stream.name)
		return
	}
	x.checkTraces()
}

// checkConnection reports an unencrypted connection to another machine.
func (x *examiner) checkConnection() {
	u, err := url.Parse(x.c.nc.ConnectedUrl())
	if err != nil || x.c.nc.TLSRequired() {
		return
	}
	if _, err := x.c.nc.TLSConnectionState(); err == nil {
		return
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() || u.Hostname() == "localhost" {
		return
	}
	x.add(journal.Note, "give the servers certificates, and use tls:// in the url",
		"anyone who can read the network can read all work, and may change it", "the connection to %s is not encrypted", u.Host)
}

// checkTiming reports a lease time that is shorter than the election of a leader.
func (x *examiner) checkTiming() {
	weak := x.settings.Replicas > 1 && timingOf(x.settings.LeaseTime).ended < electionTime
	x.addIf(weak, journal.Weak, "create the cluster with a lease time of 12 s or more",
		"when a server dies its streams have no leader for 4 to 9 s; all leases end, and all shards start again",
		"the lease time is %v", x.settings.LeaseTime)
}

// electionTime is how long a stream may be without leader after a server has died.
const electionTime = 10 * time.Second

// checkSecond reports problems of Config.SecondPlace, the folder outside of NATS that has
// a second copy of every blob: it is not set, can't be written, or lacks blobs.
func (x *examiner) checkSecond() {
	x.addIf(x.cfg.SecondPlace == "", journal.Weak,
		"set a second place: a folder on a disk that the NATS servers do not use",
		"if the servers lose or damage the snapshots, the log before them is gone as well",
		"snapshots have no second place outside of NATS")
	if x.second == nil {
		return
	}
	if err := x.second.try(); err != nil {
		x.add(journal.Broken, "make the folder writable for this process; is its disk mounted?",
			"new snapshots have no second copy", "the second place can't be written: %v", err)
		return
	}
	if err := x.second.failed.Load(); err != nil && *err != nil {
		x.add(journal.Broken, "see to the cause; the next snapshot makes the copies again",
			"some snapshots have no second copy", "the last copy to the second place failed: %v", *err)
	}
}

// checkTraces reports that there is no cluster. This is a Note if there has never been
// one, and Broken if there are traces of one.
func (x *examiner) checkTraces() {
	traces := traces(x.cfg, x.second)
	if traces == "" {
		checked := ""
		if len(x.servers.answered) > 0 {
			checked = "; only the servers were checked: " + strings.Join(x.servers.names(), ", ")
		}
		x.add(journal.Note, "start a member, which creates it; to bring runs along, use `tideover move` instead, before any member starts",
			"its streams can't be checked yet"+checked, "there is no cluster %s", x.cfg.Name)
		return
	}
	x.add(journal.Broken, restoring, "all runs of it are lost, unless they are restored",
		"there is no cluster %s, but there has been: %s", x.cfg.Name, traces)
}

// checkOrigin reports that the cluster has been replaced: it has the same name, but is
// not the one that this process was in before.
func (x *examiner) checkOrigin() {
	x.addIf(x.cfg.Before != "" && x.cfg.Before != x.settings.ID, journal.Broken, restoring+", and start the process",
		"runs of the one before are not in it, unless they were moved",
		"cluster %s of %s is not the one that this process was in", x.cfg.Name, stamp(x.settings.Created))
}

// checkDifferences reports settings of the configuration that have no effect, because
// the cluster was created with other values.
func (x *examiner) checkDifferences(ctx context.Context) {
	want, has := x.cfg.Shards, x.settings.Shards
	x.addIf(want > 0 && want != has, journal.Broken,
		"write what it has or leave it out, or move everything to a cluster with another name",
		"no process with this setting can join",
		"%sshards is %d, and cluster %s has %d", x.cfg.Prefix, want, x.cfg.Name, has)
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	log, err := stream{x.c, x.names.logStream(0)}.info(ctx)
	if err != nil {
		return // checkStreams reports the error
	}
	for _, d := range differences(x.cfg, x.settings, log.Config) {
		x.add(journal.Note, d.do, "it is set when the cluster is created; later it has no effect", "%s is %s, and cluster %s has %s", d.key, d.want, x.cfg.Name, d.has)
	}
}

// A shard that moves to another member has no owner for a moment. So checkOwners reads
// the owners every moveStep, and reports a shard only if it has none after moveTime.
const (
	moveTime = 5 * time.Second
	moveStep = 250 * time.Millisecond
)

// checkOwners reports shards without an owner, or a cluster without members.
func (x *examiner) checkOwners(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, moveTime)
	defer cancel()
	var s *clusterState
	for ctx.Err() == nil {
		records, revision, err := x.bucket.all(ctx)
		if err == nil {
			s, err = newClusterState(records, revision, x.settings.Shards)
		}
		if err == nil && (len(s.members) == 0 || len(s.orphans()) == 0) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(moveStep):
		}
	}
	switch {
	case s == nil: // checkStreams reports what is wrong with the bucket
	case len(s.members) == 0:
		x.add(journal.Note, "start one", "nothing is worked on", "no process is in the cluster")
	case len(s.orphans()) > 0:
		x.add(journal.Broken, "see the log of the processes, and `tideover cluster`", "the runs of these shards do not continue", "%s no owner: %s",
			textfmt.PluralOf(len(s.orphans()), "shard has", "shards have"), numbers(s.orphans()))
	}
}

// numbers returns a text with the first ten numbers of the list, and how many follow.
func numbers(list []int) string {
	const most = 10
	var text []string
	for i, n := range list {
		if i == most {
			text = append(text, fmt.Sprintf("and %d more", len(list)-most))
			break
		}
		text = append(text, fmt.Sprint(n))
	}
	return strings.Join(text, ", ")
}
