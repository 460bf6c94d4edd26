//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

// dvmKey is the secret key of the provider.
const dvmKey = "00000000000000000000000000000000000000000000000000000000000000d1"

func nostrKey(t *testing.T, text string) nostr.SecretKey {
	t.Helper()
	k, err := nostr.ParseSecretKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// offering returns a configuration that offers the command run for jobs of kind 5900 on the relays.
// more has further settings of that kind.
func offering(run, more string, relays ...*nostrtest.Relay) string {
	urls := make([]string, len(relays))
	for i, r := range relays {
		urls[i] = `"` + r.URL() + `"`
	}
	return fmt.Sprintf(`version: 1
nip90:
  key: ${env:DVM_KEY}
  relays: [%s]
  kinds:
    5900:
      run: %s
      env: {TASK: "{{ .input.task }}"}
      %s
  limits: {per-minute: 600, burst: 600, workers: 8}
`, strings.Join(urls, ", "), run, more)
}

// serveJobs starts a server and waits until it has subscribed to the relays.
func serveJobs(t *testing.T, text, dir string, relays ...*nostrtest.Relay) *serverProcess {
	t.Helper()
	s := beginServe(t, text, dir, "DVM_KEY="+dvmKey)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server said:\n%s", s.out.String())
		}
	})
	s.serves()
	for _, r := range relays {
		testwait.Until(t, "the relay is subscribed to", func() bool { return r.Connections() > 0 })
	}
	return s
}

// customer signs events with its own key.
type customer struct {
	t   *testing.T
	key nostr.SecretKey
}

func newCustomer(t *testing.T) customer {
	t.Helper()
	k, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return customer{t, k}
}

// event returns a signed event of the customer.
func (a customer) event(kind int, content string, tags ...nostr.Tag) *nostr.Event {
	a.t.Helper()
	e := &nostr.Event{Kind: kind, CreatedAt: time.Now().Unix(), Content: content, Tags: tags}
	if err := e.Sign(a.key); err != nil {
		a.t.Fatal(err)
	}
	return e
}

// request returns a request to the provider of these tests.
func (a customer) request(task string, tags ...nostr.Tag) *nostr.Event {
	a.t.Helper()
	return a.event(5900, task, append(nostr.Tags{{"p", nostrKey(a.t, dvmKey).PublicKey()}}, tags...)...)
}

// answersTo returns the provider's events about a request, in order of arrival.
func answersTo(events []*nostr.Event, request *nostr.Event) (list []*nostr.Event) {
	for _, e := range events {
		if e.Tags.Has("e", request.ID) && (e.Kind == 7000 || e.Kind == 6900) {
			list = append(list, e)
		}
	}
	return list
}

// results returns the events that are results.
func results(list []*nostr.Event) []*nostr.Event {
	return slices.DeleteFunc(slices.Clone(list), func(e *nostr.Event) bool { return e.Kind != 6900 })
}

// words returns a line for each event: its kind and its status.
func words(list []*nostr.Event) string {
	var b strings.Builder
	for _, e := range list {
		status := e.Tags.Find("status")
		fmt.Fprintf(&b, "%d %s\n", e.Kind, strings.TrimSpace(status.Value()+" "+status.At(2)))
	}
	return b.String()
}

// wantStory checks the answers to a job: all of them are signed, the times of feedback are in
// order, and the last one is the only result.
func wantStory(t *testing.T, list []*nostr.Event) {
	t.Helper()
	var last int64
	for i, e := range list {
		if err := e.Verify(); err != nil {
			t.Errorf("event %s: %v", e.ID, err)
		}
		if e.Kind == 6900 != (i == len(list)-1) {
			t.Errorf("there is not one result, at the end:\n%s", words(list))
		}
		if e.Kind == 7000 && e.CreatedAt <= last {
			t.Errorf("feedback of %d after that of %d:\n%s", e.CreatedAt, last, words(list))
		}
		if e.Kind == 7000 {
			last = e.CreatedAt
		}
	}
}

func TestAJobOverTwoRelaysIsDoneOnceAndAnsweredOnBoth(t *testing.T) {
	t.Parallel()
	a, b := nostrtest.New(t), nostrtest.New(t)
	dir := shortDir(t)
	s := serveJobs(t, offering(`[sh, -c, 'echo x >> "$DIR/work"; test $TIDEOVER_ATTEMPT -ge 3 && echo "done $TASK"']`,
		"policy: fixed(100ms) attempts=4", a, b), dir, a, b)
	job := newCustomer(t).request("it <&>")
	a.Inject(job)
	b.Inject(job)
	for _, r := range []*nostrtest.Relay{a, b} {
		r.Await(t, func(all []*nostr.Event) bool { return len(results(answersTo(all, job))) > 0 })
	}
	got, also := answersTo(a.Events(), job), answersTo(b.Events(), job)
	wantStory(t, got)
	if words(got) != "7000 processing Started\n7000 processing Retry 1/3 after error: exit code 1\n7000 processing Retry 2/3 after error: exit code 1\n6900 success\n" {
		t.Errorf("answers:\n%s", words(got))
	}
	if got[3].Content != "done it <&>" {
		t.Errorf("result: %q", got[3].Content)
	}
	if !slices.EqualFunc(got, also, func(x, y *nostr.Event) bool { return x.ID == y.ID }) {
		t.Errorf("relays have\n%s\nand\n%s", words(got), words(also))
	}
	if n := lines(filepath.Join(dir, "work")); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
	wantIn(t, "runs", s.runCommand("runs").out, "nip90.5900")
	metrics := s.metrics()
	for _, line := range []string{`tideover_nip90_intake_total{verdict="accepted"} 1`, `tideover_nip90_relay_up{relay="` + a.URL() + `"} 1`} {
		wantIn(t, "metrics", metrics, line)
	}
	if out := s.out.String(); strings.Contains(out, dvmKey) {
		t.Errorf("the log has the key:\n%s", out)
	}
}

func TestATimeoutEndsTheWholeProcessGroup(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	s := serveJobs(t, offering(`[sh, -c, 'sleep 1000 & sleep 1000']`, "policy: fixed(10ms) attempts=2", r), "", r)
	job := newCustomer(t).request("hang", nostr.Tag{"timeout", "1"})
	r.Inject(job)
	r.Await(t, func(all []*nostr.Event) bool { return len(results(answersTo(all, job))) > 0 })
	got := answersTo(r.Events(), job)
	wantStory(t, got)
	if want := "7000 processing Started\n7000 processing Retry 1/1 after error: Operation timed out after 1000ms\n" +
		"7000 error TIMEOUT: Operation timed out after 1000ms\n6900 error\n"; words(got) != want {
		t.Errorf("answers:\n%s\nwant\n%s", words(got), want)
	}
	var said struct {
		Code  string
		Retry struct {
			AttemptNumber, MaxRetries int
			LastError                 string
			BackoffHistory            []int64
		}
	}
	if err := json.Unmarshal([]byte(got[3].Content), &said); err != nil {
		t.Fatal(err)
	}
	if said.Code != "TIMEOUT" || said.Retry.AttemptNumber != 1 || said.Retry.MaxRetries != 1 || !slices.Equal(said.Retry.BackoffHistory, []int64{10}) {
		t.Errorf("result: %s", got[3].Content)
	}
	s.stop(syscall.SIGTERM)
	wantNoProcess(t, s.mark)
}

func TestACustomerCancels(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	s := serveJobs(t, offering(`[sh, -c, 'sleep 1000 & sleep 1000']`, "timeout: 1m", r), "", r)
	who := newCustomer(t)
	job := who.request("hang")
	r.Inject(job)
	r.Await(t, func(all []*nostr.Event) bool { return len(answersTo(all, job)) == 1 })
	r.Inject(newCustomer(t).event(5, "", nostr.Tag{"e", job.ID})) // a cancellation by another customer, which has no effect
	r.Inject(who.event(5, "", nostr.Tag{"e", job.ID}, nostr.Tag{"k", "5900"}))
	r.Await(t, func(all []*nostr.Event) bool { return len(answersTo(all, job)) == 2 })
	testwait.Until(t, "the run is canceled", func() bool { return strings.Contains(s.runCommand("runs").out, "canceled") })
	s.stop(syscall.SIGTERM)
	if got := words(answersTo(r.Events(), job)); got != "7000 processing Started\n7000 error cancelled\n" {
		t.Errorf("answers:\n%s", got)
	}
	wantNoProcess(t, s.mark)
}

func TestATimeoutThatIsNoneStartsNothing(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	s := serveJobs(t, offering(`[sh, -c, 'echo no']`, "", r), "", r)
	for _, tags := range []nostr.Tags{
		{{"timeout", "0"}}, {{"timeout", "-5"}}, {{"timeout", "abc"}}, {{"timeout", "1.5"}}, {{"timeout", "1e3"}},
		{{"timeout", "30s"}}, {{"timeout", ""}}, {{"timeout"}}, {{"timeout", "5"}, {"timeout", "6"}},
	} {
		job := newCustomer(t).request("no", tags...)
		r.Inject(job)
		r.Await(t, func(all []*nostr.Event) bool { return len(results(answersTo(all, job))) > 0 })
		got := answersTo(r.Events(), job)
		wantStory(t, got)
		if len(got) != 2 || !strings.Contains(got[1].Content, "INVALID_REQUEST") || !strings.Contains(got[0].Content, "timeout") {
			t.Errorf("timeout %q:\n%s %s", tags, words(got), got[0].Content)
		}
	}
	if out := s.runCommand("runs", "--json").out; strings.Contains(out, "nip90.5900") {
		t.Errorf("something was started: %s", out)
	}
}

func TestAnOutageOfRelaysLosesNothing(t *testing.T) {
	t.Parallel()
	a, b := nostrtest.New(t), nostrtest.New(t)
	serveJobs(t, offering(`[sh, -c, 'echo "done $TASK"']`, "", a, b), "", a, b)
	b.Stop()
	a.Stop()
	job := newCustomer(t).request("meanwhile")
	a.Inject(job)
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	a.Await(t, func(all []*nostr.Event) bool { return len(results(answersTo(all, job))) > 0 })
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	b.Await(t, func(all []*nostr.Event) bool { return len(results(answersTo(all, job))) > 0 })
	wantStory(t, answersTo(a.Events(), job))
	wantStory(t, answersTo(b.Events(), job))
}

// The server is killed repeatedly while it works, waits and answers. It publishes one result for
// each job.
func TestAKilledServerAnswersEachJobOnce(t *testing.T) {
	t.Parallel()
	a, b := nostrtest.New(t), nostrtest.New(t)
	dir := shortDir(t)
	script := filepath.Join(dir, "job.sh")
	write(t, script, "sleep 0.2\nif test -e \"$DIR/ok-$TASK\"; then echo \"done $TASK\"; exit 0; fi\ntouch \"$DIR/ok-$TASK\"; exit 1\n")
	text := offering(`[sh, "`+script+`"]`, "policy: fixed(200ms) attempts=20", a, b)
	who := newCustomer(t)
	var jobs []*nostr.Event
	for n := range 5 {
		s := serveJobs(t, text, dir, a, b)
		for range 3 {
			job := who.request(fmt.Sprint("t", len(jobs)))
			jobs = append(jobs, job)
			a.Inject(job)
			b.Inject(job)
		}
		time.Sleep(time.Duration(100+rand.IntN(900)) * time.Millisecond) // real clock: a random moment, and none may make a difference
		if n < 4 {
			s.stop(syscall.SIGKILL)
		}
	}
	for i, job := range jobs {
		for _, r := range []*nostrtest.Relay{a, b} {
			r.Await(t, func(all []*nostr.Event) bool { return len(results(answersTo(all, job))) > 0 })
		}
		got, also := answersTo(a.Events(), job), answersTo(b.Events(), job)
		wantStory(t, got)
		if !slices.EqualFunc(got, also, func(x, y *nostr.Event) bool { return x.ID == y.ID }) {
			t.Errorf("job %d: relays have\n%s\nand\n%s", i, words(got), words(also))
		}
		if last := got[len(got)-1]; last.Content != fmt.Sprint("done t", i) {
			t.Errorf("job %d: result %q", i, last.Content)
		}
	}
}

// metrics returns the metrics page.
func (s *serverProcess) metrics() string {
	s.t.Helper()
	return s.read("/metrics")
}

// read sends a GET request with the token, and returns the body of the response.
func (s *serverProcess) read(path string) string {
	s.t.Helper()
	page, err := url.Parse(s.page())
	if err != nil {
		s.t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(s.data, "token"))
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+page.Host+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// stop ends a server with a signal.
func (s *serverProcess) stop(sig syscall.Signal) {
	s.t.Helper()
	s.signal(sig)
	s.wait()
}
