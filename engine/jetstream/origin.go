package jetstream

import (
	"fmt"
	"strings"

	"github.com/tideover/tideover/internal/textfmt"
)

// ClusterID tells the cluster from others that have had, or will have, its name.
func (l *Log) ClusterID() string { return l.settings.ID }

// MemberName is what this process is called; [Log.Member] is its id.
func (l *Log) MemberName() string { return l.cfg.MemberName }

// Made reports whether there was no cluster before this log was opened.
func (l *Log) Made() bool { return l.made }

// traces says in words what shows that there has been a cluster of this name.
func (c Config) traces(second *second) string {
	var list []string
	if c.Before != "" {
		list = append(list, "this process was in one")
	}
	if shards := second.shards(); len(shards) > 0 {
		list = append(list, fmt.Sprintf("the second place has snapshots of %s of one, in %s", textfmt.Plural(len(shards), "shard"), second.dir))
	}
	return strings.Join(list, ", and ")
}

// restoring is what to do when servers have lost a cluster.
const restoring = "if the NATS servers have lost their disks: end all processes, delete the streams that were made since, and restore the lost ones " +
	"(nats stream restore), or move a backup to the cluster (tideover move); to start anew on purpose, remove what the second place has of it"

// tellOrigin logs that the cluster is new, which nobody may have wanted.
func (l *Log) tellOrigin() {
	log, name := l.cfg.Logger, l.cfg.Name
	traces := l.cfg.traces(l.second)
	switch {
	case l.made && traces != "":
		log.Error("made a NEW cluster, with nothing in it, although there has been one: its runs are not in this one",
			"name", name, "traces", traces, "do", restoring)
	case l.made:
		log.Warn("made a new cluster, with nothing in it", "name", name, "shards", l.settings.Shards, "replicas", l.settings.Replicas)
	case l.cfg.Before != "" && l.cfg.Before != l.settings.ID:
		log.Error("this is not the cluster that this process was in before: unless they were moved here, its runs are not in this one",
			"name", name, "created", l.settings.Created, "do", restoring)
	}
}

// checkTraces says what it means that there is no cluster.
func (x *examiner) checkTraces() {
	traces := x.cfg.traces(x.second)
	if traces == "" {
		x.add(Note, "start a member, which creates it", "there is nothing to look at yet", "there is no cluster %s", x.cfg.Name)
		return
	}
	x.add(Broken, restoring, "all runs of it are lost, unless they are restored",
		"there is no cluster %s, but there has been: %s", x.cfg.Name, traces)
}

// checkOrigin looks whether the cluster is the one that was there before.
func (x *examiner) checkOrigin() {
	if x.cfg.Before != "" && x.cfg.Before != x.settings.ID {
		x.add(Broken, restoring+", and start the process", "runs of the one before are not in it, unless they were moved",
			"cluster %s of %s is not the one that this process was in", x.cfg.Name, stamp(x.settings.Created))
	}
}
