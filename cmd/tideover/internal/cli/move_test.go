//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

const movable = `version: 1
workflows:
  quick: {schedule: "0 3 1 1 *", steps: [{id: say, run: [echo, done]}]}
  patient: {steps: [{id: fail, run: [sh, -c, 'test -e $GATE || exit 75'], policy: fixed(200ms) attempts=unlimited}]}
  slow: {steps: [{id: fail, run: ["false"], policy: fixed(1h) attempts=3}]}
  dead: {steps: [{id: fail, run: ["false"], policy: fixed(0s) attempts=1}]}
`

func TestMovingHouse(t *testing.T) {
	t.Parallel()
	f := newClusterServers(t, movable)
	end := engineSection(natstest.Shared(t), clusterName(t))
	home := f.serve("home")
	done := strings.TrimSpace(home.runCommand("run", "quick", "--key", "order 1").out)
	waiting := home.startRuns("patient", 3)
	slow := home.startRuns("slow", 1)[0]
	dead := home.startRuns("dead", 2)
	testwait.Until(t, "all is as it should be", func() bool {
		return home.show(done).State == "succeeded" && home.show(slow).State == "waiting" && home.show(dead[0]).State == "dead" && home.show(dead[1]).State == "dead"
	})
	next := home.show(slow).Next

	// Nothing is moved while a server is running, and the error names it.
	away := filepath.Join(f.dir, "cluster.yaml")
	write(t, away, movable+end)
	o := tideover(t, "move", home.data, away)
	wantCode(t, o, 125)
	wantIn(t, "the refusal", o.stderr, "is in use by another process: the process with pid ")
	home.signal(syscall.SIGTERM)
	wantCode(t, home.wait(), 0)

	// A server whose configuration names a cluster does not start while its folder has runs: they
	// would be lost.
	f.text = movable + end
	early := f.begin("home")
	wantCode(t, early.wait(), 125)
	wantIn(t, "the refusal", early.out.String(), "has runs that the cluster would not continue: move them to the cluster with `tideover move`")

	o = tideover(t, "move", "--dry-run", home.data, away)
	wantCode(t, o, 0)
	wantIn(t, "what would be moved", o.out, "would move 7 runs from "+home.data)
	wantIn(t, "what would be moved", o.out, "nothing was written")
	o = tideover(t, "move", home.data, away)
	wantCode(t, o, 0)
	wantIn(t, "what was moved", o.out, "moved 7 runs from "+home.data)
	wantIn(t, "the stages", o.stderr, "comparing shards")
	o = tideover(t, "move", home.data, away)
	wantCode(t, o, 125)
	wantIn(t, "once more", o.stderr, "everything here was moved to cluster ")

	// All runs continue in the cluster.
	a := f.serve("home")
	b := f.serve("b")
	a.waitForShards(2)
	if i := b.show("order 1"); i.ID != done || i.State != "succeeded" {
		t.Errorf("what was done is %+v", i)
	}
	if i := b.show(slow); i.State != "waiting" || !i.Next.Equal(*next) {
		t.Errorf("the wait until %v is now %s until %v", next, i.State, i.Next)
	}
	wantIn(t, "dead letters", b.runCommand("dead", "--groups").out, "2     dead")
	testwait.Until(t, "the schedule is there", func() bool { return strings.Contains(b.runCommand("schedules").out, "0 3 1 1 *") })
	o = tideover(t, "move", away, filepath.Join(f.dir, "back"))
	wantCode(t, o, 125)
	wantIn(t, "the refusal", o.stderr, "in use by ")
	for _, s := range []*serverProcess{a, b} {
		s.signal(syscall.SIGTERM)
		wantCode(t, s.wait(), 0)
	}

	// Back to a folder, with --json.
	o = tideover(t, "move", "--json", away, filepath.Join(f.dir, "back", "data"))
	wantCode(t, o, 0)
	var m moved
	if err := json.Unmarshal([]byte(o.out), &m); err != nil || m.Runs["dead"] != 2 || m.Runs["waiting"]+m.Runs["running"] != 4 || m.FromShards != 4 || m.ToShards != 1 {
		t.Errorf("moved %+v, %v", m, err)
	}
	f.text = movable
	back := f.serve("back")
	f.open()
	back.waitForSuccess(waiting)
	if i := back.show("order 1"); i.ID != done {
		t.Errorf("the key is of %+v", i)
	}
}

// A server that was killed is a member of the cluster until its lease has ended. A move waits for that.
func TestAMoveWaitsForTheLeaseOfAKilledServer(t *testing.T) {
	t.Parallel()
	name := clusterName(t)
	f := newClusterServers(t, movable+engineSection(natstest.Shared(t), name))
	away := filepath.Join(f.dir, "cluster.yaml")
	write(t, away, f.text)
	a := f.serve("a")
	a.waitForShards(1)
	waiting := a.startRuns("patient", 3)
	a.signal(syscall.SIGKILL)
	a.wait()
	o := tideover(t, "move", away, filepath.Join(f.dir, "back", "data"))
	if o.code != 0 {
		t.Fatalf("move: exit code %d, %s", o.code, o.stderr)
	}
	wantIn(t, "what was moved", o.out, "moved 3 runs from cluster "+name)
	wantIn(t, "the progress", o.stderr, "waiting until the lease of ")
	f.text = movable
	back := f.serve("back")
	f.open()
	back.waitForSuccess(waiting)
}

func TestTheFirstLineOfARefusedMoveSaysWhatToDo(t *testing.T) {
	t.Parallel()
	f := newClusterServers(t, movable)
	home, other := f.serve("home"), f.serve("other")
	for _, s := range []*serverProcess{home, other} {
		wantCode(t, s.runCommand("run", "quick", "--wait"), 0)
	}
	refused := func(to, first, second string) {
		t.Helper()
		o := tideover(t, "move", home.data, to)
		wantCode(t, o, 125)
		if lines := strings.Split(strings.TrimSuffix(o.stderr, "\n"), "\n"); len(lines) != 2 || lines[0] != "tideover: move: "+first || !strings.Contains(lines[1], second) {
			t.Errorf("move says\n%s\nwant the lines\n%s\n%s", o.stderr, first, second)
		}
	}
	stop := func(s *serverProcess) {
		t.Helper()
		s.signal(syscall.SIGTERM)
		wantCode(t, s.wait(), 0)
	}
	refused(filepath.Join(f.dir, "new"), "the source is in use: stop all servers that use it, then repeat the move", "shard 0 of the source: ")
	stop(home)
	refused(other.data, "the target is in use: stop all servers that use it, then repeat the move", "shard 0 of the target: ")
	stop(other)
	refused(other.data, "the target is not empty: use a new folder or cluster, in which no server has started", "shard 0 of the target: it has 1 succeeded run")

	wantCode(t, tideover(t, "move", home.data, filepath.Join(f.dir, "new")), 0)
	late := f.begin("home")
	wantCode(t, late.wait(), 125)
	wantIn(t, "the old place", late.out.String(), "everything here was moved to ")
	if strings.Contains(late.out.String(), "--help") { // the flags are right
		t.Errorf("the server of the old place says\n%s", late.out.String())
	}
}

func TestMovesThatAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "folder.yaml")
	write(t, folder, "version: 1\nserver: {data: "+empty+"}\n")
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
		o := tideover(t, append([]string{"move"}, c.args...)...)
		wantCode(t, o, 125)
		wantIn(t, c.name, o.stderr, c.want)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("a refused move has made a folder")
	}
}

// A cluster in use is backed up, and the copy is moved to another cluster.
func TestABackupOfACluster(t *testing.T) {
	t.Parallel()
	nodes := natstest.Shared(t)
	f := newClusterServers(t, movable+engineSection(nodes, clusterName(t)))
	a, b := f.serve("a"), f.serve("b")
	a.waitForShards(2)
	done := strings.TrimSpace(a.runCommand("run", "quick", "--key", "order 1").out)
	waiting := a.startRuns("patient", 6)
	a.waitForSuccess([]string{done})
	dir := filepath.Join(f.dir, "copy")
	o := a.runCommand("backup", dir)
	wantCode(t, o, 0)
	for _, s := range []*serverProcess{a, b} {
		s.signal(syscall.SIGTERM)
		wantCode(t, s.wait(), 0)
	}
	f.text = movable + engineSection(nodes, clusterName(t))
	again := filepath.Join(f.dir, "again.yaml")
	write(t, again, f.text)
	o = tideover(t, "move", dir, again)
	wantCode(t, o, 0)
	wantIn(t, "what was moved", o.out, "moved 7 runs from "+dir)
	c := f.serve("c")
	f.open()
	c.waitForSuccess(waiting)
	if i := c.show("order 1"); i.ID != done || i.State != "succeeded" {
		t.Errorf("the key is of %+v", i)
	}
}
