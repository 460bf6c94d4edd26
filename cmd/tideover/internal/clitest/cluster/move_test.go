//go:build unix

package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

const movable = `version: 1
workflows:
  quick: {schedule: "0 3 1 1 *", steps: [{id: say, run: [echo, done]}]}
  patient: {steps: [{id: fail, run: [sh, -c, 'test -e $GATE || exit 75'], policy: fixed(1s) attempts=unlimited}]}
  slow: {steps: [{id: fail, run: ["false"], policy: fixed(1h) attempts=3}]}
  idle: {steps: [{id: rest, sleep: 1ms}]}
  dead: {steps: [{id: fail, run: ["false"], policy: fixed(0s) attempts=1}]}
`

func TestMovingHouse(t *testing.T) {
	t.Parallel()
	f := clitest.NewCluster(t, movable)
	nodes := natstest.SharedNode(t)
	end := clitest.EngineSection(nodes, clitest.ClusterName(t))
	home := f.Serve("home")
	done := strings.TrimSpace(home.RunCommand("run", "quick", "--key", "order 1").Out)
	waiting := home.StartRuns("patient", 3)
	slow := home.StartRuns("slow", 1)[0]
	dead := home.StartRuns("dead", 2)
	testwait.Until(t, "all is as it should be", func() bool {
		return home.Show(done).State == "succeeded" && home.Show(slow).State == "waiting" && home.Show(dead[0]).State == "dead" && home.Show(dead[1]).State == "dead"
	})
	next := home.Show(slow).Next

	// Nothing is moved while a server is running, and the error names it.
	away := filepath.Join(f.Dir, "cluster.yaml")
	clitest.WriteFile(t, away, movable+end)
	o := clitest.Run(t, "move", home.Data, away)
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "the refusal", o.Stderr, "is in use by another process: the process with pid ")
	home.Signal(syscall.SIGTERM)
	clitest.WantCode(t, home.End(), 0)

	// A server whose configuration names a cluster does not start while its folder has runs: they
	// would be lost.
	f.Text = movable + end
	early := f.Begin("home")
	clitest.WantCode(t, early.End(), 125)
	clitest.WantIn(t, "the refusal", early.Log.String(), "has runs that the cluster would not continue: move them to the cluster with `tideover move`")

	o = clitest.Run(t, "move", "--dry-run", home.Data, away)
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "what would be moved", o.Out, "would move 7 runs from "+home.Data)
	clitest.WantIn(t, "what would be moved", o.Out, "nothing was written")
	o = clitest.Run(t, "move", home.Data, away)
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "what was moved", o.Out, "moved 7 runs from "+home.Data)
	clitest.WantIn(t, "the stages", o.Stderr, "comparing shards")
	o = clitest.Run(t, "move", home.Data, away)
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "once more", o.Stderr, "everything here was moved to cluster ")

	// All runs continue in the cluster.
	a := f.Serve("home")
	b := f.Serve("b")
	a.WaitForShards(2)
	if i := b.Show("order 1"); i.ID != done || i.State != "succeeded" {
		t.Errorf("what was done is %+v", i)
	}
	if i := b.Show(slow); i.State != "waiting" || !i.Next.Equal(*next) {
		t.Errorf("the wait until %v is now %s until %v", next, i.State, i.Next)
	}
	clitest.WantIn(t, "dead letters", b.RunCommand("dead", "--groups").Out, "2     dead")
	testwait.Until(t, "the schedule is there", func() bool { return strings.Contains(b.RunCommand("schedules").Out, "0 3 1 1 *") })
	o = clitest.Run(t, "move", away, filepath.Join(f.Dir, "back"))
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "the refusal", o.Stderr, "in use by ")

	// The cluster in use is backed up, and the copy is moved to another cluster. A dry run refuses a
	// cluster as the move does.
	copied, another := filepath.Join(f.Dir, "copy"), filepath.Join(f.Dir, "another.yaml")
	clitest.WriteFile(t, another, movable+clitest.EngineSection(nodes, clitest.ClusterName(t)))
	clitest.WantCode(t, a.RunCommand("backup", copied), 0)
	o = clitest.Run(t, "move", copied, another)
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "what was moved", o.Out, "moved 7 runs from "+copied)
	copied = filepath.Join(f.Dir, "another copy")
	clitest.WantCode(t, a.RunCommand("backup", copied), 0)
	refused := func(want string) {
		t.Helper()
		for _, args := range [][]string{{"move", "--dry-run", copied, away}, {"move", copied, away}} {
			o := clitest.Run(t, args...)
			clitest.WantCode(t, o, 125)
			clitest.WantIn(t, strings.Join(args, " "), o.Stderr, want)
		}
	}
	refused("move: the target is in use: use a new folder, or a new cluster with another engine.name\n  cluster ")
	for _, s := range []*clitest.Server{a, b} {
		s.Signal(syscall.SIGTERM)
		clitest.WantCode(t, s.End(), 0)
	}
	refused("move: the target is not empty: use a new folder or cluster")

	// Back to a folder, with --json.
	o = clitest.Run(t, "move", "--json", away, filepath.Join(f.Dir, "back", "data"))
	clitest.WantCode(t, o, 0)
	var m move.Moved
	if err := json.Unmarshal([]byte(o.Out), &m); err != nil || m.Runs["dead"] != 2 || m.Runs["waiting"]+m.Runs["running"] != 4 || m.FromShards != 4 || m.ToShards != 1 {
		t.Errorf("moved %+v, %v", m, err)
	}
	f.Text = movable
	back := f.Serve("back")
	f.Open()
	back.WaitForSuccess(waiting)
	if i := back.Show("order 1"); i.ID != done {
		t.Errorf("the key is of %+v", i)
	}
}

// A server that was killed is a member of the cluster until its lease has ended. A move waits for that.
func TestAMoveWaitsForTheLeaseOfAKilledServer(t *testing.T) {
	t.Parallel()
	name := clitest.ClusterName(t)
	f := clitest.NewCluster(t, movable+clitest.EngineSection(natstest.SharedNode(t), name))
	away := filepath.Join(f.Dir, "cluster.yaml")
	clitest.WriteFile(t, away, f.Text)
	a := f.Serve("a")
	a.WaitForShards(1)
	waiting := a.StartRuns("patient", 3)
	a.Signal(syscall.SIGKILL)
	a.End()
	o := clitest.Run(t, "move", away, filepath.Join(f.Dir, "back", "data"))
	if o.Code != 0 {
		t.Fatalf("move: exit code %d, %s", o.Code, o.Stderr)
	}
	clitest.WantIn(t, "what was moved", o.Out, "moved 3 runs from cluster "+name)
	clitest.WantIn(t, "the progress", o.Stderr, "waiting until the lease of ")
	f.Text = movable
	back := f.Serve("back")
	f.Open()
	back.WaitForSuccess(waiting)
}

func TestTheFirstLineOfARefusedMoveSaysWhatToDo(t *testing.T) {
	t.Parallel()
	f := clitest.NewCluster(t, movable)
	home, other := f.Serve("home"), f.Serve("other")
	for _, s := range []*clitest.Server{home, other} {
		clitest.WantCode(t, s.RunCommand("run", "quick", "--wait"), 0)
	}
	refused := func(to, first, second string) {
		t.Helper()
		before := files(t, to)
		for _, args := range [][]string{{"move", "--dry-run", home.Data, to}, {"move", home.Data, to}} {
			o := clitest.Run(t, args...)
			clitest.WantCode(t, o, 125)
			if lines := strings.Split(strings.TrimSuffix(o.Stderr, "\n"), "\n"); len(lines) != 2 || lines[0] != "tideover: move: "+first || !strings.Contains(lines[1], second) {
				t.Errorf("%s says\n%s\nwant the lines\n%s\n%s", args, o.Stderr, first, second)
			}
			if after := files(t, to); args[1] == "--dry-run" && !strings.Contains(first, "in use") && after != before {
				t.Errorf("a dry run has changed the target: it has\n%s\nwant\n%s", after, before)
			}
		}
	}
	stop := func(s *clitest.Server) {
		t.Helper()
		s.Signal(syscall.SIGTERM)
		clitest.WantCode(t, s.End(), 0)
	}
	empty := filepath.Join(f.Dir, "new")
	refused(empty, "the source is in use: stop all servers that use it, then repeat the move", "shard 0 of the source: ")
	stop(home)
	refused(other.Data, "the target is in use: stop all servers that use it, then repeat the move", "shard 0 of the target: ")
	stop(other)
	refused(other.Data, "the target is not empty: use a new folder or cluster, in which no server has started", "shard 0 of the target: it has 1 succeeded run")

	if err := os.RemoveAll(empty); err != nil {
		t.Fatal(err)
	}
	clitest.WantCode(t, clitest.Run(t, "move", "--dry-run", home.Data, empty), 0)
	if made := files(t, empty); made != "" {
		t.Errorf("a dry run has made\n%s", made)
	}
	clitest.WantCode(t, clitest.Run(t, "move", home.Data, empty), 0)
	late := f.Begin("home")
	clitest.WantCode(t, late.End(), 125)
	clitest.WantIn(t, "the old place", late.Log.String(), "everything here was moved to ")
	if strings.Contains(late.Log.String(), "--help") { // the flags are right
		t.Errorf("the server of the old place says\n%s", late.Log.String())
	}
}

// files returns the names, sizes and times of the files of a folder that has no server; "" if there
// is no folder.
func files(t *testing.T, dir string) (list string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil {
			list += fmt.Sprintln(path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return list
}

func TestMovesThatAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "folder.yaml")
	clitest.WriteFile(t, folder, "version: 1\nserver: {data: "+empty+"}\n")
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "move: no places given: want FROM and TO"},
		{"one place", []string{empty}, "move: TO is missing: want FROM and TO"},
		{"three places", []string{"a", "b", "c"}, `and "c" is a third`},
		{"the same", []string{empty, folder}, "move: FROM and TO are both " + empty},
		{"nothing to move", []string{empty, filepath.Join(dir, "new")}, "move: " + empty + " contains no runs"},
		{"a file that is not there", []string{empty, filepath.Join(dir, "none.yaml")}, "none.yaml: no such file"},
	} {
		o := clitest.Run(t, append([]string{"move"}, c.args...)...)
		clitest.WantCode(t, o, 125)
		clitest.WantIn(t, c.name, o.Stderr, c.want)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("a refused move has made a folder")
	}
}
