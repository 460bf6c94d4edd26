package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/engine/sqlitelog"
	"github.com/tideover/tideover/internal/secret"
)

const moveLong = `Moves everything that is kept to another place: from the folder of one server to a
cluster on NATS, back, or to another cluster. FROM and TO are each a data folder, or
a configuration file: one with engine.nats stands for its cluster, one without for
its data folder.

All servers must have been stopped, at both places; whoever still runs is named, and
nothing is moved. The new place must be empty. What was moved is read back and
compared, and only then the old place is marked, so that no server opens it by
mistake and does everything twice. Nothing is removed from it: keep it until you
trust the new one. A move that was interrupted is to be repeated.

Waits go on where they were, keys stay known, dead letters and history come along.
Attempts that had not ended count as lost, and are made again. Runs of sessions wait
in a cluster for somebody who can keep them.

A shard of a cluster whose log is lost, because somebody has deleted its stream, is
left out with --without-shard, if it can't be restored: what was in it is then
nowhere. One that can be read, or may be when servers are back, is never left out.

With --dry-run what would be moved is counted, and nothing is written; the new place
is not looked at.

Exit codes:
  0      done
  125    an error of ours: a bad flag, a place that is in use or not empty
  128+n  signal n told us to end; repeat the move`

const moveExample = `  tideover move --dry-run ~/.local/state/tideover cluster.yaml
  tideover move ~/.local/state/tideover cluster.yaml
  tideover move cluster.yaml /var/lib/tideover
  tideover move old.yaml new.yaml
  tideover move --without-shard 3 old.yaml new.yaml`

type moveOptions struct {
	io     Streams
	dryRun bool
	leave  bool
	json   bool

	without []int // shards

	redactor secret.Redactor
	stage    string // that was told of last
}

func newMove(io Streams) *cobra.Command {
	o := &moveOptions{io: io}
	cmd := &cobra.Command{
		Use: "move [flags] FROM TO", Short: "Move everything between a folder and a cluster", Long: moveLong, Example: moveExample, Args: fromTo,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := (&remote{io: io}).context(cmd)
			defer stop()
			return o.run(ctx, args[0], args[1])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "count what would be moved, and write nothing")
	f.BoolVar(&o.leave, "leave-unreadable", false, "leave archives of finished runs behind that can't be read, instead of giving up")
	addWithout(cmd, &o.without)
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// fromTo wants two arguments.
func fromTo(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return errors.New("move: from where to where?")
	case len(args) == 1:
		return errors.New("move: to where?")
	case len(args) > 2:
		return fmt.Errorf("move: from one place to one other, and %q is a third", args[2])
	}
	return nil
}

func (o *moveOptions) run(ctx context.Context, from, to string) error {
	m, err := o.move(ctx, from, to)
	if err == nil {
		return o.report(m)
	}
	if told, ok := errors.AsType[*toldToEnd](context.Cause(ctx)); ok {
		fmt.Fprintln(o.io.Err, "tideover: the move is not complete; repeat it")
		return coded(told)
	}
	return &codedError{errors.New(o.redactor.String(err.Error())), codeOwn}
}

// house is one end of a move.
type house struct {
	name   string // for people
	folder string // empty for a cluster
	config *config.Config
}

// house finds out what is meant by an argument.
func (o *moveOptions) house(arg string) (p house, err error) {
	info, err := os.Stat(arg)
	ext := filepath.Ext(arg)
	switch {
	case err == nil && info.IsDir(), errors.Is(err, fs.ErrNotExist) && ext != ".yaml" && ext != ".yml":
		p.folder, err = filepath.Abs(arg)
		p.name = p.folder
		return p, err
	case err != nil:
		return p, fmt.Errorf("move: %w", err)
	}
	if p.config, err = config.Load(config.Source{Path: arg, Redactor: &o.redactor}); err != nil {
		return p, fmt.Errorf("config: %w", err)
	}
	if p.config.Engine.Clustered() {
		p.name = "cluster " + p.config.Engine.Name
		return p, nil
	}
	p.folder = p.config.Server.Data
	p.name = p.folder
	return p, nil
}

// same reports whether both are one.
func (p *house) same(q *house) bool {
	if p.folder != "" || q.folder != "" {
		return p.folder == q.folder
	}
	return p.config.Engine.Name == q.config.Engine.Name && fmt.Sprint(p.config.Engine.NATS) == fmt.Sprint(q.config.Engine.NATS)
}

// open opens the log of a place.
func (o *moveOptions) open(ctx context.Context, p *house) (journal.Log, error) {
	if p.folder != "" {
		return sqlitelog.Open(ctx, sqlitelog.Config{Dir: p.folder})
	}
	return cluster.Visit(ctx, cluster.Options{Config: &p.config.Engine, Secrets: p.config.Secrets(), Log: slog.New(slog.DiscardHandler), Redact: o.redactor.String})
}

// moved is what was moved, and between which places.
type moved struct {
	From   string `json:"from"`
	To     string `json:"to"`
	DryRun bool   `json:"dry_run"`
	move.Moved
}

func (o *moveOptions) move(ctx context.Context, from, to string) (m moved, err error) {
	source, err := o.house(from)
	if err != nil {
		return m, err
	}
	target, err := o.house(to)
	if err != nil {
		return m, err
	}
	if source.same(&target) {
		return m, fmt.Errorf("move: both are %s", source.name)
	}
	if _, err := os.Stat(filepath.Join(source.folder, "log.db")); source.folder != "" && err != nil {
		return m, fmt.Errorf("move: there are no runs in %s: %w", source.folder, err)
	}
	m = moved{From: source.name, To: target.name, DryRun: o.dryRun}
	if o.dryRun { // the count needs a target, which must not be the real one
		dir, err := os.MkdirTemp("", "tideover-move-")
		if err != nil {
			return m, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		target = house{folder: dir}
	}
	out, err := o.open(ctx, &source)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	in, err := o.open(ctx, &target)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	m.Moved, err = move.Move(ctx, out, in, move.Options{
		From: m.From, To: m.To, DryRun: o.dryRun, LeaveUnreadable: o.leave, WithoutShards: o.without, Progress: o.progress,
	})
	o.erase()
	for i := range m.LeftOut {
		m.LeftOut[i].Error = o.redactor.String(m.LeftOut[i].Error)
	}
	return m, advised(err)
}

// stages are what a move does, in words.
var stages = map[string]string{"read": "reading shards", "archives": "copying archives", "write": "writing shards", "verify": "comparing shards"}

// progress says how far the move is: on a terminal in place, otherwise each stage
// once.
func (o *moveOptions) progress(p move.Progress) {
	text := stages[p.Stage]
	if text == "" {
		text = p.Stage
	}
	switch {
	case o.json:
	case process.IsTerminal(o.io.Err):
		fmt.Fprintf(o.io.Err, "%stideover: %s, %d of %d", clearLine, text, p.Done, p.Total)
	case o.stage != p.Stage:
		fmt.Fprintf(o.io.Err, "tideover: %s\n", text)
	}
	o.stage = p.Stage
}

// erase removes the line that says how far it is.
func (o *moveOptions) erase() {
	if o.stage != "" && !o.json && process.IsTerminal(o.io.Err) {
		fmt.Fprint(o.io.Err, clearLine)
	}
}
