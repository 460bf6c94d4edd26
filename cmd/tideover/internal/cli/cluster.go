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

const clusterLong = `Shows the processes that share the work, and the shards that the work has: who owns
each, how often that has changed (EPOCH), how much of its log is not in a snapshot
yet (ENTRIES, BYTES), how far the slowest copy is behind (LAG), the attempts that run
and the waits and deadlines that are due later.

With --watch it stays up to date: on a terminal in place, otherwise as a line for
each process that comes or goes and each shard that changes hands.`

const clusterExample = `  tideover cluster
  tideover cluster --watch
  tideover cluster --json | jq -r '.shards[] | select(.owner == null).number'`

const clusterCodes = `
Exit codes:
  0      done
  3      the server is in no cluster
  125    an error of ours: a bad flag, no server, something it refused
  128+n  signal n told us to end`

func newCluster(io Streams) *cobra.Command {
	o := &clusterOptions{remote: remote{io: io}, members: map[string]string{}, shards: map[int]string{}}
	var watch bool
	cmd := &cobra.Command{
		Use: "cluster [flags]", Short: "Show the processes that share the work, and who has which part", Long: clusterLong, Example: clusterExample,
		Args: none, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.ask(cmd, func(ctx context.Context, c *client.Client) error {
				if watch {
					return o.watch(ctx, c)
				}
				return o.show(ctx, c)
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "keep it up to date")
	o.command(cmd)
	o.completeFlags(cmd)
	cmd.Long = strings.TrimSpace(clusterLong) + "\n" + remoteServer + "\n" + clusterCodes
	return cmd
}

// clusterOptions are the flags, and what was said last.
type clusterOptions struct {
	remote
	redrawn
	members map[string]string // name by id
	shards  map[int]string
	away    bool
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

// renderCluster returns the members and the shards as lines.
func renderCluster(c *control.Cluster, s *screen) []string {
	members := &table{heads: []string{"MEMBER", "NAME", "SHARDS", "JOINED", "HEARD"}}
	for i := range c.Members {
		m := &c.Members[i]
		name := m.Name
		if m.ID == c.Self {
			name += " (asked)"
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
		count, room, lag := strconv.FormatUint(entries(sh), 10), textfmt.RoundedSize(sh.Bytes), strconv.FormatUint(sh.Lag, 10)
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
		return cell{"nobody", "31"}
	}
	return plain(cmp.Or(sh.Name, sh.Owner))
}

// entries returns how many entries of a shard's log are kept.
func entries(sh *engine.ShardInfo) uint64 {
	if sh.Last < sh.First {
		return 0
	}
	return sh.Last - sh.First + 1
}

// shardTrouble says in short what is wrong with a shard.
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

// watch keeps it up to date.
func (o *clusterOptions) watch(ctx context.Context, c *client.Client) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		info, err := c.Cluster(ctx)
		if err != nil && (first || !passing(err)) {
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

// passing reports whether the server is away, or can't say how the cluster is at
// the moment.
func passing(err error) bool {
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
		return o.changes(info, away)
	case away != nil:
		return o.redraw(o.io.Out, []string{textfmt.ClipWithin(visible(away.Error()), s.width, "…")})
	}
	return o.redraw(o.io.Out, renderCluster(info, &s))
}

// changes prints a line for each process that has come or gone, and each shard
// that has changed hands.
func (o *clusterOptions) changes(info *control.Cluster, away error) error {
	if away != nil {
		if !o.away {
			o.warn("%s", away)
		}
		o.away = true
		return nil
	}
	o.away = false
	if err := o.comeAndGo(info.Members); err != nil {
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
		if err := o.changed(line, sh); err != nil {
			return err
		}
	}
	return nil
}

// comeAndGo tells of members.
func (o *clusterOptions) comeAndGo(members []journal.Member) error {
	gone := o.members
	o.members = map[string]string{}
	for _, m := range members {
		o.members[m.ID] = m.Name
		if _, known := gone[m.ID]; known {
			delete(gone, m.ID)
			continue
		}
		if err := o.changed(fmt.Sprintf("member %s joined name=%q", m.ID, m.Name), m); err != nil {
			return err
		}
	}
	for id, name := range gone {
		if err := o.changed(fmt.Sprintf("member %s left name=%q", id, name), map[string]string{"id": id, "name": name, "left": time.Now().Format(time.RFC3339)}); err != nil {
			return err
		}
	}
	return nil
}

// changed prints what has changed, as text or as JSON.
func (o *clusterOptions) changed(line string, v any) error {
	if o.json {
		return o.printJSON(v)
	}
	return o.say("%s %s", time.Now().Format(time.RFC3339), line)
}
