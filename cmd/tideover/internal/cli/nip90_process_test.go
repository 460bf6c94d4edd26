//go:build unix

package cli

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

// helpRelay is a helper that runs a relay at the address in its argument until its standard input
// is closed.
func helpRelay(args []string) {
	r, err := nostrtest.Start(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(r.URL())
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// startRelay starts a relay in a process of its own. It returns its URL and a function that kills
// it.
func startRelay(t *testing.T, address string) (url string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), self(t), "helper:relay", address)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(kill)
	url, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the relay at %s: %v", address, err)
	}
	return strings.TrimSpace(url), kill
}

// Customer, provider and relay are separate processes. The provider is killed while it works, and
// the relay before the answer. A restarted relay has no events, so customer and provider must
// publish theirs again.
func TestWorkGetsThroughWhoeverIsKilled(t *testing.T) {
	t.Parallel()
	url, killRelay := startRelay(t, "127.0.0.1:0")
	npub := nostr.Npub(nostrKey(t, dvmKey).PublicKey())
	text := fmt.Sprintf(`version: 1
nip90:
  key: ${env:DVM_KEY}
  relays: [%q]
  kinds:
    5900: {run: [sh, -c, 'echo x >> "$DIR/work"; while ! test -e "$DIR/go"; do sleep 0.05; done; echo done'], timeout: 10m}
`, url)
	dir := shortDir(t)
	s := serveFile(t, text, dir, "DVM_KEY="+dvmKey)
	asked, _ := command(t, "nip90", "request", "--relay", url, "--to", npub, "--wait", "2m", "work")
	var out, errs syncBuffer
	asked.Stdout, asked.Stderr = &out, &errs
	if err := asked.Start(); err != nil {
		t.Fatal(err)
	}
	began := func(n int) func() bool { return func() bool { return lines(dir+"/work") == n } }
	testwait.Until(t, "the job is worked on", began(1))
	s.stop(syscall.SIGKILL)
	s = serveFile(t, text, dir, "DVM_KEY="+dvmKey)
	testwait.Until(t, "the job is worked on again", began(2))
	killRelay()
	write(t, dir+"/go", "")
	testwait.Until(t, "the job is done", func() bool { return strings.Contains(s.runCommand("runs").out, "succeeded") })
	_, killRelay = startRelay(t, strings.TrimPrefix(url, "ws://"))
	defer killRelay()
	if err := asked.Wait(); err != nil || out.String() != "done" && out.String() != "done\n" {
		t.Errorf("request: %v, stdout %q, stderr %q\nprovider: %s", err, out.String(), errs.String(), s.out.String())
	}
	if n := strings.Count(errs.String(), "Started"); n != 1 {
		t.Errorf("%d messages about the start:\n%s", n, errs.String())
	}
}

// A job hangs in every attempt. The customer gets the feedback about each retry, and then the
// failure.
func TestTheTimelineForReal(t *testing.T) {
	t.Parallel()
	url, _ := startRelay(t, "127.0.0.1:0")
	text := fmt.Sprintf(`version: 1
nip90:
  key: ${env:DVM_KEY}
  relays: [%q]
  kinds:
    5900: {run: [sleep, "100"], policy: task base=100ms}
`, url)
	s := serveFile(t, text, "", "DVM_KEY="+dvmKey)
	o := tideover(t, "nip90", "request", "--relay", url, "--to", nostr.Npub(nostrKey(t, dvmKey).PublicKey()), "--timeout", "1s", "hang")
	wantCode(t, o, 124)
	at := 0
	for _, words := range []string{
		"Started", "Retry 1/3 after error: Operation timed out after 1000ms", "Retry 2/3 after error: Operation timed out after 1000ms",
		"Retry 3/3 after error: Operation timed out after 1000ms", "TIMEOUT: Operation timed out after 1000ms",
	} {
		n := strings.Index(o.stderr[at:], words)
		if n < 0 {
			t.Fatalf("stderr has no %q after %q:\n%s", words, o.stderr[:at], o.stderr)
		}
		at += n + len(words)
	}
	s.stop(syscall.SIGTERM)
	wantNoProcess(t, s.mark)
}

// Two servers of a cluster offer the same service with the same key. The server that works on a job
// is killed, and the job is still answered exactly once.
func TestAClusterAnswersOnce(t *testing.T) {
	t.Parallel()
	relay := nostrtest.New(t)
	nodes := natstest.Shared(t)
	f := newClusterServers(t, offering(`[sh, -c, 'echo begin >> $WITNESS; while ! test -e $GATE; do sleep 0.05; done; echo "done $TASK"']`, "timeout: 5m", relay)+
		engineSection(nodes, clusterName(t)))
	a, _ := f.serve("a", "DVM_KEY="+dvmKey), f.serve("b", "DVM_KEY="+dvmKey)
	a.waitForShards(2)
	who := newCustomer(t)
	var jobs []*nostr.Event
	for n := range 6 {
		jobs = append(jobs, who.request(fmt.Sprint(n)))
		relay.Inject(jobs[n])
	}
	testwait.Until(t, "all jobs are worked on", func() bool { return lines(f.witness) >= 6 })
	a.stop(syscall.SIGKILL)
	f.open()
	for n, job := range jobs {
		relay.Await(t, func(all []*nostr.Event) bool { return len(results(answersTo(all, job))) > 0 })
		got := answersTo(relay.Events(), job)
		wantStory(t, got)
		if last := got[len(got)-1]; last.Content != fmt.Sprint("done ", n) {
			t.Errorf("job %d: %q", n, last.Content)
		}
	}
}
