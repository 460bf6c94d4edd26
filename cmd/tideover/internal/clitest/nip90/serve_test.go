//go:build unix

package nip90_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// dvmKey is the secret key of the provider.
const dvmKey = "00000000000000000000000000000000000000000000000000000000000000d1"

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
func serveJobs(t *testing.T, text, dir string, relays ...*nostrtest.Relay) *clitest.Server {
	t.Helper()
	s := clitest.BeginServe(t, text, dir, "DVM_KEY="+dvmKey)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server said:\n%s", s.Log.String())
		}
	})
	s.AwaitReady()
	for _, r := range relays {
		testwait.Until(t, "the relay is subscribed to", func() bool { return r.Connections() > 0 })
	}
	return s
}

// request returns a request to the provider of these tests.
func request(a clitest.Customer, task string, tags ...nostr.Tag) *nostr.Event {
	a.T.Helper()
	return a.Event(5900, task, append(nostr.Tags{{"p", clitest.NostrKey(a.T, dvmKey).PublicKey()}}, tags...)...)
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
	dir := clitest.ShortDir(t)
	s := serveJobs(t, offering(`[sh, -c, 'echo x >> "$DIR/work"; test $TIDEOVER_ATTEMPT -ge 3 && echo "done $TASK"']`,
		"policy: fixed(100ms) attempts=4", a, b), dir, a, b)
	job := request(clitest.NewCustomer(t), "it <&>")
	a.Inject(job)
	b.Inject(job)
	for _, r := range []*nostrtest.Relay{a, b} {
		r.Await(t, func(all []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(all, job))) > 0 })
	}
	got, also := clitest.AnswersTo(a.Events(), job), clitest.AnswersTo(b.Events(), job)
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
	if n := clitest.CountLines(filepath.Join(dir, "work")); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
	clitest.WantIn(t, "runs", s.RunCommand("runs").Out, "nip90.5900")
	metrics := s.Metrics()
	for _, line := range []string{`tideover_nip90_intake_total{verdict="accepted"} 1`, `tideover_nip90_relay_up{relay="` + a.URL() + `"} 1`} {
		clitest.WantIn(t, "metrics", metrics, line)
	}
	if out := s.Log.String(); strings.Contains(out, dvmKey) {
		t.Errorf("the log has the key:\n%s", out)
	}
}

func TestATimeoutEndsTheWholeProcessGroup(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	s := serveJobs(t, offering(`[sh, -c, 'sleep 1000 & sleep 1000']`, "policy: fixed(10ms) attempts=2", r), "", r)
	job := request(clitest.NewCustomer(t), "hang", nostr.Tag{"timeout", "1"})
	r.Inject(job)
	r.Await(t, func(all []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(all, job))) > 0 })
	got := clitest.AnswersTo(r.Events(), job)
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
	stop(s, syscall.SIGTERM)
	clitest.WantNoProcess(t, s.Mark)
}

func TestACustomerCancels(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	s := serveJobs(t, offering(`[sh, -c, 'sleep 1000 & sleep 1000']`, "timeout: 1m", r), "", r)
	who := clitest.NewCustomer(t)
	job := request(who, "hang")
	r.Inject(job)
	r.Await(t, func(all []*nostr.Event) bool { return len(clitest.AnswersTo(all, job)) == 1 })
	r.Inject(clitest.NewCustomer(t).Event(5, "", nostr.Tag{"e", job.ID})) // a cancellation by another customer, which has no effect
	r.Inject(who.Event(5, "", nostr.Tag{"e", job.ID}, nostr.Tag{"k", "5900"}))
	r.Await(t, func(all []*nostr.Event) bool { return len(clitest.AnswersTo(all, job)) == 2 })
	testwait.Until(t, "the run is canceled", func() bool { return strings.Contains(s.RunCommand("runs").Out, "canceled") })
	stop(s, syscall.SIGTERM)
	if got := words(clitest.AnswersTo(r.Events(), job)); got != "7000 processing Started\n7000 error cancelled\n" {
		t.Errorf("answers:\n%s", got)
	}
	clitest.WantNoProcess(t, s.Mark)
}

func TestATimeoutThatIsNoneStartsNothing(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	s := serveJobs(t, offering(`[sh, -c, 'echo no']`, "", r), "", r)
	for _, tags := range []nostr.Tags{
		{{"timeout", "0"}}, {{"timeout", "-5"}}, {{"timeout", "abc"}}, {{"timeout", "1.5"}}, {{"timeout", "1e3"}},
		{{"timeout", "30s"}}, {{"timeout", ""}}, {{"timeout"}}, {{"timeout", "5"}, {"timeout", "6"}},
	} {
		job := request(clitest.NewCustomer(t), "no", tags...)
		r.Inject(job)
		r.Await(t, func(all []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(all, job))) > 0 })
		got := clitest.AnswersTo(r.Events(), job)
		wantStory(t, got)
		if len(got) != 2 || !strings.Contains(got[1].Content, "INVALID_REQUEST") || !strings.Contains(got[0].Content, "timeout") {
			t.Errorf("timeout %q:\n%s %s", tags, words(got), got[0].Content)
		}
	}
	if out := s.RunCommand("runs", "--json").Out; strings.Contains(out, "nip90.5900") {
		t.Errorf("something was started: %s", out)
	}
}

func TestAnOutageOfRelaysLosesNothing(t *testing.T) {
	t.Parallel()
	a, b := nostrtest.New(t), nostrtest.New(t)
	serveJobs(t, offering(`[sh, -c, 'echo "done $TASK"']`, "", a, b), "", a, b)
	b.Stop()
	a.Stop()
	job := request(clitest.NewCustomer(t), "meanwhile")
	a.Inject(job)
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	a.Await(t, func(all []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(all, job))) > 0 })
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	b.Await(t, func(all []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(all, job))) > 0 })
	wantStory(t, clitest.AnswersTo(a.Events(), job))
	wantStory(t, clitest.AnswersTo(b.Events(), job))
}

// The server is killed repeatedly while it works, waits and answers. It publishes one result for
// each job.
func TestAKilledServerAnswersEachJobOnce(t *testing.T) {
	t.Parallel()
	a, b := nostrtest.New(t), nostrtest.New(t)
	dir := clitest.ShortDir(t)
	script := filepath.Join(dir, "job.sh")
	clitest.WriteFile(t, script, "sleep 0.2\nif test -e \"$DIR/ok-$TASK\"; then echo \"done $TASK\"; exit 0; fi\ntouch \"$DIR/ok-$TASK\"; exit 1\n")
	text := offering(`[sh, "`+script+`"]`, "policy: fixed(200ms) attempts=20", a, b)
	who := clitest.NewCustomer(t)
	var jobs []*nostr.Event
	for n := range 5 {
		s := serveJobs(t, text, dir, a, b)
		for range 3 {
			job := request(who, fmt.Sprint("t", len(jobs)))
			jobs = append(jobs, job)
			a.Inject(job)
			b.Inject(job)
		}
		time.Sleep(time.Duration(100+rand.IntN(900)) * time.Millisecond) // real clock: a random moment, and none may make a difference
		if n < 4 {
			stop(s, syscall.SIGKILL)
		}
	}
	for i, job := range jobs {
		for _, r := range []*nostrtest.Relay{a, b} {
			r.Await(t, func(all []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(all, job))) > 0 })
		}
		got, also := clitest.AnswersTo(a.Events(), job), clitest.AnswersTo(b.Events(), job)
		wantStory(t, got)
		if !slices.EqualFunc(got, also, func(x, y *nostr.Event) bool { return x.ID == y.ID }) {
			t.Errorf("job %d: relays have\n%s\nand\n%s", i, words(got), words(also))
		}
		if last := got[len(got)-1]; last.Content != fmt.Sprint("done t", i) {
			t.Errorf("job %d: result %q", i, last.Content)
		}
	}
}

// stop ends a server with a signal.
func stop(s *clitest.Server, sig syscall.Signal) {
	s.T.Helper()
	s.Signal(sig)
	s.End()
}
