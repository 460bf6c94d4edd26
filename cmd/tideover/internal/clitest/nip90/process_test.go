//go:build unix

package nip90_test

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

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
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
	cmd := exec.CommandContext(t.Context(), clitest.TestBinary(t), "helper:relay", address)
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
	npub := nostr.Npub(clitest.NostrKey(t, dvmKey).PublicKey())
	text := fmt.Sprintf(`version: 1
nip90:
  key: ${env:DVM_KEY}
  relays: [%q]
  kinds:
    5900: {run: [sh, -c, 'echo x >> "$DIR/work"; while ! test -e "$DIR/go"; do sleep 0.2; done; echo done'], timeout: 10m}
`, url)
	dir := clitest.ShortDir(t)
	s := clitest.Serve(t, text, dir, "DVM_KEY="+dvmKey)
	asked, _ := clitest.Command(t, "nip90", "request", "--relay", url, "--to", npub, "--wait", "2m", "work")
	var out, errs clitest.SyncBuffer
	asked.Stdout, asked.Stderr = &out, &errs
	if err := asked.Start(); err != nil {
		t.Fatal(err)
	}
	began := func(n int) func() bool { return func() bool { return clitest.CountLines(dir+"/work") == n } }
	testwait.Until(t, "the job is worked on", began(1))
	stop(s, syscall.SIGKILL)
	s = clitest.Serve(t, text, dir, "DVM_KEY="+dvmKey)
	testwait.Until(t, "the job is worked on again", began(2))
	killRelay()
	clitest.WriteFile(t, dir+"/go", "")
	testwait.Until(t, "the job is done", func() bool { return strings.Contains(s.RunCommand("runs").Out, "succeeded") })
	_, killRelay = startRelay(t, strings.TrimPrefix(url, "ws://"))
	defer killRelay()
	if err := asked.Wait(); err != nil || out.String() != "done" && out.String() != "done\n" {
		t.Errorf("request: %v, stdout %q, stderr %q\nprovider: %s", err, out.String(), errs.String(), s.Log.String())
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
	s := clitest.Serve(t, text, "", "DVM_KEY="+dvmKey)
	o := clitest.Run(t, "nip90", "request", "--relay", url, "--to", nostr.Npub(clitest.NostrKey(t, dvmKey).PublicKey()), "--timeout", "1s", "hang")
	clitest.WantCode(t, o, 124)
	at := 0
	for _, words := range []string{
		"Started", "Retry 1/3 after error: Operation timed out after 1000ms", "Retry 2/3 after error: Operation timed out after 1000ms",
		"Retry 3/3 after error: Operation timed out after 1000ms", "TIMEOUT: Operation timed out after 1000ms",
	} {
		n := strings.Index(o.Stderr[at:], words)
		if n < 0 {
			t.Fatalf("stderr has no %q after %q:\n%s", words, o.Stderr[:at], o.Stderr)
		}
		at += n + len(words)
	}
	stop(s, syscall.SIGTERM)
	clitest.WantNoProcess(t, s.Mark)
}

// Two servers of a cluster offer the same service with the same key. The server that works on a job
// is killed, and the job is still answered exactly once.
func TestAClusterAnswersOnce(t *testing.T) {
	t.Parallel()
	relay := nostrtest.New(t)
	nodes := natstest.SharedNode(t)
	f := clitest.NewCluster(t, offering(`[sh, -c, 'echo begin >> $WITNESS; while ! test -e $GATE; do sleep 0.2; done; echo "done $TASK"']`, "timeout: 5m", relay)+
		clitest.EngineSection(nodes, clitest.ClusterName(t)))
	a, _ := f.Serve("a", "DVM_KEY="+dvmKey), f.Serve("b", "DVM_KEY="+dvmKey)
	a.WaitForShards(2)
	who := clitest.NewCustomer(t)
	var jobs []*nostr.Event
	for n := range 4 {
		jobs = append(jobs, request(who, fmt.Sprint(n)))
		relay.Inject(jobs[n])
	}
	testwait.Until(t, "all jobs are worked on", func() bool { return clitest.CountLines(f.Witness) >= 4 })
	stop(a, syscall.SIGKILL)
	f.Open()
	for n, job := range jobs {
		relay.Await(t, func(all []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(all, job))) > 0 })
		got := clitest.AnswersTo(relay.Events(), job)
		wantStory(t, got)
		if last := got[len(got)-1]; last.Content != fmt.Sprint("done ", n) {
			t.Errorf("job %d: %q", n, last.Content)
		}
	}
}
