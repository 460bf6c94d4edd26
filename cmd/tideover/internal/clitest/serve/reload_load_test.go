//go:build unix

package serve_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// badFiles are invalid configurations, with the line of the error and a part of its text.
var badFiles = []struct{ text, line, problem string }{
	{"version: 1\nworkflows:\n  ping: {steps: [\n", ":3:", "sequence end"},
	{"version: 1\npolicies: {often: fixed(1s)}\nworkflow: {}\n", ":3:", "workflow"},
	{"version: 1\nworkflows:\n  ping:\n    steps:\n      - {id: one, http: {get: 'http://127.0.0.1/'}, policy: missing}\n", ":5:", "missing"},
}

// lastVersion is the number of valid changes of the file.
const lastVersion = 4

var reloadFor = flag.Duration("reload.for", 0, "how long TestReloadsUnderLoad goes on at least; with 0 it makes four changes")

// The configuration changes repeatedly, sometimes to an invalid one, while the gateway serves
// requests and runs of all kinds start and end.
func TestReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	u := newReloadTest(t)
	u.begin(&u.runs, "only-v0")
	u.load()
	// real clock: with the flag, the load goes on for a while
	for began := time.Now(); u.version < lastVersion || time.Since(began) < *reloadFor; {
		u.between()
		n := u.version + 1
		u.loadBadFile(n % len(badFiles))
		u.loadVersion(n)
	}
	u.over.Store(true)
	u.clients.Wait()
	u.checkRuns()
	u.Signal(syscall.SIGTERM)
	clitest.WantCode(t, u.End(), 0)
	clitest.WantNoProcess(t, u.Mark)
	if log := u.Log.String(); strings.Contains(log, "DATA RACE") {
		t.Errorf("the race detector reports:\n%s", log)
	}
}

// reloadTest is a server whose configuration changes under load.
type reloadTest struct {
	*clitest.Server
	service *fakeBackend
	client  *client.Client
	token   string

	version int // number of the configuration that the server has

	over    atomic.Bool
	clients sync.WaitGroup
	passed  atomic.Int64 // number of requests through the gateway
	ended   atomic.Int64 // number of runs that have ended

	mu     sync.Mutex
	runs   []string // ids of runs that were accepted, and must succeed
	doomed []string // ids of runs that must give up
}

func newReloadTest(t *testing.T) *reloadTest {
	t.Helper()
	v := newFakeBackend(t)
	u := &reloadTest{service: v, Server: clitest.Serve(t, v.reloadFile(0), "")}
	var err error
	if u.client, err = client.Dial(client.Target{Server: "unix:" + filepath.Join(u.Data, "tideover.sock")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.client.Close)
	token, err := os.ReadFile(filepath.Join(u.Data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	u.token = strings.TrimSpace(string(token))
	u.AwaitSign("night")
	return u
}

// load sends requests and starts runs in the background, until the test is over.
func (u *reloadTest) load() {
	u.T.Cleanup(func() {
		u.over.Store(true)
		u.clients.Wait()
	})
	for range 3 {
		u.clients.Go(func() {
			// real clock: the pace of the load
			for pace := time.Tick(5 * time.Millisecond); !u.over.Load() && !u.T.Failed(); <-pace {
				u.pass()
			}
		})
	}
	for i, workflow := range []string{"ping", "ping", "ping", "pack", "many"} {
		u.clients.Go(func() {
			for n := 0; !u.over.Load() && !u.T.Failed(); n++ {
				u.complete(workflow, fmt.Sprintf("%d-%d", i, n))
			}
		})
	}
}

// pass sends a request through the gateway.
func (u *reloadTest) pass() {
	resp, err := http.Get(u.Address() + "p/up/get")
	if err != nil {
		u.T.Errorf("a request was lost: %v", err)
		return
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		u.T.Errorf("a request was answered with %s %s, %v", resp.Status, text, err)
	}
	u.passed.Add(1)
}

// complete starts a run twice with the same key, which must give the same run, and waits for its
// end.
func (u *reloadTest) complete(workflow, key string) {
	var ids [2]string
	for i := range ids {
		s, err := u.client.Start(u.T.Context(), control.Start{Workflow: workflow, Key: key})
		if err != nil {
			u.T.Errorf("a run of %s was not accepted: %v", workflow, err)
			return
		}
		ids[i] = s.ID
	}
	if ids[0] != ids[1] {
		u.T.Errorf("key %s is that of two runs", key)
	}
	u.accepted(&u.runs, ids[0])
	if _, err := u.client.Result(u.T.Context(), ids[0]); err != nil {
		u.T.Errorf("run %s of %s: %v", ids[0], workflow, err)
	}
	u.ended.Add(1)
}

func (u *reloadTest) accepted(list *[]string, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	*list = append(*list, id)
}

// begin waits until the workflow exists, starts a run of it, and adds its id to the list.
func (u *reloadTest) begin(list *[]string, workflow string) (id string) {
	u.T.Helper()
	testwait.Until(u.T, workflow+" can be started", func() bool {
		s, err := u.client.Start(u.T.Context(), control.Start{Workflow: workflow})
		if p, ok := errors.AsType[*control.Error](err); err != nil && (!ok || p.Field != "workflow") {
			u.T.Fatalf("start %s: %v", workflow, err)
		}
		id = s.ID
		return err == nil
	})
	u.accepted(list, id)
	return id
}

// between waits until some requests and runs have ended since the last reload, and starts a run
// that is in progress during the next reload.
func (u *reloadTest) between() {
	u.T.Helper()
	passed, ended := u.passed.Load(), u.ended.Load()
	u.begin(&u.doomed, "doomed")
	testwait.Until(u.T, "there is work", func() bool {
		return u.T.Failed() || u.passed.Load() > passed+5 && u.ended.Load() > ended+3
	})
}

// writeFile replaces the configuration by a rename, as editors do. If tell is true, it sends
// SIGHUP; otherwise the server must notice the change by itself.
func (u *reloadTest) writeFile(text string, tell bool) {
	u.T.Helper()
	clitest.WriteFile(u.T, u.File+".new", text)
	if err := os.Rename(u.File+".new", u.File); err != nil {
		u.T.Fatal(err)
	}
	if tell {
		u.Signal(syscall.SIGHUP)
	}
}

// loadVersion changes the configuration to version n. It starts a run of the workflow that exists
// only in that version, and checks that the workflows of other versions are gone.
func (u *reloadTest) loadVersion(n int) {
	u.T.Helper()
	u.writeFile(u.service.reloadFile(n), n != 3)
	u.version = n
	u.begin(&u.runs, fmt.Sprint("only-v", n))
	testwait.Until(u.T, "the file is all right", func() bool { return u.status().Config.Problem == "" })
	for _, old := range u.workflows() {
		if strings.HasPrefix(old, "only-") && old != fmt.Sprint("only-v", n) {
			u.T.Errorf("there is %s after the change to version %d", old, n)
		}
	}
	close(u.service.gate(fmt.Sprint("v", n-1)))
	if page := u.health(); strings.Contains(page, "was not reloaded") {
		u.T.Error("the page says still that the file is wrong")
	}
}

// loadBadFile changes the configuration to an invalid one. It checks that the status and the log
// show the error, and that the server keeps its previous configuration.
func (u *reloadTest) loadBadFile(which int) {
	u.T.Helper()
	bad, before, logs := badFiles[which], u.workflows(), len(u.Log.String())
	u.writeFile(bad.text, which != 1)
	place := u.File + bad.line
	testwait.Until(u.T, "the status says what is wrong", func() bool { return strings.Contains(u.status().Config.Problem, place) })
	logged := ""
	testwait.Until(u.T, "the log says so, too", func() bool {
		_, logged, _ = strings.Cut(u.Log.String()[logs:], "the configuration was not reloaded")
		return strings.Contains(logged, "\n")
	})
	for what, got := range map[string]string{"the log": logged, "status": u.RunCommand("status").Out, "the page": u.health()} {
		clitest.WantIn(u.T, what, got, place)
		clitest.WantIn(u.T, what, got, bad.problem)
	}
	clitest.WantIn(u.T, "the page", u.health(), "was not reloaded")
	if now := u.workflows(); !slices.Equal(now, before) {
		u.T.Errorf("workflows are %v after a file that is wrong, and were %v", now, before)
	}
	if h, err := u.client.Healthy(u.T.Context()); err != nil || !h.OK {
		u.T.Errorf("health: %+v, %v", h, err)
	}
}
