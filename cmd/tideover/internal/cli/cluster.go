package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

const clusterLong = `Shows the members of the cluster and its shards. For each shard:
  OWNER    the member that works on it
  EPOCH    how often the owner has changed
  ENTRIES, BYTES
           the part of its log that is not in a snapshot yet
  LAG      how many entries the slowest copy is behind
  RUNNING  attempts that are running
  WAITING  waits and deadlines in the future
Lines below the table name the problems of shards.

With --watch the display is updated in place on a terminal. Otherwise a line is
printed for each member that joins or leaves and each shard that changes its owner.`

const clusterExample = `  tideover cluster
  tideover cluster --watch
  tideover cluster --json | jq -r '.shards[] | select(.owner == null).number'`

func newCluster(io Streams) *cobra.Command {
	o := &clusterOptions{remote: newRemote(io)}
	var watch bool
	cmd := &cobra.Command{
		Use: "cluster [flags]", Short: "Show the members of the cluster and the owners of its shards", Long: clusterLong, Example: clusterExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				if watch {
					return o.watch(ctx, c)
				}
				info, err := c.Cluster(ctx)
				return printFetched(&o.resultPrinter, &info, err, renderCluster)
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "update the display every second")
	return o.command(cmd, exits{CodeUnknown: "the server is not part of a cluster"})
}

// clusterOptions holds the flags of cluster, and the members that --watch has printed.
type clusterOptions struct {
	remote
	members map[string]string // names of the members, by id
}

// longestMember is how many characters of the name of a member the tables show, so that lines have
// at most 100 columns.
const longestMember = 40

// renderCluster renders the members and the shards as lines.
func renderCluster(c *admin.Cluster, s *screen) []string {
	members := &table{heads: []string{"MEMBER", "NAME", "SHARDS", "JOINED", "HEARD"}}
	for i := range c.Members {
		m := &c.Members[i]
		name := textfmt.ClipWithin(m.Name, longestMember, "…")
		if m.ID == c.Self {
			name += " (this server)"
		}
		members.add(plain(m.ID), plain(name), plain(strconv.Itoa(c.Owned(m))), plain(s.ago(m.Joined)+" ago"), plain(textfmt.CoarseDuration(m.Silence)+" ago"))
	}
	shards := &table{heads: []string{"SHARD", "OWNER", "EPOCH", "ENTRIES", "BYTES", "LAG", "RUNNING", "WAITING"}}
	var problems []string
	for i := range c.Shards {
		sh := &c.Shards[i]
		running, waiting := strconv.Itoa(sh.Running), strconv.Itoa(sh.Waiting)
		if slices.Contains(c.Silent, sh.Number) {
			running, waiting = "?", "?"
		}
		entries := max(sh.Last+1, sh.First) - sh.First
		count, room, lag := strconv.FormatUint(entries, 10), textfmt.RoundedSize(sh.Bytes), strconv.FormatUint(sh.Lag, 10)
		if sh.Error != "" {
			count, room, lag = "?", "?", "?"
		}
		owner := ownerCell(sh)
		owner.text = textfmt.ClipWithin(owner.text, longestMember, "…")
		shards.add(plain(strconv.Itoa(sh.Number)), owner, plain(strconv.FormatUint(sh.Epoch, 10)), plain(count), plain(room), plain(lag),
			plain(running), plain(waiting))
		if trouble := shardTrouble(c, sh); trouble != "" {
			problems = append(problems, s.paint("31", visible(fmt.Sprintf("shard %d: %s", sh.Number, trouble))))
		}
	}
	return slices.Concat(members.render(s), []string{""}, shards.render(s), problems, renderTroubles(c.Troubles, s, "31"))
}

func ownerCell(sh *engine.ShardInfo) cell {
	if sh.Owner == "" {
		return cell{"none", "31"}
	}
	return plain(cmp.Or(sh.Name, sh.Owner))
}

// shardTrouble returns the first problem of a shard in a few words; empty if there is none.
func shardTrouble(c *admin.Cluster, sh *engine.ShardInfo) string {
	switch {
	case sh.Error != "":
		return sh.Error
	case slices.Contains(c.Silent, sh.Number):
		return "no answer"
	case len(sh.Troubles) > 0:
		return sh.Troubles[0].What
	}
	return ""
}

// watch shows the cluster until the context ends, with an update every second.
func (o *clusterOptions) watch(ctx context.Context, c *client.Client) error {
	w := &listWatch[admin.Cluster]{
		resultPrinter: o.resultPrinter, get: c.Cluster, isAway: isTemporary, warnsAway: true,
		render:  func(info admin.Cluster, s *screen) []string { return renderCluster(&info, s) },
		changes: o.printChanges,
	}
	return w.run(ctx)
}

// isTemporary reports whether the server is unreachable, or can't answer at the moment.
func isTemporary(err error) bool {
	if p, ok := errors.AsType[*control.Error](err); ok {
		return p.Status >= 500
	}
	return unreachable(err)
}

// printChanges prints a line for each member that joined or left, and for each shard with a new
// owner, epoch or problem.
func (o *clusterOptions) printChanges(info admin.Cluster, emit printChange) {
	now := time.Now().Format(time.RFC3339)
	present := map[string]string{}
	for _, m := range info.Members {
		present[m.ID] = m.Name
		emit("member "+m.ID, "joined", m, fmt.Sprintf("%s member %s joined name=%q", now, m.ID, m.Name))
	}
	for id, name := range o.members {
		if _, ok := present[id]; !ok {
			left := map[string]string{"id": id, "name": name, "left": now}
			emit("member "+id, "left", left, fmt.Sprintf("%s member %s left name=%q", now, id, name))
		}
	}
	o.members = present
	for i := range info.Shards {
		sh := &info.Shards[i]
		trouble := shardTrouble(&info, sh)
		line := fmt.Sprintf("%s shard %d owner=%s epoch=%d", now, sh.Number, ownerCell(sh).text, sh.Epoch)
		if trouble != "" {
			line += fmt.Sprintf(" trouble=%q", trouble)
		}
		emit(strconv.Itoa(sh.Number), fmt.Sprint(sh.Owner, sh.Epoch, trouble), sh, line)
	}
}
