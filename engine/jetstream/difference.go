package jetstream

import (
	"context"
	"fmt"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// difference is a setting that the cluster has otherwise than was asked for,
// because it was there already.
type difference struct {
	key, want, has string
	do             string // how the cluster can be changed
}

// differences compares what is asked for with what the cluster was created with,
// and a stream with what somebody may have changed since.
func (c Config) differences(s settings, log natsjs.StreamConfig) (list []difference) {
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

// limitText is a limit of a stream, which has -1 for none.
func limitText(n int64) string {
	if n <= 0 {
		return "no limit"
	}
	return fmt.Sprint(n)
}

// tellDifferences logs what is not as it was asked for.
func (l *Log) tellDifferences(log *natsjs.StreamInfo) {
	if log == nil {
		return // all was made as it was asked for
	}
	for _, d := range l.cfg.differences(l.settings, log.Config) {
		l.cfg.Logger.Warn("a setting has no effect: the cluster was created with another", "key", d.key, "wanted", d.want, "actual", d.has, "do", d.do)
	}
}

// checkDifferences looks for settings that are not as they were asked for.
func (x *examiner) checkDifferences(ctx context.Context) {
	if want, has := x.cfg.Shards, x.settings.Shards; want > 0 && want != has {
		x.add(Broken, "write what it has or leave it out, or move everything to a cluster with another name", "no process with this setting can join",
			"%sshards is %d, and cluster %s has %d", x.cfg.Prefix, want, x.cfg.Name, has)
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	log, err := stream{x.c, x.names.logStream(0)}.info(ctx)
	if err != nil {
		return // what is wrong with it is found with the others
	}
	for _, d := range x.cfg.differences(x.settings, log.Config) {
		x.add(Note, d.do, "it is set when the cluster is created; later it has no effect", "%s is %s, and cluster %s has %s", d.key, d.want, x.cfg.Name, d.has)
	}
}
