package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
)

// checkStreams checks every stream of the cluster. If several streams have the same
// finding, it is reported once, with their names.
func (x *examiner) checkStreams(ctx context.Context) {
	list := []string{x.names.bucketStream(), x.names.blobStream()}
	for n := range x.settings.Shards {
		list = append(list, x.names.logStream(n))
	}
	each, copies := make([]findings, len(list)), make([]copies, len(list))
	inParallel(len(list), func(i int) {
		each[i].redact = x.redact
		copies[i] = x.checkStream(ctx, &each[i], stream{x.c, list[i]}, i > 1)
	})
	same := map[journal.Finding][]string{}
	var order []journal.Finding
	for i, one := range each {
		for _, found := range one.list {
			if same[found] == nil {
				order = append(order, found)
			}
			same[found] = append(same[found], list[i])
		}
	}
	for _, found := range order {
		found.What = fmt.Sprintf("%s: %s", streamNames(same[found], len(list)), found.What)
		x.list = append(x.list, found)
	}
	x.checkCopies(copies)
}

func streamNames(names []string, all int) string {
	switch {
	case len(names) == all:
		return "all streams"
	case len(names) > 3:
		return fmt.Sprintf("%s and %d other streams", names[0], len(names)-1)
	default:
		return "stream " + strings.Join(names, ", ")
	}
}

func (x *examiner) checkStream(ctx context.Context, f *findings, s stream, isLog bool) (c copies) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	info, err := s.info(ctx)
	if err = s.deleted(err); err != nil {
		do := "start the servers that are missing"
		if errors.Is(err, journal.ErrDamaged) {
			do = "restore it from a backup"
		}
		f.add(journal.Broken, do, "what is in it can't be used", "%v", err)
		return c
	}
	checkConfig(f, info.Config)
	if isLog {
		checkLogConfig(f, info)
		if _, err := (logStream{s, x.settings.ID}).stateOf(info); err != nil {
			f.add(journal.Broken, "do what the text says", "the runs of its shard do not continue", "%v", err)
		}
	}
	c.want = info.Config.Replicas
	if info.Cluster != nil {
		c.leader, c.peers = info.Cluster.Leader, info.Cluster.Replicas
	}
	return c
}

// checkConfig checks settings that may have been changed by hand.
func checkConfig(f *findings, c natsjs.StreamConfig) {
	const lost = "what was acknowledged gets lost"
	edit := func(what string) string { return "nats stream edit: " + what }
	f.addIf(c.Storage != natsjs.FileStorage, journal.Broken, "restore the stream with file storage",
		lost+" when the servers restart", "kept in memory only")
	f.addIf(c.MaxAge > 0, journal.Broken, edit("no maximal age"), lost, "messages are removed after %v", c.MaxAge)
	f.addIf(c.MaxMsgs > 0, journal.Weak, edit("no maximal number of messages"),
		"nothing can be recorded when it has that many messages", "at most %d messages", c.MaxMsgs)
	f.addIf(c.Discard != natsjs.DiscardNew, journal.Broken, edit("discard policy new"),
		lost+" when the stream is full", "old messages make room for new ones")
	f.addIf(c.Retention != natsjs.LimitsPolicy, journal.Broken, "restore the stream with the retention policy limits",
		lost, "the retention policy is %v", c.Retention)
	f.addIf(!c.AllowDirect, journal.Broken, edit("allow direct"), "it can't be read", "direct access is not allowed")
	f.addIf(c.Duplicates < duplicates, journal.Weak, edit("duplicate window 2m"),
		"the servers recognise a repeated append more slowly", "ids are remembered for %v only", c.Duplicates)
	f.addIf(c.Sealed, journal.Broken, "restore the stream from a backup", "nothing can be recorded any more", "sealed")
}

func checkLogConfig(f *findings, info *natsjs.StreamInfo) {
	c := info.Config
	f.addIf(!c.DenyDelete, journal.Note, "nats stream edit: deny delete",
		"entries may be deleted by hand, which damages the log", "single messages may be deleted")
	f.addIf(c.MaxBytes > 0 && info.State.Bytes > uint64(c.MaxBytes)/5*4, journal.Weak,
		"raise the limit ("+editLimit(c.Name)+"), or see why snapshots do not cut the log",
		"when it is full nothing can be recorded", "%d of %d bytes are used", info.State.Bytes, c.MaxBytes)
}
