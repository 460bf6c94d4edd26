//go:build unix

package nip90_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// gated is a command that runs until a file with the name of its task exists.
const gated = `[sh, -c, 'echo x >> "$DIR/began"; while ! test -e "$DIR/$TASK"; do sleep 0.2; done; echo "done $TASK"']`

// waitForAttempts waits until this many attempts have started.
func waitForAttempts(s *clitest.Server, n int) {
	s.T.Helper()
	testwait.Until(s.T, fmt.Sprint(n, " attempts have begun"), func() bool { return clitest.CountLines(filepath.Join(s.Folder, "began")) >= n })
}

// answered waits for the result of a job, and returns all answers.
func answered(t *testing.T, r *nostrtest.Relay, job *nostr.Event) []*nostr.Event {
	t.Helper()
	r.Await(t, func(all []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(all, job))) > 0 })
	return clitest.AnswersTo(r.Events(), job)
}

func TestAJobIsAnsweredThoughItsSectionWasGoneWhenItEnded(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	text := offering(gated, "timeout: 5m", r)
	s := serveJobs(t, text, "", r)
	job := request(clitest.NewCustomer(t), "a")
	r.Inject(job)
	waitForAttempts(s, 1)
	stop(s, syscall.SIGKILL)
	s = clitest.Serve(t, "version: 1\n", s.Folder)
	waitForAttempts(s, 2)
	clitest.WriteFile(t, filepath.Join(s.Folder, "a"), "")
	testwait.Until(t, "the job is done", func() bool { return strings.Contains(s.RunCommand("runs").Out, "succeeded") })
	stop(s, syscall.SIGTERM)
	serveJobs(t, text, s.Folder, r)
	wantStory(t, answered(t, r, job))
}

func TestJobsThatEndUnseenMakeRoom(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	text := strings.Replace(offering(gated, "timeout: 5m", r), "workers: 8", "workers: 1, queue: 1", 1)
	s := serveJobs(t, text, "", r)
	who := clitest.NewCustomer(t)
	first, second := request(who, "a"), request(who, "b")
	r.Inject(first)
	r.Inject(second)
	waitForAttempts(s, 1)
	testwait.Until(t, "both are known", func() bool { return strings.Contains(s.Metrics(), "tideover_nip90_jobs_active 2") })
	s.Reload("version: 1\n")
	clitest.WriteFile(t, filepath.Join(s.Folder, "a"), "")
	clitest.WriteFile(t, filepath.Join(s.Folder, "b"), "")
	testwait.Until(t, "both are done", func() bool { return strings.Count(s.RunCommand("runs").Out, "succeeded") == 2 })
	s.Reload(text)
	wantStory(t, answered(t, r, first))
	wantStory(t, answered(t, r, second))
	third := request(who, "a", nostr.Tag{"i", "another"})
	r.Inject(third)
	if got := answered(t, r, third); got[len(got)-1].Content != "done a" {
		t.Errorf("a job after that:\n%s", words(got))
	}
}

func TestAJobIsAnsweredByTheKeyThatWasAsked(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	dir := clitest.ShortDir(t)
	key := filepath.Join(dir, "key")
	clitest.WriteFile(t, key, dvmKey)
	text := strings.Replace(offering(gated, "timeout: 5m", r), "${env:DVM_KEY}", "${file:"+key+"}", 1)
	s := serveJobs(t, text, dir, r)
	job := request(clitest.NewCustomer(t), "a")
	r.Inject(job)
	waitForAttempts(s, 1)
	other := clitest.NostrKey(t, strings.Repeat("00", 31)+"d2")
	clitest.WriteFile(t, key+"2", other.Reveal())
	s.Reload(strings.Replace(text, key, key+"2", 1))
	clitest.WriteFile(t, filepath.Join(dir, "a"), "")
	for _, e := range answered(t, r, job) {
		if e.PubKey == other.PublicKey() {
			t.Errorf("answered by a key that was not addressed: %s", e.Content)
		}
	}
}

func TestARelayThatIsAwayHoldsUpNobody(t *testing.T) {
	t.Parallel()
	a, b := nostrtest.New(t), nostrtest.New(t)
	b.Stop()
	serveJobs(t, offering(`[sh, -c, 'echo "done $TASK"']`, "", a, b), "", a)
	who := clitest.NewCustomer(t)
	var jobs []*nostr.Event
	for n := range 40 { // more results than the server publishes at once
		jobs = append(jobs, request(who, fmt.Sprint(n)))
		a.Inject(jobs[n])
	}
	for _, job := range jobs {
		wantStory(t, answered(t, a, job))
	}
}

func TestWhatIsPublishedOfAJob(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	text := fmt.Sprintf(`version: 1
workflows:
  two:
    steps:
      - {id: a, run: [sh, -c, 'echo "private" >&2; echo one'], policy: fixed(1ms) attempts=1}
      - {id: b, run: [sh, -c, 'echo two'], policy: fixed(1ms) attempts=1}
nip90:
  key: ${env:DVM_KEY}
  relays: [%q]
  kinds:
    5900: {run: [sh, -c, 'echo "attempt timed out after 3h" >&2; exit 1'], policy: fixed(1ms) attempts=1}
    5901: {workflow: two}
`, r.URL())
	s := serveJobs(t, text, "", r)
	who := clitest.NewCustomer(t)
	failing := request(who, "x")
	r.Inject(failing)
	if got := answered(t, r, failing); strings.Contains(words(got), "TIMEOUT") || !strings.Contains(words(got), "RETRY_EXHAUSTED: exit code 1") {
		t.Errorf("a program that talks of timeouts:\n%s", words(got))
	}
	before := len(clitest.AnswersTo(r.Events(), failing))
	_ = s.RunCommand("retry", clitest.FirstID(t, s.RunCommand("runs", "--json").Out))
	two := who.Event(5901, "", nostr.Tag{"p", clitest.NostrKey(t, dvmKey).PublicKey()})
	r.Inject(two)
	var result *nostr.Event
	r.Await(t, func(all []*nostr.Event) bool {
		for _, e := range all {
			if e.Kind == 6901 {
				result = e
			}
		}
		return result != nil
	})
	if result.Content != `{"a":"one","b":"two"}` {
		t.Errorf("result of two steps: %s", result.Content)
	}
	if after := len(clitest.AnswersTo(r.Events(), failing)); after != before {
		t.Errorf("%d answers after a retry by hand, want the %d before it", after, before)
	}
}
