//go:build unix

package serve_test

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The step "kill" sends SIGKILL to the server, the parent of the guard process. The step "work"
// lasts until that has happened once.
const poisonFile = `version: 1
workflows:
  poison:
    max-lost: 2
    steps:
      - {id: kill, run: [sh, -c, 'read -r _ _ _ server _ < /proc/$PPID/stat; touch $DIR/killed; kill -9 $server; sleep 600'], policy: fixed(1s) attempts=2}
  harmless:
    steps:
      - {id: work, run: [sh, -c, 'until test -e $DIR/killed; do sleep 0.1; done; sleep 0.5'], policy: fixed(1s) attempts=2}
`

// restartedServer is a server that is started again each time it has died.
type restartedServer struct {
	*clitest.Server
	text   string // its configuration
	died   chan struct{}
	deaths int
}

func (r *restartedServer) start(t *testing.T, dir string) {
	t.Helper()
	s, died := clitest.BeginServe(t, r.text, dir), make(chan struct{})
	go func() {
		s.End()
		close(died)
	}()
	r.Server, r.died = s, died
}

// until waits until the condition holds. It restarts a server that has died.
func (r *restartedServer) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testwait.Until(t, what, func() bool {
		select {
		case <-r.died:
			r.deaths++
			r.start(t, r.Folder)
			return false
		default:
			return holds()
		}
	})
}

// run returns the run with this id; nil if the server does not answer.
func (r *restartedServer) run(id string) *engine.Info {
	var i engine.Info
	if err := json.Unmarshal([]byte(r.RunCommand("show", id, "--json").Out), &i); err != nil {
		return nil
	}
	return &i
}

// One run kills the server repeatedly. That run becomes dead, and its error says why. All other
// runs succeed.
func TestARunThatKillsTheServerIsFound(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	server := restartedServer{text: poisonFile}
	server.start(t, clitest.ShortDir(t))
	start := func(workflow, key string) {
		t.Helper()
		server.until(t, "start "+key, func() bool { return server.RunCommand("run", workflow, "--key", key).Code == 0 })
	}
	for n := range 6 {
		start("harmless", fmt.Sprint("harmless-", n))
	}
	start("poison", "poison")
	server.until(t, "the run that kills the server is dead", func() bool {
		i := server.run("poison")
		return i != nil && i.Finished()
	})
	for n := range 6 {
		server.until(t, "a harmless run ends", func() bool {
			i := server.run(fmt.Sprint("harmless-", n))
			if i != nil && i.Finished() && i.State != engine.StateSucceeded {
				t.Errorf("a harmless run is %s (%s): %s", i.State, i.Reason, i.Error)
			}
			return i != nil && i.Finished()
		})
	}
	i := server.run("poison")
	why := fmt.Sprintf("the process died %d times in a row while an attempt of this step ran; this time no other attempt ran", server.deaths)
	if i.State != engine.StateDead || i.Reason != "lost" || i.Error != why || server.deaths < 3 {
		t.Errorf("after %d deaths of the server, the run that causes them is %s (%s): %s", server.deaths, i.State, i.Reason, i.Error)
	}
	o := server.RunCommand("show", "poison")
	clitest.WantIn(t, "show", o.Out, "with no other attempt in the process")
	clitest.WantIn(t, "show", o.Out, "gave up: lost")
	server.Signal(syscall.SIGTERM)
	testwait.Receive(t, "the server ends", server.died)
	clitest.WantNoProcess(t, server.Mark)
}
