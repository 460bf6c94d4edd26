package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/textfmt"
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

// copies is the state of the replicas of one stream. It is zero if the stream does not
// answer.
type copies struct {
	want   int
	leader string
	peers  []*natsjs.PeerInfo // without the leader
}

// good returns how many replicas are up to date.
func (c copies) good() int {
	n := 1 // the leader
	for _, p := range c.peers {
		if p.Current && !p.Offline {
			n++
		}
	}
	return n
}

// quietTime is the silence after which a replica counts as gone. A replica that runs
// answers its leader once a second.
const quietTime = 3 * time.Second

// tally counts the copies of all streams on one server.
type tally struct {
	well, behind, gone int
	lag                uint64
}

func tallies(list []copies) map[string]*tally {
	all := map[string]*tally{}
	of := func(name string) *tally {
		if all[name] == nil {
			all[name] = &tally{}
		}
		return all[name]
	}
	for _, c := range list {
		if c.leader != "" {
			of(c.leader).well++
		}
		for _, p := range c.peers {
			switch t := of(p.Name); {
			case p.Offline, !p.Current && p.Active > quietTime:
				t.gone++
			case !p.Current:
				t.behind++
				t.lag = max(t.lag, p.Lag)
			default:
				t.well++
			}
		}
	}
	return all
}

// checkCopies reports how many servers may be lost without losing data. A missing
// server is one finding, however many streams it has copies of.
func (x *examiner) checkCopies(list []copies) {
	few, least, unplaced := 0, 3, 0
	for _, c := range list {
		if c.want > 0 && c.want < 3 {
			few, least = few+1, min(least, c.want)
		}
		unplaced += max(c.want-1-len(c.peers), 0)
	}
	x.addIf(few > 0, journal.Weak, "run three servers or more, and set the number of replicas to 3 (nats stream edit)",
		"if one server fails nothing works, and data that only this server has is lost with its disk",
		"%s: %d of 3 replicas", some(few, len(list)), least)
	x.addIf(unplaced > 0, journal.Weak, "run as many servers as there are replicas, with room for them",
		oneLess(list), "%s not placed", textfmt.PluralOf(unplaced, "copy is", "copies are"))
	all := tallies(list)
	var gone []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s, answered := x.servers.find(name)
		switch t := all[name]; {
		case answered && s.Data.Disabled:
			x.add(journal.Weak, "make room on its disk, then restart it, or make it reload its configuration (nats-server --signal reload): it does not continue by itself",
				oneLess(list), "server %s has switched JetStream off, because its disk was full or could not be written: it is missing in %s",
				name, textfmt.Plural(t.well+t.behind+t.gone, "stream"))
		case t.gone > 0 && t.well <= t.gone && !answered: // of a server that runs, most copies are not gone
			gone = append(gone, name)
		case t.behind+t.gone > 0:
			x.add(journal.Weak, "wait, it catches up by itself; if it does not, look at its log, and restart it", oneLess(list),
				"server %s is behind in %s, by up to %s", name, textfmt.Plural(t.behind+t.gone, "stream"), textfmt.PluralOf(int(t.lag), "entry", "entries"))
		}
	}
	x.addGone(gone, list)
}

func (x *examiner) addGone(gone []string, list []copies) {
	if len(gone) == 0 {
		return
	}
	what := fmt.Sprintf("server %s is not there", gone[0])
	if len(gone) > 1 {
		what = fmt.Sprintf("servers %s are not there", strings.Join(gone, ", "))
	}
	x.add(journal.Weak, "start it; its copies catch up by themselves. If it runs, its disk may be full: make room, and restart it",
		oneLess(list), "%s", x.servers.withMissing(what))
}

// checkAddresses reports addresses that do not answer, unless withMissing has reported
// them.
func (x *examiner) checkAddresses() {
	x.addIf(len(x.servers.dead) > 0, journal.Weak, "start the server there, or correct the address",
		"a process that starts while the other servers are away does not find the cluster",
		"no answer from %s", strings.Join(x.servers.dead, ", "))
}

// oneLess returns what a missing replica means for the cluster, for the Why of a finding.
func oneLess(list []copies) string {
	for _, c := range list {
		if c.want > 1 && c.good() <= c.want/2+1 {
			return "if one more server is lost, nothing can be recorded"
		}
	}
	return "the cluster survives the loss of one server less"
}

// some returns "all streams" if n is all, else a text like "3 streams".
func some(n, all int) string {
	if n == all {
		return "all streams"
	}
	return textfmt.Plural(n, "stream")
}
