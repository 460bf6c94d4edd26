//go:build unix

package serve_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

// payingOrder has a child that charges, and then ships.
const payingOrder = `version: 1
workflows:
  order:
    steps:
      - {id: pay, workflow: pay, input: {order: "{{ .input.order }}"}}
  orders:
    steps:
      - {id: pay, for-each: "{{ .input.orders }}", workflow: pay, input: {order: "{{ .item }}"}}
  pay:
    steps:
      - {id: charge, http: {post: "%[1]s/charge", body: "{{ .input.order }}"}}
      - {id: ship, needs: [charge], http: {post: "%[1]s/ship"}, policy: fixed(1ms) attempts=1}
`

// A child charges, and then dies. The recommended retry of its parent does not charge again, and if it
// has to start another child, that one has the same Idempotency-Key.
func TestARetryOfAParentDoesNotChargeAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys []string
	shipped := false
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.URL.Path == "/charge":
			keys = append(keys, r.Header.Get("Idempotency-Key"))
		case !shipped:
			http.Error(w, "no carrier", http.StatusGone)
		}
	}))
	t.Cleanup(bank.Close)
	charges := func(what string, want, wantKeys int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if n := len(slices.Compact(slices.Sorted(slices.Values(keys)))); len(keys) != want || n != wantKeys {
			t.Errorf("%s: %d charges with %d keys: %q; want %d and %d", what, len(keys), n, keys, want, wantKeys)
		}
		keys, shipped = nil, false
	}
	repair := func() {
		mu.Lock()
		defer mu.Unlock()
		shipped = true
	}
	s := clitest.Serve(t, fmt.Sprintf(payingOrder, bank.URL), "")
	dead := func(workflow, key, input string) {
		t.Helper()
		o := s.RunCommand("run", workflow, "--key", key, "--wait", "--input", input)
		clitest.WantCode(t, o, cli.CodeFailed)
		clitest.WantIn(t, "the message", o.Stderr, "tideover retry ")
		repair()
	}
	retry := func(key string) {
		t.Helper()
		o := s.RunCommand("retry", key)
		clitest.WantCode(t, o, 0)
		s.WaitForSuccess(strings.Fields(o.Out)[:1])
	}

	dead("order", "dead", `{"order": "1"}`)
	retry("dead")
	charges("a dead child", 1, 1)

	dead("order", "canceled", `{"order": "2"}`)
	clitest.WantCode(t, s.RunCommand("cancel", clitest.FirstID(t, s.RunCommand("runs", "--workflow", "pay", "--state", "dead", "--json").Out)), 0)
	retry("canceled")
	charges("a canceled child", 2, 1)

	dead("orders", "many", `{"orders": ["3", "4", "5"]}`)
	retry("many")
	charges("three children", 3, 3)
}
