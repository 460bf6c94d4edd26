package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
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

With --watch the display is updated in place on a terminal. Otherwise a line is
printed for each member that joins or leaves and each shard that changes its owner.`

const clusterExample = `  tideover cluster
  tideover cluster --watch
  tideover cluster --json | jq -r '.shards[] | select(.owner == null).number'`

const clusterCodes = `
Exit codes:
  0      success
  3      the server is not part of a cluster
  125    tideover's own error: a bad flag, no server, a request that the server rejected
  128+n  ended by signal n`

func newCluster(io Streams) *cobra.Command {
	o := &clusterOptions{remote: remote{io: io}, members: map[string]string{}, shards: map[int]string{}}
	var watch bool
	cmd := &cobra.Command{
		Use: "cluster [flags]", Short: "Show the members of the cluster and the owners of its shards", Long: clusterLong, Example: clusterExample,
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				if watch {
					return o.watch(ctx, c)
				}
				return o.show(ctx, c)
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "update the display every second")
	o.command(cmd)
	o.completeFlags(cmd)
	cmd.Long = strings.TrimSpace(clusterLong) + "\n" + remoteServer + "\n" + clusterCodes
	return cmd
}

// clusterOptions holds the flags of cluster, and what --watch printed last.
type clusterOptions struct {
	remote
	redrawn
	members     map[string]string // name by id
	shards      map[int]string
	unreachable bool
}

func (o *clusterOptions) show(ctx context.Context, c *client.Client) error {
	info, err := c.Cluster(ctx)
	if err != nil {
		return err
	}
	if o.json {
		return o.printJSON(info)
	}
	s := screenOf(o.io.Out)
	_, err = fmt.Fprintln(o.io.Out, strings.Join(renderCluster(&info, &s), "\n"))
	return err
}

// renderCluster renders the members and the shards as lines.
func renderCluster(c *control.Cluster, s *screen) []string {
	members := &table{heads: []string{"MEMBER", "NAME", "SHARDS", "JOINED", "HEARD"}}
	for i := range c.Members {
		m := &c.Members[i]
		name := m.Name
		if m.ID == c.Self {
			name += " (this server)"
		}
		members.add(plain(m.ID), plain(name), plain(strconv.Itoa(c.Owned(m))), plain(s.ago(m.Joined)+" ago"), plain(textfmt.CoarseDuration(m.Silence)+" ago"))
	}
	shards := &table{heads: []string{"SHARD", "OWNER", "EPOCH", "ENTRIES", "BYTES", "LAG", "RUNNING", "WAITING", "TROUBLE"}}
	for i := range c.Shards {
		sh := &c.Shards[i]
		running, waiting := strconv.Itoa(sh.Running), strconv.Itoa(sh.Waiting)
		if slices.Contains(c.Silent, sh.Number) {
			running, waiting = "?", "?"
		}
		count, room, lag := strconv.FormatUint(logEntries(sh), 10), textfmt.RoundedSize(sh.Bytes), strconv.FormatUint(sh.Lag, 10)
		if sh.Error != "" {
			count, room, lag = "?", "?", "?"
		}
		shards.add(plain(strconv.Itoa(sh.Number)), ownerCell(sh), plain(strconv.FormatUint(sh.Epoch, 10)), plain(count), plain(room), plain(lag),
			plain(running), plain(waiting), cell{shardTrouble(c, sh), "31"})
	}
	lines := append(members.render(s), "")
	lines = append(lines, shards.render(s)...)
	for _, t := range c.Troubles {
		lines = append(lines, s.paint("31", visible(fmt.Sprintf("%s since %s: %s", t.What, s.stamp(t.Since), t.Error))))
	}
	return lines
}

func ownerCell(sh *engine.ShardInfo) cell {
	if sh.Owner == "" {
		return cell{"none", "31"}
	}
	return plain(cmp.Or(sh.Name, sh.Owner))
}

// logEntries returns the number of entries in a shard's log.
func logEntries(sh *engine.ShardInfo) uint64 {
	if sh.Last < sh.First {
		return 0
	}
	return sh.Last - sh.First + 1
}

// shardTrouble returns the first problem of a shard in a few words; empty if there is none.
func shardTrouble(c *control.Cluster, sh *engine.ShardInfo) string {
	if sh.Error != "" {
		return sh.Error
	}
	if slices.Contains(c.Silent, sh.Number) {
		return "no answer"
	}
	if len(sh.Troubles) > 0 {
		return sh.Troubles[0].What
	}
	return ""
}

// watch prints the cluster every second until the context ends.
func (o *clusterOptions) watch(ctx context.Context, c *client.Client) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		info, err := c.Cluster(ctx)
		if err != nil && (first || !isTemporary(err)) {
			return err
		}
		if err := o.update(&info, err); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isTemporary reports whether the server is unreachable, or can't answer at the moment.
func isTemporary(err error) bool {
	if p, ok := errors.AsType[*control.Error](err); ok {
		return p.Status >= 500
	}
	_, away := errors.AsType[*client.UnreachableError](err)
	return away
}

func (o *clusterOptions) update(info *control.Cluster, away error) error {
	s := screenOf(o.io.Out)
	switch {
	case !s.terminal || o.json:
		return o.printChanges(info, away)
	case away != nil:
		return o.redraw(o.io.Out, []string{textfmt.ClipWithin(visible(away.Error()), s.width, "…")})
	}
	return o.redraw(o.io.Out, renderCluster(info, &s))
}

// printChanges prints a line for each member that joined or left, and for each shard with a new
// owner, epoch or problem.
func (o *clusterOptions) printChanges(info *control.Cluster, away error) error {
	if away != nil {
		if !o.unreachable {
			o.warn("%s", away)
		}
		o.unreachable = true
		return nil
	}
	o.unreachable = false
	if err := o.printMemberChanges(info.Members); err != nil {
		return err
	}
	for i := range info.Shards {
		sh := &info.Shards[i]
		mark := fmt.Sprint(sh.Owner, sh.Epoch, shardTrouble(info, sh))
		if o.shards[sh.Number] == mark {
			continue
		}
		o.shards[sh.Number] = mark
		line := fmt.Sprintf("shard %d owner=%s epoch=%d", sh.Number, ownerCell(sh).text, sh.Epoch)
		if trouble := shardTrouble(info, sh); trouble != "" {
			line += fmt.Sprintf(" trouble=%q", trouble)
		}
		if err := o.printChange(line, sh); err != nil {
			return err
		}
	}
	return nil
}

// printMemberChanges prints a line for each member that joined or left since the last call.
func (o *clusterOptions) printMemberChanges(members []journal.Member) error {
	gone := o.members
	o.members = map[string]string{}
	for _, m := range members {
		o.members[m.ID] = m.Name
		if _, known := gone[m.ID]; known {
			delete(gone, m.ID)
			continue
		}
		if err := o.printChange(fmt.Sprintf("member %s joined name=%q", m.ID, m.Name), m); err != nil {
			return err
		}
	}
	for id, name := range gone {
		if err := o.printChange(fmt.Sprintf("member %s left name=%q", id, name), map[string]string{"id": id, "name": name, "left": time.Now().Format(time.RFC3339)}); err != nil {
			return err
		}
	}
	return nil
}

// printChange prints a change as a line of text or JSON.
func (o *clusterOptions) printChange(line string, v any) error {
	if o.json {
		return o.printJSON(v)
	}
	return o.printLine("%s %s", time.Now().Format(time.RFC3339), line)
}
