//go:build unix

package cluster_test

import (
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// madeCallback has a callback URL at each server of a cluster.
type madeCallback struct {
	t     *testing.T
	token string
	at    map[string]string // the URL without the token, by server
}

// makeCallback makes a callback URL at the first server.
func makeCallback(t *testing.T, servers map[string]*clitest.Server, first, run string, args ...string) *madeCallback {
	t.Helper()
	c := &madeCallback{t: t, at: map[string]string{}}
	for name, s := range servers {
		o := s.RunCommand(append([]string{"callback", run, "payment"}, args...)...)
		clitest.WantCode(t, o, 0)
		base, token := path.Split(strings.TrimPrefix(strings.TrimSpace(o.Out), "http://"))
		if c.at[name] = "http://" + base; name == first {
			c.token = token
		}
	}
	return c
}

// post uses the URL at a server, and returns the status and the code of the answer.
func (c *madeCallback) post(server, token, body string) (status int, code string) {
	resp, err := http.Post(c.at[server]+token, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body) // a part is no JSON
	var problem control.Error
	_ = json.Unmarshal(text, &problem)
	return resp.StatusCode, string(problem.Code)
}

func (c *madeCallback) want(what, server, token, body string, status int, code string) {
	c.t.Helper()
	if got, gotCode := c.post(server, token, body); got != status || gotCode != code {
		c.t.Errorf("%s: %d %q, want %d %q", what, got, gotCode, status, code)
	}
}

// A callback URL works at every server of a cluster, but only once: also if several servers get it
// at the same time, and if the server that has got it dies.
func TestCallbacksInACluster(t *testing.T) {
	t.Parallel()
	f := clitest.NewCluster(t, "version: 1\nserver: {callback-key: '${env:CALLBACKS}'}\n"+
		"workflows: {pays: {steps: [{id: paid, wait-for: {event: payment}}, {id: shipped, needs: [paid], wait-for: {event: shipment}}]}}\n"+
		clitest.EngineSection(natstest.SharedNode(t), clitest.ClusterName(t)))
	key := "CALLBACKS=" + strings.Repeat("k", 32)
	servers := map[string]*clitest.Server{"a": f.Serve("a", key), "b": f.Serve("b", key)}
	a, b := servers["a"], servers["b"]
	a.WaitForShards(2)
	start := func() string {
		t.Helper()
		o := a.RunCommand("run", "pays")
		clitest.WantCode(t, o, 0)
		return strings.TrimSpace(o.Out)
	}

	run := start()
	c := makeCallback(t, servers, "a", run)
	encoded, sum, _ := strings.Cut(c.token, ".")
	changed := "A" + encoded[1:len(encoded)-1] + map[bool]string{true: "B", false: "A"}[encoded[len(encoded)-1] == 'A']
	for name, token := range map[string]string{
		"changed": changed + "." + sum, "of another key": encoded + "." + strings.Repeat("A", len(sum)), "unsigned": encoded, "not encoded": "%21.%21",
	} {
		for server := range servers {
			c.want(name+" at "+server, server, token, "5", http.StatusForbidden, "forbidden")
		}
	}
	c.want("not JSON", "b", c.token, "{", http.StatusBadRequest, "bad-request")
	c.want("used at another server", "b", c.token, `{"eur": 5}`, http.StatusOK, "")
	c.want("again at the first", "a", c.token, `{"eur": 6}`, http.StatusConflict, "used")
	c.want("again at the other", "b", c.token, `{"eur": 6}`, http.StatusConflict, "used")

	// Of many requests at the same time, one is accepted.
	second := makeCallback(t, servers, "b", start())
	var mu sync.Mutex
	answers := map[int]int{}
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			status, _ := second.post(string("ab"[i%2]), second.token, "7")
			mu.Lock()
			defer mu.Unlock()
			answers[status]++
		})
	}
	all.Wait()
	if answers[http.StatusOK] != 1 || answers[http.StatusConflict] != 9 {
		t.Errorf("the answers to 10 requests at the same time: %v", answers)
	}

	expired := makeCallback(t, servers, "a", start(), "--expires", "1s")
	testwait.Until(t, "the URL has expired", func() bool {
		status, _ := expired.post("b", expired.token, "not JSON, so that it is not used")
		return status == http.StatusGone
	})
	c.want("expired", "b", expired.token, "5", http.StatusGone, "expired")

	// The next owner knows what was used. A URL that was not used works at the server that is left.
	open := makeCallback(t, servers, "a", start())
	a.Signal(syscall.SIGKILL)
	a.End()
	b.WaitForShards(1)
	c.want("after a takeover", "b", c.token, `{"eur": 6}`, http.StatusConflict, "used")
	c.want("of many, after a takeover", "b", second.token, "8", http.StatusConflict, "used")
	c.want("unused, after a takeover", "b", open.token, "9", http.StatusOK, "")
	c.want("used, after a takeover", "b", open.token, "9", http.StatusConflict, "used")
	testwait.Until(t, "the run has the payment", func() bool { return strings.Contains(b.RunCommand("show", run, "--json").Out, `"eur":5`) })
	b.Signal(syscall.SIGTERM)
	clitest.WantCode(t, b.End(), 0)
}
