//go:build unix

package serve_test

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
)

// fakeBackend answers the requests of a test's workflows: their steps, the provider and the
// notifier. It fails now and then, and counts requests.
type fakeBackend struct {
	here, there *httptest.Server // the same handler at two addresses

	mu     sync.Mutex
	asked  map[string]int      // number of requests, by the key of a step or by the path
	done   map[string][]string // bodies of the requests of completed steps, by the key of the step
	told   map[string]int      // number of messages, by run
	served int                 // number of requests through the gateway
	held   map[string]chan struct{}
}

func newFakeBackend(t *testing.T) *fakeBackend {
	t.Helper()
	v := &fakeBackend{asked: map[string]int{}, done: map[string][]string{}, told: map[string]int{}, held: map[string]chan struct{}{}}
	v.here, v.there = httptest.NewServer(v), httptest.NewServer(v)
	t.Cleanup(func() {
		v.here.Close()
		v.there.Close()
	})
	return v
}

func (v *fakeBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	switch path := r.URL.Path; path {
	case "/get":
		if v.count(path)%20 == 19 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		v.with(func() { v.served++ })
	case "/gone":
		http.Error(w, "gone", http.StatusGone)
	case "/told":
		var m notify.Message
		if err := json.Unmarshal(body, &m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		v.with(func() { v.told[m.Run]++ })
	default:
		if v.count(key) == 0 && crc32.ChecksumIEEE([]byte(key))%3 == 0 {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		if name, ok := strings.CutPrefix(path, "/hold/"); ok {
			select {
			case <-v.gate(name):
			case <-r.Context().Done():
				return
			}
		}
		v.with(func() { v.done[key] = append(v.done[key], string(body)) })
		fmt.Fprint(w, "done")
	}
}

func (v *fakeBackend) with(do func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	do()
}

// count counts a request with this key, and returns how many there were before.
func (v *fakeBackend) count(what string) (before int) {
	v.with(func() {
		before = v.asked[what]
		v.asked[what]++
	})
	return before
}

// gate returns the channel that requests with this name wait for. The test closes it.
func (v *fakeBackend) gate(name string) chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held[name] == nil {
		v.held[name] = make(chan struct{})
	}
	return v.held[name]
}

// did returns the bodies of the requests with which a step was completed.
func (v *fakeBackend) did(run, step string) (sent []string) {
	v.with(func() { sent = v.done[run+"/"+step] })
	return sent
}

// reloadFile returns version n of the configuration. Each version changes policies, steps, a
// provider's address and limits, and a notifier. One workflow and its provider exist only in
// version n.
func (v *fakeBackend) reloadFile(n int) string {
	up := v.here.URL
	if n%2 == 1 {
		up = v.there.URL
	}
	third := "" // a third step, which only odd versions have
	if n%2 == 1 {
		third = "      - {id: three, http: {post: HOOKS/work, body: VERSION}, needs: [two], policy: often}\n"
	}
	text := strings.Replace(reloadText, "THIRD\n", third, 1)
	return strings.NewReplacer("HOOKS", v.here.URL, "UP", up, "VERSION", fmt.Sprint("v", n), "NUMBER", fmt.Sprint(20+n)).Replace(text)
}

const reloadText = `version: 1
policies:
  often: fixed(20ms) attempts=NUMBER
workflows:
  ping:
    steps:
      - {id: one, http: {post: HOOKS/work, body: VERSION}, policy: often}
      - {id: two, http: {provider: up, post: /work, body: VERSION}, needs: [one], policy: often}
THIRD
  pack:
    steps:
      - {id: one, run: [sh, -c, 'test $TIDEOVER_ATTEMPT -ge 2 && printf VERSION'], policy: often}
      - {id: two, http: {post: HOOKS/work, body: "{{ .steps.one.stdout }}"}, needs: [one], policy: often}
  only-VERSION:
    steps:
      - {id: hold, http: {provider: up-VERSION, post: /hold/VERSION, body: VERSION}, policy: often}
      - {id: after, http: {post: HOOKS/work, body: VERSION}, needs: [hold], policy: often}
  many:
    steps:
      - {id: each, for-each: [a, b, c], http: {post: HOOKS/work, body: VERSION}, policy: often}
      - {id: rest, sleep: 20ms, needs: [each]}
      - {id: child, workflow: leaf, needs: [rest]}
  leaf:
    steps: [{id: one, http: {post: HOOKS/work, body: VERSION}, policy: often}]
  tick:
    schedule: "@every 1s"
    steps: [{id: one, http: {post: HOOKS/work}, policy: often}]
  doomed:
    steps: [{id: one, http: {post: HOOKS/gone}}]
    on-give-up: {notify: [phone]}
sessions:
  night: {start: [sh, -c, 'echo began >> $DIR/night; exec sleep 1000'], notify: [phone], detect: generic}
  nap: {start: [sh, -c, 'echo "retry after 1s"; exit 1'], windows: 1000, detect: generic}
notify:
  phone: {webhook: HOOKS/told, headers: {X-Version: VERSION}, dedupe: "0", on: [gave-up]}
  pager-VERSION: {webhook: HOOKS/none, on: [breaker-open]}
providers:
  up: {base-url: UP, auth: none, policy: fixed(1ms) attempts=6, max-body: NUMBERKiB, rate: {concurrent: NUMBER}}
  up-VERSION: {base-url: HOOKS, auth: none}
`
