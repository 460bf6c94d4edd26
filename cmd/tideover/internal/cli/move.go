package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/engine/sqlitelog"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

const moveLong = `Moves all stored state to another place: from the folder of a server to a cluster on
NATS, from a cluster to a folder, or to another cluster. FROM and TO are each a data
folder or a configuration file. A file with engine.nats stands for its cluster, one
without for its data folder.

Stop all servers at both places first. If one is still running, it is named and
nothing is moved. After a server or a move of a cluster was killed, the move waits
until its lease has ended. The new place must be empty. The data is read back and compared;
then the old place is marked, so that no server opens it by mistake and does the same
work twice. Nothing is deleted from the old place: keep it until you trust the new
one. After an interruption, run the move again.

Waits continue, and keys, dead runs and the history are kept. Attempts that had not
ended count as lost and are made again. In a cluster, runs of sessions wait for a
server that can run sessions.

If the log of a shard is lost, because its stream was deleted, and can't be restored,
--without-shard leaves it out; its contents are then lost. A shard that can be
read, or may be readable when all servers are back, is never left out.

--dry-run counts what would be moved and refuses what the move would refuse. It
writes nothing to the new place, so it can't find out whether there is room for it.`

const moveExample = `  tideover move --dry-run ~/.local/state/tideover cluster.yaml
  tideover move ~/.local/state/tideover cluster.yaml
  tideover move cluster.yaml /var/lib/tideover
  tideover move old.yaml new.yaml
  tideover move --without-shard 3 old.yaml new.yaml`

type moveOptions struct {
	resultPrinter
	dryRun   bool
	leave    bool
	accept   bool  // a loss of acknowledged entries of the source
	without  []int // numbers of lost shards to leave out
	redactor secret.Redactor
	stage    string // the stage that progress was last called with
}

func newMove(io Streams) *cobra.Command {
	o := &moveOptions{resultPrinter: resultPrinter{io: io}}
	cmd := &cobra.Command{
		Use: "move [flags] FROM TO", Short: "Move the state between a folder and a cluster", Long: moveLong, Example: moveExample, Args: checkMoveArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := contextUntilSignal(cmd.Context())
			defer stop()
			return o.run(ctx, args[0], args[1])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "count what would be moved, and write nothing")
	f.BoolVar(&o.leave, "leave-unreadable", false, "skip unreadable archives of finished runs instead of failing")
	addAcceptLoss(cmd, &o.accept)
	addWithout(cmd, &o.without)
	f.BoolVarP(&o.json, "json", "j", false, "print JSON")
	return exits{
		CodeOwn: "tideover's own error: a bad flag, a place that is in use or not empty", codeSignal: "ended by signal n; run the move again",
	}.declare(cmd)
}

// checkMoveArgs accepts exactly two arguments.
func checkMoveArgs(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return errors.New("move: no places given: want FROM and TO")
	case len(args) == 1:
		return errors.New("move: TO is missing: want FROM and TO")
	case len(args) > 2:
		return fmt.Errorf("move: too many arguments: want FROM and TO, and %q is a third", args[2])
	}
	return nil
}

func (o *moveOptions) run(ctx context.Context, from, to string) error {
	m, err := o.move(ctx, from, to)
	if err == nil {
		return o.report(m)
	}
	if interrupted, ok := errors.AsType[*interruptedError](context.Cause(ctx)); ok {
		o.warn("the move was interrupted: run it again")
		return coded(interrupted)
	}
	return &codedError{errors.New(o.redactor.String(describeMoveError(err))), CodeOwn}
}

// describeMoveError returns the text of an error. If the move was refused, its first line says what
// to do, and the second has the details.
func describeMoveError(err error) string {
	if refused, ok := errors.AsType[*move.RefusedError](err); ok {
		return "move: " + refused.Problem + "\n  " + refused.Err.Error()
	}
	return err.Error()
}

// moveLocation is the source or the target of a move.
type moveLocation struct {
	name   string         // for messages
	folder string         // empty for a cluster
	config *config.Config // nil if the argument was a folder
}

// resolveLocation returns the folder or the cluster that an argument names.
func (o *moveOptions) resolveLocation(arg string) (p moveLocation, err error) {
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
	} else {
		p.folder = p.config.Server.Data
		p.name = p.folder
	}
	return p, nil
}

// same reports whether p and q are the same folder or the same cluster.
func (p *moveLocation) same(q *moveLocation) bool {
	if p.folder != "" || q.folder != "" {
		return p.folder == q.folder
	}
	return p.config.Engine.Name == q.config.Engine.Name && fmt.Sprint(p.config.Engine.NATS) == fmt.Sprint(q.config.Engine.NATS)
}

// open opens the log of a location.
func (o *moveOptions) open(ctx context.Context, p *moveLocation) (journal.Log, error) {
	if p.folder != "" {
		return sqlitelog.Open(ctx, sqlitelog.Config{Dir: p.folder, AcceptLoss: o.accept})
	}
	return o.visit(ctx, p, false)
}

// visit opens the log of a cluster that no server uses.
func (o *moveOptions) visit(ctx context.Context, p *moveLocation, readOnly bool) (*jetstream.Log, error) {
	defer o.erase()
	return cluster.Visit(ctx, cluster.Options{
		Config: &p.config.Engine, Secrets: p.config.Secrets(), Log: slog.New(slog.DiscardHandler), Redact: o.redactor.String,
		AcceptLoss: o.accept, ReadOnly: readOnly,
	}, o.waiting)
}

// openTarget opens the log of the target. In a dry run it opens the log only for reading, and creates none.
func (o *moveOptions) openTarget(ctx context.Context, p *moveLocation) (journal.Log, error) {
	switch {
	case !o.dryRun:
		return o.open(ctx, p)
	case p.folder != "":
		r := new(sqlitelog.Reader)
		return &readOnlyLog{1, func(context.Context, int) (journal.Reader, error) {
			opened, err := sqlitelog.OpenReader(p.folder, sqlitelog.Full)
			if err != nil {
				return nil, err
			}
			if r = opened; r.Live() {
				err = fmt.Errorf("%w: %s", journal.ErrLocked, p.folder)
			}
			return r, err
		}, func() error { r.Close(); return nil }}, nil
	}
	l, err := o.visit(ctx, p, true)
	switch {
	case errors.Is(err, jetstream.ErrNoCluster):
		empty := func(context.Context, int) (journal.Reader, error) { return new(sqlitelog.Reader), nil }
		return &readOnlyLog{cmp.Or(p.config.Engine.Shards, jetstream.DefaultShards), empty, func() error { return nil }}, nil
	case err != nil:
		return nil, err
	}
	return &readOnlyLog{l.Shards(), l.Peek, l.Close}, nil
}

// readOnlyLog is the target of a dry run. Its leases can only read.
type readOnlyLog struct {
	shards int
	peek   func(ctx context.Context, shard int) (journal.Reader, error)
	close  func() error
}

func (l *readOnlyLog) Shards() int { return l.shards }

// Lease implements [journal.Log].
func (l *readOnlyLog) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	r, err := l.peek(ctx, shard)
	return readOnlyLease{Reader: r}, err
}

// Close implements [journal.Log].
func (l *readOnlyLog) Close() error { return l.close() }

// readOnlyLease has the methods of its reader. The others panic: a dry run does not call them.
type readOnlyLease struct {
	journal.Reader
	noWriter
}

type noWriter struct{ journal.Lease }

// Release implements [journal.Lease].
func (readOnlyLease) Release() error { return nil }

// waiting prints that the move waits for the end of the leases of members that send no heartbeats.
func (o *moveOptions) waiting(members string, left time.Duration) {
	text := fmt.Sprintf("waiting until the lease of %s has ended, at most %v", members, left.Round(time.Second))
	o.showProgress("lease", text, text)
}

// moved is the JSON output of move.
type moved struct {
	From   string `json:"from"`
	To     string `json:"to"`
	DryRun bool   `json:"dry_run"`
	move.Moved
}

func (o *moveOptions) move(ctx context.Context, from, to string) (m moved, err error) {
	source, err := o.resolveLocation(from)
	if err != nil {
		return m, err
	}
	target, err := o.resolveLocation(to)
	if err != nil {
		return m, err
	}
	if source.same(&target) {
		return m, fmt.Errorf("move: FROM and TO are both %s", source.name)
	}
	if _, err := os.Stat(filepath.Join(source.folder, "log.db")); source.folder != "" && err != nil {
		return m, fmt.Errorf("move: %s contains no runs: %w", source.folder, err)
	}
	m = moved{From: source.name, To: target.name, DryRun: o.dryRun}
	out, err := o.open(ctx, &source)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	in, err := o.openTarget(ctx, &target)
	if used, ok := errors.AsType[*cluster.InUseError](err); ok {
		return m, &move.RefusedError{
			Problem: "the target is in use: use a new folder, or a new cluster with another engine.name",
			Err:     fmt.Errorf("%s: in use by %s", target.name, used.Members),
		}
	}
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
	return m, hintLostShard(err)
}

// stageNames maps the stages of a move to the texts that progress prints.
var stageNames = map[string]string{"read": "reading shards", "archives": "copying archives", "write": "writing shards", "verify": "comparing shards"}

// progress prints the progress of the move: on a terminal in place, otherwise a line for each
// stage.
func (o *moveOptions) progress(p move.Progress) {
	text := cmp.Or(stageNames[p.Stage], p.Stage)
	o.showProgress(p.Stage, text, fmt.Sprintf("%s, %d of %d", text, p.Done, p.Total))
}

// showProgress prints the text inPlace on a terminal, and otherwise the text once for each stage.
func (o *moveOptions) showProgress(stage, text, inPlace string) {
	switch {
	case o.json:
	case process.IsTerminal(o.io.Err):
		fmt.Fprintf(o.io.Err, "%stideover: %s", clearLine, inPlace)
	case o.stage != stage:
		fmt.Fprintf(o.io.Err, "tideover: %s\n", text)
	}
	o.stage = stage
}

// erase clears the progress line on a terminal.
func (o *moveOptions) erase() {
	if o.stage != "" && !o.json && process.IsTerminal(o.io.Err) {
		fmt.Fprint(o.io.Err, clearLine)
	}
}

// report prints the result of the move.
func (o *moveOptions) report(m moved) error {
	if len(m.LeftOut) > 0 {
		o.warn("%s", incomplete(m.LeftOut))
	}
	return o.printRendered(m, func(s *screen) []string { return renderMoved(m, s) })
}

func renderMoved(m moved, s *screen) []string {
	verb := "moved"
	if m.DryRun {
		verb = "would move"
	}
	lines := []string{visible(fmt.Sprintf("%s %s from %s to %s", verb, textfmt.Plural(totalRuns(m.Runs), "run"), m.From, m.To))}
	fact := func(n int, name, colour string) {
		if n > 0 {
			lines = append(lines, fmt.Sprintf("  %s  %d", s.paint(colour, fmt.Sprintf("%-13s", name)), n))
		}
	}
	for _, state := range control.States() {
		fact(m.Runs[state], state, stateColours[state])
	}
	fact(m.Keys, "keys", "")
	fact(m.Schedules, "schedules", "")
	if m.Orphans > 0 {
		lines = append(lines, textfmt.Plural(m.Orphans, "attempt")+" had not ended and will be made again")
	}
	if len(m.Unreadable) > 0 {
		lines = append(lines, s.paint("31", visible("skipped, because they can't be read: "+strings.Join(slices.Sorted(slices.Values(m.Unreadable)), ", "))))
	}
	lines = append(lines, renderLeftOut(m.LeftOut, s)...)
	if m.DryRun {
		return append(lines, "nothing was written")
	}
	return append(lines,
		fmt.Sprintf("%s in %s; downtime %s", textfmt.RoundedSize(uint64(max(m.Bytes, 0))), textfmt.Plural(m.ToShards, "shard"), textfmt.CoarseDuration(m.Stood.Round(time.Millisecond))),
		"the old place is marked, so that no server opens it; nothing was deleted from it")
}

// addWithout adds the flag --without-shard.
func addWithout(cmd *cobra.Command, shards *[]int) {
	cmd.Flags().IntSliceVar(shards, "without-shard", nil, "leave out the lost shard with this `number`; can be repeated")
}

// incomplete returns the warning about shards that were left out.
func incomplete(list []move.LeftOut) string {
	var numbers []int
	for _, l := range list {
		numbers = append(numbers, l.Shard)
	}
	noun := "shard "
	if len(list) > 1 {
		noun = "shards "
	}
	return "NOT COMPLETE: " + noun + joinInts(numbers) + " left out"
}

// joinInts returns numbers with commas between them.
func joinInts(numbers []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ", ")
}

// renderLeftOut returns a line for each shard that was left out, so that a partial copy is not
// taken for a complete one.
func renderLeftOut(list []move.LeftOut, s *screen) (lines []string) {
	for _, l := range list {
		lines = append(lines, s.paint("31", visible(fmt.Sprintf("LEFT OUT shard %d, with all its runs, keys, schedules and history: %s", l.Shard, l.Error))))
	}
	return lines
}

// hintLostShard adds a hint to an error about a lost shard: the flag that leaves out the shard.
func hintLostShard(err error) error {
	if lost, ok := errors.AsType[*move.LostShardError](err); ok {
		return fmt.Errorf("%w; if it can't be restored, leave it out with --without-shard %d", err, lost.Shard)
	}
	return err
}
