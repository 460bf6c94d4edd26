package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"
)

// The severities of a [Finding], the worst first.
const (
	Broken = "broken" // it does not work, or loses what was acknowledged
	Weak   = "weak"   // it promises less than it should
	Note   = "note"   // worth knowing
)

// Finding is something about the servers or the configuration that weakens what
// the log promises.
type Finding struct {
	Severity string `json:"severity"`
	What     string `json:"what"` // what was found
	Why      string `json:"why"`  // what that means
	Do       string `json:"do"`   // what to change
}

// findings collects what a check finds.
type findings struct {
	redact func(string) string
	list   []Finding
}

func (f *findings) add(severity, do, why, format string, args ...any) {
	f.list = append(f.list, Finding{severity, f.redact(fmt.Sprintf(format, args...)), why, do})
}

// sorted returns the findings, the worst first.
func (f *findings) sorted() []Finding {
	rank := map[string]int{Broken: 0, Weak: 1, Note: 2}
	slices.SortStableFunc(f.list, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	return f.list
}

// Check looks for whatever weakens the promises of a log, the worst first, without
// joining its cluster or creating anything. An error says that it could not look.
func Check(ctx context.Context, cfg Config) ([]Finding, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check log: %w", err)
	}
	cfg = cfg.withDefaults()
	found, err := checkFromOutside(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("check log %s: %w", cfg.Name, err)
	}
	return found, nil
}

// greetTime is how long somebody who only looks waits for a server to be there.
const greetTime = 8 * time.Second

func checkFromOutside(ctx context.Context, cfg Config) ([]Finding, error) {
	who, err := cfg.identity()
	if err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeout(ctx, greetTime)
	c, err := dial(patience, cfg, who)
	cancel()
	if err != nil {
		return nil, err
	}
	defer c.nc.Close()
	x := &examiner{findings: findings{redact: cfg.redact}, cfg: cfg, c: c, names: names(cfg.Name), outside: true}
	x.bucket = newBucket(c, x.names)
	if x.second, err = openSecond(cfg); err != nil {
		x.add(Broken, "make the folder, or mount its disk", "no member can start", "%v", err)
	}
	if err := checkServer(c); err != nil {
		x.add(Broken, "update or configure the server", "no member can start", "%v", err)
	}
	return x.examine(ctx)
}

// Check is the function of the same name for a log that is open.
func (l *Log) Check(ctx context.Context) ([]Finding, error) {
	if l.life.Err() != nil {
		return nil, fmt.Errorf("check log %s: %w", l.cfg.Name, errClosed)
	}
	x := &examiner{
		findings: findings{redact: l.cfg.redact}, cfg: l.cfg, c: l.c, names: l.names, bucket: l.bucket, second: l.objects.second,
	}
	found, err := x.examine(ctx)
	if err != nil {
		return nil, fmt.Errorf("check log %s: %w", l.cfg.Name, err)
	}
	return found, nil
}

// examiner looks at a cluster.
type examiner struct {
	findings
	cfg      Config
	c        *conn
	names    names
	bucket   bucket
	second   *second // nil means none
	settings settings
	outside  bool         // we are no member
	dead     []string     // addresses where nobody answers
	servers  []serverInfo // those that tell about themselves
}

func (x *examiner) examine(ctx context.Context) ([]Finding, error) {
	if err := x.c.connected(); err != nil {
		return nil, err
	}
	x.checkConnection()
	x.checkServers(ctx)
	x.checkSecond()
	x.dead = deadAddresses(ctx, x.cfg.URL)
	exists, err := x.findSettings(ctx)
	if err != nil {
		x.add(Broken, "start the servers that are missing", "nothing can be recorded", "%s", x.withMissing(fmt.Sprintf("the settings of the cluster can't be read: %v", err)))
	}
	if exists {
		x.checkCluster(ctx)
	}
	x.checkAddresses()
	return x.sorted(), ctx.Err()
}

// checkCluster looks at a cluster that is there.
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

// findSettings reports whether there is a cluster, and finds out how it was made.
func (x *examiner) findSettings(ctx context.Context) (exists bool, err error) {
	asking, cancel := context.WithTimeout(ctx, electionTime)
	defer cancel()
	var r record
	for a := range asks.Attempts(asking, &err) {
		if r, err = x.bucket.get(a.Context(), settingsKey); errors.Is(err, errGone) {
			err = fmt.Errorf("%w: %w", errNoMessage, err) // there is no bucket either
		}
	}
	if errors.Is(err, errNoMessage) {
		x.checkNothing(ctx)
		return false, nil
	}
	if err != nil {
		return false, plain(err)
	}
	return true, json.Unmarshal(r.value, &x.settings)
}

// checkNothing tells a cluster that was not made yet from one whose bucket is gone.
func (x *examiner) checkNothing(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	if _, err := (stream{x.c, x.names.logStream(0)}).info(ctx); err == nil {
		x.add(Broken, "restore it from a backup", "no member can start", "stream %s was deleted, or its settings were", x.bucket.stream.name)
		return
	}
	x.checkTraces()
}

// checkConnection looks at how we are connected.
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
	x.add(Note, "give the servers certificates, and use tls:// in the url",
		"whoever sees the network sees all work, and may change it", "the connection to %s is not encrypted", u.Host)
}

// checkTiming looks at the time of leases.
func (x *examiner) checkTiming() {
	if x.settings.Replicas > 1 && timingOf(x.settings.LeaseTime).ended < electionTime {
		x.add(Weak, "create the cluster with a lease time of 12 s or more",
			"when a server dies its streams have no leader for 4 to 9 s; all leases end, and all shards start again",
			"the lease time is %v", x.settings.LeaseTime)
	}
}

// electionTime is how long a stream may be without leader after a server has died.
const electionTime = 10 * time.Second

// checkSecond looks at the second place for blobs.
func (x *examiner) checkSecond() {
	if x.second == nil {
		if x.cfg.SecondPlace == "" {
			x.add(Weak, "set a second place: a folder on a disk that the NATS servers do not use",
				"if the servers lose or damage the snapshots, the log before them is gone as well",
				"snapshots have no second place outside of NATS")
		}
		return
	}
	if err := x.second.try(); err != nil {
		x.add(Broken, "make the folder writable for this process; is its disk mounted?",
			"new snapshots have no second copy", "the second place can't be written: %v", err)
		return
	}
	if err := x.second.lastFailure(); err != nil {
		x.add(Broken, "see to the cause; the next snapshot makes the copies again",
			"some snapshots have no second copy", "the last copy to the second place failed: %v", err)
	}
}
