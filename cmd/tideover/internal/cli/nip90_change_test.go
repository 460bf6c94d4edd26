//go:build unix

package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

// gated is a command that runs until a file with the name of its task exists.
const gated = `[sh, -c, 'echo x >> "$DIR/began"; while ! test -e "$DIR/$TASK"; do sleep 0.05; done; echo "done $TASK"']`

// waitForAttempts waits until this many attempts have started.
func (s *serverProcess) waitForAttempts(n int) {
	s.t.Helper()
	testwait.Until(s.t, fmt.Sprint(n, " attempts have begun"), func() bool { return lines(filepath.Join(s.dir, "began")) >= n })
}

// reload writes another configuration and waits until it is loaded.
func (s *serverProcess) reload(text string) {
	s.t.Helper()
	loaded := func() int { return strings.Count(s.out.String(), "configuration loaded") }
	before := loaded()
	write(s.t, s.file, text)
	s.signal(syscall.SIGHUP)
	testwait.Until(s.t, "the file is loaded", func() bool { return loaded() > before })
}

// answered waits for the result of a job, and returns all answers.
func answered(t *testing.T, r *nostrtest.Relay, job *nostr.Event) []*nostr.Event {
	t.Helper()
	r.Await(t, func(all []*nostr.Event) bool { return len(results(answersTo(all, job))) > 0 })
	return answersTo(r.Events(), job)
}

func TestAJobIsAnsweredThoughItsSectionWasGoneWhenItEnded(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	text := offering(gated, "timeout: 5m", r)
	s := serveJobs(t, text, "", r)
	job := newCustomer(t).request("a")
	r.Inject(job)
	s.waitForAttempts(1)
	s.stop(syscall.SIGKILL)
	s = serveFile(t, "version: 1\n", s.dir)
	s.waitForAttempts(2)
	write(t, filepath.Join(s.dir, "a"), "")
	testwait.Until(t, "the job is done", func() bool { return strings.Contains(s.runCommand("runs").out, "succeeded") })
	s.stop(syscall.SIGTERM)
	serveJobs(t, text, s.dir, r)
	wantStory(t, answered(t, r, job))
}

func TestJobsThatEndUnseenMakeRoom(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	text := strings.Replace(offering(gated, "timeout: 5m", r), "workers: 8", "workers: 1, queue: 1", 1)
	s := serveJobs(t, text, "", r)
	who := newCustomer(t)
	first, second := who.request("a"), who.request("b")
	r.Inject(first)
	r.Inject(second)
	s.waitForAttempts(1)
	testwait.Until(t, "both are known", func() bool { return strings.Contains(s.metrics(), "tideover_nip90_jobs_active 2") })
	s.reload("version: 1\n")
	write(t, filepath.Join(s.dir, "a"), "")
	write(t, filepath.Join(s.dir, "b"), "")
	testwait.Until(t, "both are done", func() bool { return strings.Count(s.runCommand("runs").out, "succeeded") == 2 })
	s.reload(text)
	wantStory(t, answered(t, r, first))
	wantStory(t, answered(t, r, second))
	third := who.request("a", nostr.Tag{"i", "another"})
	r.Inject(third)
	if got := answered(t, r, third); got[len(got)-1].Content != "done a" {
		t.Errorf("a job after that:\n%s", words(got))
	}
}

func TestAJobIsAnsweredByTheKeyThatWasAsked(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	dir := shortDir(t)
	key := filepath.Join(dir, "key")
	write(t, key, dvmKey)
	text := strings.Replace(offering(gated, "timeout: 5m", r), "${env:DVM_KEY}", "${file:"+key+"}", 1)
	s := serveJobs(t, text, dir, r)
	job := newCustomer(t).request("a")
	r.Inject(job)
	s.waitForAttempts(1)
	other := nostrKey(t, strings.Repeat("00", 31)+"d2")
	write(t, key+"2", other.Reveal())
	s.reload(strings.Replace(text, key, key+"2", 1))
	write(t, filepath.Join(dir, "a"), "")
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
	who := newCustomer(t)
	var jobs []*nostr.Event
	for n := range 40 { // more results than the server publishes at once
		jobs = append(jobs, who.request(fmt.Sprint(n)))
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
	who := newCustomer(t)
	failing := who.request("x")
	r.Inject(failing)
	if got := answered(t, r, failing); strings.Contains(words(got), "TIMEOUT") || !strings.Contains(words(got), "RETRY_EXHAUSTED: exit code 1") {
		t.Errorf("a program that talks of timeouts:\n%s", words(got))
	}
	before := len(answersTo(r.Events(), failing))
	_ = s.runCommand("retry", firstID(t, s.runCommand("runs", "--json").out))
	two := who.event(5901, "", nostr.Tag{"p", nostrKey(t, dvmKey).PublicKey()})
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
	if after := len(answersTo(r.Events(), failing)); after != before {
		t.Errorf("%d answers after a retry by hand, want the %d before it", after, before)
	}
}
