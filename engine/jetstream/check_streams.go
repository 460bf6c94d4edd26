package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
)

// checkStreams looks at every stream of the cluster. What all of them have in
// common is said once.
func (x *examiner) checkStreams(ctx context.Context) {
	list := []string{x.names.bucketStream(), x.names.blobStream()}
	for n := range x.settings.Shards {
		list = append(list, x.names.logStream(n))
	}
	each := make([]findings, len(list))
	inParallel(len(list), func(i int) {
		each[i].redact = x.redact
		x.checkStream(ctx, &each[i], stream{x.c, list[i]}, i > 1)
	})
	same := map[Finding][]string{}
	var order []Finding
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

func (x *examiner) checkStream(ctx context.Context, f *findings, s stream, isLog bool) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	info, err := s.info(ctx)
	if err = s.deleted(err); err != nil {
		do := "start the servers that are missing"
		if errors.Is(err, journal.ErrDamaged) {
			do = "restore it from a backup"
		}
		f.add(Broken, do, "what is in it can't be used", "%v", err)
		return
	}
	checkConfig(f, info.Config)
	checkReplicas(f, info)
	if isLog {
		checkLogConfig(f, info)
		if _, err := x.settings.logState(s, info); err != nil {
			f.add(Broken, "see the text", "its shard can't be worked on", "%v", err)
		}
	}
}

// checkConfig looks at what somebody may have changed by hand.
func checkConfig(f *findings, c natsjs.StreamConfig) {
	const lost = "what was acknowledged gets lost"
	edit := func(what string) string { return "nats stream edit: " + what }
	if c.Storage != natsjs.FileStorage {
		f.add(Broken, "restore the stream with file storage", lost+" when the servers restart", "kept in memory only")
	}
	if c.MaxAge > 0 {
		f.add(Broken, edit("no maximal age"), lost, "messages are removed after %v", c.MaxAge)
	}
	if c.MaxMsgs > 0 {
		f.add(Weak, edit("no maximal number of messages"), "it will be full at a number of entries", "at most %d messages", c.MaxMsgs)
	}
	if c.Discard != natsjs.DiscardNew {
		f.add(Broken, edit("discard policy new"), lost+" when the stream is full", "old messages make room for new ones")
	}
	if c.Retention != natsjs.LimitsPolicy {
		f.add(Broken, "restore the stream with the retention policy limits", lost, "the retention policy is %v", c.Retention)
	}
	if !c.AllowDirect {
		f.add(Broken, edit("allow direct"), "it can't be read", "direct access is not allowed")
	}
	if c.Duplicates < duplicates {
		f.add(Weak, edit("duplicate window 2m"), "an append that is repeated is found out about more slowly",
			"ids are remembered for %v only", c.Duplicates)
	}
	if c.Sealed {
		f.add(Broken, "restore the stream from a backup", "nothing can be recorded any more", "sealed")
	}
}

func checkLogConfig(f *findings, info *natsjs.StreamInfo) {
	c := info.Config
	if !c.DenyDelete {
		f.add(Note, "nats stream edit: deny delete", "somebody may delete entries by hand, which damages the log",
			"single messages may be deleted")
	}
	if c.MaxBytes > 0 && info.State.Bytes > uint64(c.MaxBytes)/5*4 {
		f.add(Weak, "raise the limit, or see why snapshots do not cut the log",
			"when it is full nothing can be recorded", "%d of %d bytes are used", info.State.Bytes, c.MaxBytes)
	}
}

// checkReplicas looks at how many servers may be lost.
func checkReplicas(f *findings, info *natsjs.StreamInfo) {
	want := info.Config.Replicas
	if want < 3 {
		f.add(Weak, "run three servers or more, and set the number of replicas to 3 (nats stream edit)",
			"without any one server nothing works, and what only it has is lost with its disk", "%d of 3 replicas", want)
	}
	if info.Cluster == nil || want < 2 {
		return
	}
	good := 1 // the leader
	var bad []string
	for _, r := range info.Cluster.Replicas {
		switch {
		case r.Offline:
			bad = append(bad, r.Name+" is offline")
		case !r.Current:
			bad = append(bad, fmt.Sprintf("%s is %d behind", r.Name, r.Lag))
		default:
			good++
		}
	}
	if missing := want - 1 - len(info.Cluster.Replicas); missing > 0 {
		bad = append(bad, fmt.Sprintf("%d are not placed", missing))
	}
	if len(bad) == 0 {
		return
	}
	why := "one server less that may be lost"
	if good <= want/2+1 {
		why = "if one more server is lost, nothing can be recorded"
	}
	f.add(Weak, "start the servers that are missing; those that are behind catch up", why, "%d of %d replicas are current: %v", good, want, bad)
}
