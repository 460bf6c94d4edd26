package jetstream

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/textfmt"
)

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
