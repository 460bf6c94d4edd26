package jetstream

import (
	"fmt"
	"strings"

	"github.com/tideover/tideover/internal/textfmt"
)

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
