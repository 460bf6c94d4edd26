package jetstream

import (
	"fmt"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// format is the version of the stored formats.
const format = 1

// identityKey is the key for the id of the cluster in the metadata of a stream: a
// stream that was made by hand has none.
const identityKey = "tideover-cluster"

// settings are common to all members of a cluster. They never change.
type settings struct {
	Version   int           `json:"version"`
	ID        string        `json:"id"`
	Shards    int           `json:"shards"`
	Replicas  int           `json:"replicas"`
	MaxBytes  int64         `json:"max_bytes,omitempty"`
	LeaseTime time.Duration `json:"lease_time_ns"`
	Created   time.Time     `json:"created"`
	Ready     bool          `json:"ready"` // all streams were created; a missing one is never created again
}

// check returns an error if this program can't work with the settings, or if the
// configuration has another number of shards.
func (s settings) check(cfg Config, bucket string) error {
	if s.Version > format {
		return fmt.Errorf("%w: cluster %s has version %d, and this program knows %d", journal.ErrNewer, cfg.Name, s.Version, format)
	}
	if cfg.Shards != 0 && cfg.Shards != s.Shards {
		return retry.Permanent(&shardsError{cfg.Prefix, cfg.Name, s.Shards, cfg.Shards})
	}
	if s.Shards < 1 || s.Shards > MaxShards || s.LeaseTime < time.Second {
		return fmt.Errorf("%w: the settings in bucket %s make no sense: %+v", journal.ErrDamaged, bucket, s)
	}
	return nil
}

// shardsError means that the configuration asks for another number of shards than the
// cluster has.
type shardsError struct {
	prefix, name string
	has, want    int
}

func (e *shardsError) Error() string {
	return fmt.Sprintf("%sshards: cluster %s has %d, not %d, and the number can't be changed: write %[3]d or leave it out, "+
		"or move everything to a cluster with another name", e.prefix, e.name, e.has, e.want)
}

// timing has the times that follow from the lease time. The values in brackets are for
// the default lease time, 12 s.
type timing struct {
	beat    time.Duration // between two heartbeats (1 s)
	fresh   time.Duration // we expel others only if a heartbeat of our own arrived within this time (2 s)
	cutOff  time.Duration // without a connection, our leases end this long after our last heartbeat (2.5 s)
	gone    time.Duration // a member without a connection is expelled this long after its last heartbeat (3 s)
	ended   time.Duration // our leases end this long after our last heartbeat (11 s)
	expelAt time.Duration // any member is expelled this long after its last heartbeat (12 s)
}

// timingOf returns the timing for a lease time. A member ends its own leases before
// others may expel it: cutOff < gone and ended < expelAt. When a server dies, JetStream
// takes 4 to 9 seconds to elect new leaders, and the bucket can't be written meanwhile.
// The lease time must be longer than that: otherwise all leases end.
func timingOf(lease time.Duration) timing {
	return timing{
		beat:    lease / 12,
		fresh:   lease / 6,
		cutOff:  lease * 5 / 24,
		gone:    lease / 4,
		ended:   lease * 11 / 12,
		expelAt: lease,
	}
}

// difference is a setting of the configuration that has another value in the cluster,
// because the cluster existed already.
type difference struct {
	key, want, has string
	do             string // advice for the operator
}

// differences compares the configuration with the settings that the cluster was created
// with, and with a stream, which may have been changed by hand since.
func differences(c Config, s settings, log natsjs.StreamConfig) (list []difference) {
	add := func(key string, want, has any, do string) {
		list = append(list, difference{c.Prefix + key, fmt.Sprint(want), fmt.Sprint(has), do})
	}
	edit := func(flag string) string {
		return fmt.Sprintf("write what it has, or change it with `nats stream edit NAME --%s`", flag)
	}
	if c.Replicas > 0 && c.Replicas != log.Replicas {
		add("replicas", c.Replicas, log.Replicas, edit(fmt.Sprintf("replicas %d", c.Replicas))+" for each stream that begins with "+c.Name+", KV_"+c.Name+" or OBJ_"+c.Name)
	}
	if c.MaxBytes > 0 && c.MaxBytes != log.MaxBytes {
		add("max-bytes", c.MaxBytes, limitText(log.MaxBytes), edit(fmt.Sprintf("max-bytes %d", c.MaxBytes))+" for each stream that begins with "+c.Name+"-log-")
	}
	if c.LeaseTime > 0 && c.LeaseTime != s.LeaseTime {
		add("lease-time", c.LeaseTime, s.LeaseTime, "write what it has, or move everything to a cluster with another name")
	}
	return list
}

// limitText returns the text for a limit of a stream; NATS uses -1 for no limit.
func limitText(n int64) string {
	if n <= 0 {
		return "no limit"
	}
	return fmt.Sprint(n)
}

// logDifferences logs the settings that have no effect. log is the stream of the first
// shard; nil if it was created just now.
func logDifferences(cfg Config, s settings, log *natsjs.StreamInfo) {
	if log == nil {
		return
	}
	for _, d := range differences(cfg, s, log.Config) {
		cfg.Logger.Warn("a setting has no effect: the cluster was created with another", "key", d.key, "wanted", d.want, "actual", d.has, "do", d.do)
	}
}

// traces returns a text with the signs that there has been a cluster of this name; "" if
// there are none.
func traces(c Config, second *secondCopy) string {
	var list []string
	if c.Before != "" {
		list = append(list, "this process was in one")
	}
	if shards := second.shards(); len(shards) > 0 {
		list = append(list, fmt.Sprintf("the second place has snapshots of %s of one, in %s", textfmt.Plural(len(shards), "shard"), second.dir))
	}
	return strings.Join(list, ", and ")
}

// restoring is the advice when servers have lost a cluster.
const restoring = "if the NATS servers have lost their disks: end all processes, delete the streams that were made since, and restore the lost ones " +
	"(nats stream restore), or move a backup to the cluster (tideover move); to start with an empty cluster on purpose, remove the old cluster's files from the second place"

// logOrigin logs an error if the cluster is not the one that was there before, and a
// warning if it was created now.
func logOrigin(cfg Config, s settings, second *secondCopy, created bool) {
	log, name := cfg.Logger, cfg.Name
	traces := traces(cfg, second)
	switch {
	case created && traces != "":
		log.Error("made a NEW cluster, with nothing in it, although there was one of this name before: the runs of the old one are not in the new one",
			"name", name, "traces", traces, "do", restoring)
	case created:
		log.Warn("made a new cluster, with nothing in it", "name", name, "shards", s.Shards, "replicas", s.Replicas)
	case cfg.Before != "" && cfg.Before != s.ID:
		log.Error("this is not the cluster that this process was in before: it does not have the runs of the old one, unless they were moved here",
			"name", name, "created", s.Created, "do", restoring)
	}
}
