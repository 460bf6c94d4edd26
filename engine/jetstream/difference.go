package jetstream

import (
	"fmt"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

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
