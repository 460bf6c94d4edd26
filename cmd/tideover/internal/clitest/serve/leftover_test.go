//go:build unix

package serve_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

const leftoverFile = `version: 1
workflows:
  leave:
    steps:
      - {id: work, run: [sh, -c, '. $DIR/leave.sh', sh, "{{ .input.victim }}", "{{ .input.kind }}"], policy: fixed(1ms) attempts=3}
`

// leaveScript starts a process in a session of its own, and then kills the guard, or the guard and
// the server. Its next attempt writes to a file whether that process still exists.
const leaveScript = `file=$DIR/$1-$2
if test -e $file; then
	grep -s '^State:' /proc/$(cat $file)/status > $file.seen
	exit 0
fi
if test $2 = plain; then setsid sleep 600 > /dev/null 2>&1 & else setsid env -i sleep 600 > /dev/null 2>&1 & fi
echo $! > $file.new
mv $file.new $file
read -r _ _ _ server _ < /proc/$PPID/stat
if test $1 = server; then kill -9 $server; fi
kill -9 $PPID
sleep 600
`

// If the guard of a command is killed, or the guard and the server, processes that the command left
// are ended before the next attempt.
func TestLeftoversOfAKilledGuardAreEnded(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	kinds := []string{"plain"}
	if dir := process.NewCgroup(); dir != "" {
		process.RemoveCgroup(dir)
		kinds = append(kinds, "bare") // a process without environment, which can be found only by its cgroup
	} else {
		t.Log("no cgroup can be made here")
	}
	dir := clitest.ShortDir(t)
	clitest.WriteFile(t, filepath.Join(dir, "leave.sh"), leaveScript)
	server := restartedServer{text: leftoverFile}
	server.start(t, dir)
	for _, victim := range []string{"guard", "server"} {
		for _, kind := range kinds {
			name := victim + "-" + kind
			server.until(t, "start "+name, func() bool {
				return server.RunCommand("run", "leave", "--key", name, "--input", `{"victim": "`+victim+`", "kind": "`+kind+`"}`).Code == 0
			})
			server.until(t, name+" ends", func() bool {
				i := server.run(name)
				return i != nil && i.Finished()
			})
			seen, err := os.ReadFile(filepath.Join(dir, name+".seen"))
			if err != nil || len(seen) > 0 && !strings.Contains(string(seen), "zombie") {
				t.Errorf("%s was killed: the next attempt sees that what was left (%s) has %q, %v; want it gone", victim, kind, seen, err)
			}
		}
	}
	if server.deaths != len(kinds) {
		t.Errorf("the server died %d times", server.deaths)
	}
	server.Signal(syscall.SIGTERM)
	testwait.Receive(t, "the server ends", server.died)
	clitest.WantNoProcess(t, server.Mark)
	if left, _ := os.ReadDir(filepath.Join(dir, "data", "locks")); len(left) > 0 {
		t.Errorf("locks are left: %v", left)
	}
}
