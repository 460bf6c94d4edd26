//go:build unix

package exec_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// data returns n bytes without short repetitions, the same for the same n.
func data(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d\n", i)
	}
	return b.Bytes()[:n]
}

// digests is a command that writes the digest of its input once per attempt,
// and succeeds in the third.
const digests = `sha256sum >> $DIR/sums; test $TIDEOVER_ATTEMPT = 3`

func wantDigests(t *testing.T, dir string, input []byte, n int) {
	t.Helper()
	got, _ := os.ReadFile(filepath.Join(dir, "sums"))
	want := strings.Repeat(fmt.Sprintf("%x  -\n", sha256.Sum256(input)), n)
	if string(got) != want {
		t.Errorf("digests of the input = %q, want %q", got, want)
	}
}

func TestPipedInputReachesEveryAttemptWhole(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 4096, 65536, 65537, 5 << 20} {
		t.Run(fmt.Sprint(n, " bytes"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd, _ := clitest.Command(t, "exec", "--policy", clitest.Quick, "--", "sh", "-c", digests)
			cmd.Env = append(cmd.Env, "DIR="+dir)
			cmd.Stdin = bytes.NewReader(data(n)) // through a pipe
			clitest.WantCode(t, clitest.Finish(t, cmd), 0)
			wantDigests(t, dir, data(n), 3)
		})
	}
}

func TestInputThatTheFirstAttemptDidNotReadReachesTheNext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, _ := clitest.Command(t, "exec", "--policy", clitest.Quick, "--", "sh", "-c",
		`test $TIDEOVER_ATTEMPT = 1 && exit 1; test $TIDEOVER_ATTEMPT = 2 && { head -c 100000 > /dev/null; exit 1; }; `+digests)
	cmd.Env = append(cmd.Env, "DIR="+dir)
	cmd.Stdin = bytes.NewReader(data(1 << 20))
	clitest.WantCode(t, clitest.Finish(t, cmd), 0)
	wantDigests(t, dir, data(1<<20), 1)
}

func TestInputArrivesWhileItIsWritten(t *testing.T) {
	t.Parallel()
	cmd, _ := clitest.Command(t, "exec", "--policy", clitest.Quick, "--", "sh", "-c",
		`while read line; do echo "$TIDEOVER_ATTEMPT $line"; test "$line" = fail$TIDEOVER_ATTEMPT && exit 1; done; exit 0`)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			if !answers.Scan() || answers.Text() != w {
				t.Fatalf("answer = %q, want %q", answers.Text(), w)
			}
		}
	}
	fmt.Fprintln(in, "one")
	expect("1 one")
	fmt.Fprintln(in, "fail1")
	expect("1 fail1", "2 one", "2 fail1") // the second attempt gets the input that the first has read
	fmt.Fprintln(in, "two")
	expect("2 two") // and then new input
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestOpenInputDoesNotHang(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"exit 0", "exit 3"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close() // after tideover has ended: its input stays open until then
			cmd, _ := clitest.Command(t, "exec", "--policy", clitest.Quick, "--", "sh", "-c", script)
			cmd.Stdin = r
			want, _ := strconv.Atoi(strings.TrimPrefix(script, "exit "))
			clitest.WantCode(t, clitest.Finish(t, cmd), want)
		})
	}
}

func TestInputBeyondTheLimitGetsOneAttempt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, _ := clitest.Command(t, "exec", "--policy", clitest.Quick, "--stdin-limit", "1MiB", "--", "sh", "-c", digests+"; exit 9")
	cmd.Env = append(cmd.Env, "DIR="+dir)
	cmd.Stdin = bytes.NewReader(data(3 << 20))
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 9)
	wantDigests(t, dir, data(3<<20), 1) // one attempt, which gets the whole input
	clitest.WantIn(t, "stderr", got.Stderr, "standard input is longer than 1MiB (--stdin-limit) and can't be replayed")
}

func TestInputBeyondTheLimitIsNoMatterToASuccess(t *testing.T) {
	t.Parallel()
	cmd, _ := clitest.Command(t, "exec", "--policy", clitest.Quick, "--stdin-limit", "1kB", "--", "cat")
	cmd.Stdin = bytes.NewReader(data(1 << 20))
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 0)
	if got.Out != string(data(1<<20)) || got.Stderr != "" {
		t.Errorf("passed %d bytes on and said %q", len(got.Out), got.Stderr)
	}
}

func TestInputFileIsRewoundToWhereItStood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "input")
	if err := os.WriteFile(name, data(1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(1000, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	cmd, _ := clitest.Command(t, "exec", "--policy", clitest.Quick, "--stdin-limit", "0", "--", "sh", "-c", digests)
	cmd.Env = append(cmd.Env, "DIR="+dir)
	cmd.Stdin = f
	clitest.WantCode(t, clitest.Finish(t, cmd), 0)
	wantDigests(t, dir, data(1 << 20)[1000:], 3)
}

func TestNullDeviceIsHandedOver(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	got := clitest.Run(t, "exec", "--policy", clitest.Quick, "--", "readlink", "/proc/self/fd/0")
	if got.Out != "/dev/null\n" {
		t.Errorf("standard input of the command = %q, want /dev/null", got.Out)
	}
}

func TestSpoolHasNoName(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	s := &clitest.Background{T: t, Folder: t.TempDir()}
	s.Cmd, s.Mark = clitest.Command(t, "exec", "--policy", clitest.Quick, "--", "sh", "-c", `cat > /dev/null; echo > $DIR/ready; sleep 600`)
	s.Env = append(s.Env, "DIR="+s.Folder, "TMPDIR="+s.Folder)
	s.Stdin = strings.NewReader("secret")
	s.Begin()
	s.AwaitSign("ready")
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.Process.Pid))
	found := false
	for _, link := range links {
		target, _ := os.Readlink(link)
		if !strings.HasPrefix(target, s.Folder+"/tideover-") {
			continue
		}
		found = true
		info, err := os.Stat(link)
		if err != nil || info.Mode().Perm() != 0o600 || !strings.HasSuffix(target, " (deleted)") {
			t.Errorf("spool %s has mode %v, %v; want 0600 and no name", target, info.Mode(), err)
		}
	}
	if !found {
		t.Error("no spool found")
	}
	_ = s.Process.Signal(os.Interrupt)
	s.End()
	clitest.WantNoProcess(t, s.Mark)
}

// Several tideover processes read from one pipe and compete for its lines. Each of them ends when
// it gets a signal, although its input is still open.
func TestOtherReadersOfTheInputDoNotKeepUs(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var all []*clitest.Background
	for range 3 {
		s := &clitest.Background{T: t, Folder: t.TempDir()}
		s.Cmd, s.Mark = clitest.Command(t, "exec", "-p", clitest.Quick, "--", "sh", "-c", "echo > $DIR/ready; cat > /dev/null")
		s.Env = append(s.Env, "DIR="+s.Folder)
		s.Stdin = r
		s.Begin()
		all = append(all, s)
	}
	for _, s := range all {
		s.AwaitSign("ready")
	}
	for range 200 {
		if _, err := w.WriteString("x"); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range all {
		s.Signal(syscall.SIGTERM)
		clitest.WantCode(t, s.End(), 143)
	}
}

func TestOneAttemptGetsTheInputItself(t *testing.T) {
	t.Parallel()
	// Input that the command does not read stays in the pipe for the next reader.
	cmd, _ := clitest.Command(t)
	cmd.Args = []string{"sh", "-c", `"$0" exec --attempts 1 -- true; cat`, clitest.CommandPath(t)}
	cmd.Path, _ = exec.LookPath("sh")
	cmd.Stdin = strings.NewReader("unread")
	if got := clitest.Finish(t, cmd); got.Out != "unread" {
		t.Errorf("left in the pipe = %q, want all of it", got.Out)
	}
}
