//go:build unix

package cli

import (
	"errors"
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
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/internal/testwait"
)

// badFiles are invalid configurations, with the line of the error and a part of its text.
var badFiles = []struct{ text, line, problem string }{
	{"version: 1\nworkflows:\n  ping: {steps: [\n", ":3:", "sequence end"},
	{"version: 1\npolicies: {often: fixed(1s)}\nworkflow: {}\n", ":3:", "workflow"},
	{"version: 1\nworkflows:\n  ping:\n    steps:\n      - {id: one, http: {get: 'http://127.0.0.1/'}, policy: missing}\n", ":5:", "missing"},
}

// lastVersion is the number of valid changes of the file.
const lastVersion = 9

// The configuration changes repeatedly, sometimes to an invalid one, while the gateway serves
// requests and runs of all kinds start and end.
func TestReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	u := newReloadTest(t)
	u.begin(&u.runs, "only-v0")
	u.load()
	for n := 1; n <= lastVersion; n++ {
		u.between()
		if n%3 == 0 {
			u.loadBadFile(n/3 - 1)
		}
		u.loadVersion(n)
	}
	u.over.Store(true)
	u.clients.Wait()
	u.checkRuns()
	u.signal(syscall.SIGTERM)
	wantCode(t, u.wait(), 0)
	wantNoProcess(t, u.mark)
}

// reloadTest is a server whose configuration changes under load.
type reloadTest struct {
	*serverProcess
	service *fakeBackend
	client  *client.Client
	token   string

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
	u := &reloadTest{service: v, serverProcess: serveFile(t, v.reloadFile(0), "")}
	var err error
	if u.client, err = client.Dial(client.Target{Server: "unix:" + filepath.Join(u.data, "tideover.sock")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.client.Close)
	token, err := os.ReadFile(filepath.Join(u.data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	u.token = strings.TrimSpace(string(token))
	u.sign("night")
	return u
}

// load sends requests and starts runs in the background, until the test is over.
func (u *reloadTest) load() {
	u.t.Cleanup(func() {
		u.over.Store(true)
		u.clients.Wait()
	})
	for range 3 {
		u.clients.Go(func() {
			// real clock: the pace of the load
			for pace := time.Tick(5 * time.Millisecond); !u.over.Load() && !u.t.Failed(); <-pace {
				u.pass()
			}
		})
	}
	for i, workflow := range []string{"ping", "ping", "ping", "pack"} {
		u.clients.Go(func() {
			for n := 0; !u.over.Load() && !u.t.Failed(); n++ {
				u.complete(workflow, fmt.Sprintf("%d-%d", i, n))
			}
		})
	}
}

// pass sends a request through the gateway.
func (u *reloadTest) pass() {
	resp, err := http.Get(u.address() + "p/up/get")
	if err != nil {
		u.t.Errorf("a request was lost: %v", err)
		return
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		u.t.Errorf("a request was answered with %s %s, %v", resp.Status, text, err)
	}
	u.passed.Add(1)
}

// complete starts a run twice with the same key, which must give the same run, and waits for its
// end.
func (u *reloadTest) complete(workflow, key string) {
	var ids [2]string
	for i := range ids {
		s, err := u.client.Start(u.t.Context(), control.Start{Workflow: workflow, Key: key})
		if err != nil {
			u.t.Errorf("a run of %s was not accepted: %v", workflow, err)
			return
		}
		ids[i] = s.ID
	}
	if ids[0] != ids[1] {
		u.t.Errorf("key %s is that of two runs", key)
	}
	u.accepted(&u.runs, ids[0])
	if _, err := u.client.Result(u.t.Context(), ids[0]); err != nil {
		u.t.Errorf("run %s of %s: %v", ids[0], workflow, err)
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
	u.t.Helper()
	testwait.Until(u.t, workflow+" can be started", func() bool {
		s, err := u.client.Start(u.t.Context(), control.Start{Workflow: workflow})
		if p, ok := errors.AsType[*control.Error](err); err != nil && (!ok || p.Field != "workflow") {
			u.t.Fatalf("start %s: %v", workflow, err)
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
	u.t.Helper()
	passed, ended := u.passed.Load(), u.ended.Load()
	u.begin(&u.doomed, "doomed")
	testwait.Until(u.t, "there is work", func() bool {
		return u.t.Failed() || u.passed.Load() > passed+5 && u.ended.Load() > ended+3
	})
}

// writeFile replaces the configuration by a rename, as editors do. If tell is true, it sends
// SIGHUP; otherwise the server must notice the change by itself.
func (u *reloadTest) writeFile(text string, tell bool) {
	u.t.Helper()
	write(u.t, u.file+".new", text)
	if err := os.Rename(u.file+".new", u.file); err != nil {
		u.t.Fatal(err)
	}
	if tell {
		u.signal(syscall.SIGHUP)
	}
}

// loadVersion changes the configuration to version n. It starts a run of the workflow that exists
// only in that version, and checks that the workflows of other versions are gone.
func (u *reloadTest) loadVersion(n int) {
	u.t.Helper()
	u.writeFile(u.service.reloadFile(n), n != 3)
	u.begin(&u.runs, fmt.Sprint("only-v", n))
	testwait.Until(u.t, "the file is all right", func() bool { return u.status().Config.Problem == "" })
	for _, old := range u.workflows() {
		if strings.HasPrefix(old, "only-") && old != fmt.Sprint("only-v", n) {
			u.t.Errorf("there is %s after the change to version %d", old, n)
		}
	}
	close(u.service.gate(fmt.Sprint("v", n-1)))
	if page := u.health(); strings.Contains(page, "was not reloaded") {
		u.t.Error("the page says still that the file is wrong")
	}
}

// loadBadFile changes the configuration to an invalid one. It checks that the status and the log
// show the error, and that the server keeps its previous configuration.
func (u *reloadTest) loadBadFile(which int) {
	u.t.Helper()
	bad, before, logs := badFiles[which], u.workflows(), len(u.out.String())
	u.writeFile(bad.text, which != 1)
	place := u.file + bad.line
	testwait.Until(u.t, "the status says what is wrong", func() bool { return strings.Contains(u.status().Config.Problem, place) })
	logged := ""
	testwait.Until(u.t, "the log says so, too", func() bool {
		_, logged, _ = strings.Cut(u.out.String()[logs:], "the configuration was not reloaded")
		return strings.Contains(logged, "\n")
	})
	for what, got := range map[string]string{"the log": logged, "status": u.runCommand("status").out, "the page": u.health()} {
		wantIn(u.t, what, got, place)
		wantIn(u.t, what, got, bad.problem)
	}
	wantIn(u.t, "the page", u.health(), "was not reloaded")
	if now := u.workflows(); !slices.Equal(now, before) {
		u.t.Errorf("workflows are %v after a file that is wrong, and were %v", now, before)
	}
	if h, err := u.client.Healthy(u.t.Context()); err != nil || !h.OK {
		u.t.Errorf("health: %+v, %v", h, err)
	}
}
