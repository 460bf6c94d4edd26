//go:build unix

package watch_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// Escape sequences by which the test TUI enters and leaves the alternate screen.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// helpTUI is a full-screen program in colours. Its keys are: l shows a limit in a box, w a limit
// that is wrapped, d a text about limits that is not a limit, c a text without a limit, as when an
// assistant continues, and q ends the program. Ctrl-Z suspends it like an editor, and it redraws
// the screen when it is continued or the window changes. It shows all other keys.
func helpTUI(args []string) {
	fd := int(os.Stdin.Fd())
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGINT)
	was, err := term.MakeRaw(fd)
	if err != nil {
		fmt.Println(err)
		os.Exit(9)
	}
	defer term.Restore(fd, was)
	keys := make(chan byte)
	go func() {
		var c [1]byte
		for {
			if _, err := os.Stdin.Read(c[:]); err != nil {
				os.Exit(8)
			}
			keys <- c[0]
		}
	}()
	typed, body, drawn := "", []string(nil), 0
	draw := func() {
		cols, rows, _ := term.GetSize(fd)
		drawn++
		// Drawn from bottom to top, so that the order of the output differs from that of the screen.
		fmt.Printf("\x1b[2J\x1b[%d;1H\x1b[7m%d x %d, frame %d\x1b[0m", rows, cols, rows, drawn)
		fmt.Printf("\x1b[%d;1H\x1b[38;5;208m> %s\x1b[0m", rows-1, typed)
		for i := len(body) - 1; i >= 0; i-- {
			fmt.Printf("\x1b[%d;3H\x1b[31;1m%s\x1b[0m", i+3, body[i])
		}
		fmt.Print("\x1b[1;1H\x1b[44mTUI\x1b[0m")
	}
	resets := "3am"
	if len(args) > 0 {
		resets = args[0]
	}
	fmt.Print(enterScreen)
	draw()
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGINT { // sent by another process: in raw mode, the terminal sends none
				typed += "<interrupted>"
			}
		case key := <-keys:
			switch key {
			case 'q':
				fmt.Print(leaveScreen + "bye\r\n")
				term.Restore(fd, was)
				os.Exit(0)
			case 'l':
				body = []string{"╭────────────────────────────────────────────────────────────────────╮", "│ You've hit your session limit · resets " + resets + strings.Repeat(" ", max(0, 28-len(resets))) + "│", "╰────────────────────────────────────────────────────────────────────╯"}
			case 'w':
				body = []string{"⎿ You've hit your session limit ·", "  resets " + resets}
			case 'd':
				body = []string{"● The tool prints a message when the quota is used up. The words are", "  5-hour limit reached ∙ resets 3am", "  and they stand at the beginning of a line."}
			case 'c':
				body = []string{"● Next I run the tests."}
			case 0x1a:
				fmt.Print(leaveScreen)
				term.Restore(fd, was)
				continued := make(chan os.Signal, 1)
				signal.Notify(continued, syscall.SIGCONT)
				_ = syscall.Kill(0, syscall.SIGTSTP)
				<-continued // the stop may come a moment later
				signal.Stop(continued)
				_, _ = term.MakeRaw(fd)
				fmt.Print(enterScreen)
				typed += "<continued>"
			default:
				typed += strings.Trim(strconv.QuoteToASCII(string(rune(key))), `"`)
			}
		}
		draw()
	}
}

// hoursAway is a time of day that is hours away. A time within the last hour would not count as
// stated.
func hoursAway() time.Time { return time.Now().Add(12 * time.Hour).Truncate(time.Hour) }

// watchTUI starts a watch of the TUI on a terminal, as the session "tui", with a notifier that
// sends to the webhook. file is more configuration, and resets the reset time that the TUI shows.
// It returns the terminal and the path of the control socket.
func watchTUI(t *testing.T, in *webhook, file, resets string, flags ...string) (*clitest.Terminal, string) {
	t.Helper()
	dir := clitest.ShortDir(t)
	clitest.WriteFile(t, filepath.Join(dir, "tideover.yaml"), fmt.Sprintf("version: 1\nnotify: {hook: {webhook: %q, on: [waiting, resumed], dedupe: \"0\", timeout: 1h}}\n%s", in.URL, file))
	args := []string{"watch", "-q", "--data", filepath.Join(dir, "state"), "--config", filepath.Join(dir, "tideover.yaml"), "--notify", "hook", "--name", "tui", "--detect", "claude-code"}
	args = append(append(args, flags...), "--", clitest.TestBinary(t), "helper:tui", resets)
	return clitest.OnTerminal(t, args...), filepath.Join(dir, "state/watch/tui/control.sock")
}

// tuiSession returns the output of a `sessions` command about the TUI.
func tuiSession(t *testing.T, socket, verb string, args ...string) string {
	t.Helper()
	return clitest.Run(t, append([]string{"sessions", verb, "--server", "unix:" + socket}, args...)...).Out
}

// messages returns the messages that were sent.
func (r *webhook) messages(t *testing.T) (list []notify.Message) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, body := range r.bodies {
		var m notify.Message
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

// A watched full-screen program works as without a watch: the terminal gets the same bytes.
func TestATUIIsUntouched(t *testing.T) {
	t.Parallel()
	play := func(s *clitest.Terminal) string {
		s.Expect("80 x 24, frame 1\x1b")
		for i, key := range []string{"a", "\x03", "\x1b", "[", "A", "\xc3", "\xa4", "d", "\t"} {
			s.Write(key)
			s.Expect(fmt.Sprintf("frame %d\x1b", i+2))
		}
		if err := pty.Setsize(s.Tty, &pty.Winsize{Rows: 30, Cols: 101}); err != nil {
			t.Fatal(err)
		}
		s.Expect("101 x 30, frame 11\x1b")
		s.Write("q")
		s.Expect("bye\r\n")
		if code := s.Wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		<-s.Done
		text := s.Screen()
		begin, end := strings.Index(text, enterScreen), strings.LastIndex(text, "bye\r\n")
		if begin < 0 || end < begin {
			t.Fatalf("the terminal shows %q", text)
		}
		return text[begin:end]
	}
	cmd, mark := clitest.Command(t)
	cmd.Path, cmd.Args = clitest.TestBinary(t), []string{clitest.TestBinary(t), "helper:tui"}
	direct := play(clitest.StartOnTerminal(t, cmd, mark))
	s, _ := watchTUI(t, newWebhook(t), "", "3am")
	if watched := play(s); watched != direct {
		t.Errorf("the terminal got\n%q\nwithout tideover, and\n%q\nwith it", direct, watched)
	}
	clitest.WantNoProcess(t, s.Mark)
}

func TestALimitOnTheScreenOfATUIIsTold(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"in a box": "l", "wrapped": "w"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newWebhook(t)
			resets := hoursAway().Format("3pm")
			s, socket := watchTUI(t, in, "", resets)
			s.Expect("frame 1\x1b")
			s.Write("d") // a text about limits that is not a limit
			s.Expect("frame 2\x1b")
			s.Write(key)
			testwait.Until(t, "a message about the limit", func() bool { return len(in.messages(t)) > 0 })
			m := in.messages(t)[0]
			if m.Event != notify.Waiting || m.Subject != "tui" || m.Line != "You've hit your session limit · resets "+resets && m.Line != "You've hit your session limit resets "+resets || m.Until.IsZero() ||
				m.Title != "tui has reached a limit" || !strings.Contains(m.Text, "the session is interactive and still open") {
				t.Errorf("the message is %+v", m)
			}
			clitest.WantIn(t, "sessions ls", tuiSession(t, socket, "ls"), "limit on its screen, still open: You've hit your session limit")
			clitest.WantIn(t, "sessions show", tuiSession(t, socket, "show", "tui"), "; on its screen, still open")
			clitest.WantIn(t, "sessions show --json", tuiSession(t, socket, "show", "tui", "--json"), `"limit":`)
			s.Write("c") // the program continues
			testwait.Until(t, "sessions show knows that the limit is over", func() bool {
				return !strings.Contains(tuiSession(t, socket, "show", "tui"), "still open")
			})
			s.Write("q")
			s.WantCode(0)
			if list := in.messages(t); len(list) != 1 {
				t.Errorf("told were %+v", list)
			}
		})
	}
}

// The hook of Claude Code reports a limit to the watch, which sends a message.
func TestALimitIsReportedByAHook(t *testing.T) {
	t.Parallel()
	in := newWebhook(t)
	s, socket := watchTUI(t, in, "", "3am")
	s.Expect("frame 1\x1b")
	hook := func(event string, env ...string) clitest.Outcome {
		cmd, _ := clitest.Command(t, "sessions", "hook")
		cmd.Env, cmd.Stdin = append(cmd.Env, env...), strings.NewReader(event)
		return clitest.Finish(t, cmd)
	}
	inSession := []string{"TIDEOVER_SESSION=tui", "TIDEOVER_CONTROL=unix:" + socket}
	until := hoursAway().UTC().Add(20 * time.Minute)
	line := "You've hit your session limit · resets " + until.Format("3:04pm (UTC)")
	limit := `{"hook_event_name":"StopFailure","session_id":"x","error":"rate_limit","last_assistant_message":"` + line + `"}`
	for name, got := range map[string]clitest.Outcome{
		"outside of a watch":    hook(limit, "TIDEOVER_SESSION=", "TIDEOVER_CONTROL="),
		"an error that is none": hook(`{"hook_event_name":"StopFailure","error":"server_error"}`, inSession...),
		"an event that is none": hook(`{"hook_event_name":"Stop","error":"rate_limit"}`, inSession...),
		"a limit":               hook(limit, inSession...),
	} {
		if got.Code != 0 || got.Out != "" {
			t.Errorf("%s: the hook ended with %+v", name, got)
		}
	}
	testwait.Until(t, "a message about the limit", func() bool { return len(in.messages(t)) > 0 })
	if m := in.messages(t)[0]; m.Line != line || !m.Until.Equal(until) {
		t.Errorf("the message is %+v", m)
	}
	s.Write("\r") // the user continues
	testwait.Until(t, "sessions show knows that the limit is over", func() bool {
		return !strings.Contains(tuiSession(t, socket, "show", "tui"), "still open")
	})
	s.Write("q")
	s.WantCode(0)
	clitest.WantCode(t, hook("no event", inSession...), 125)
	got := hook(limit, inSession...)
	clitest.WantCode(t, got, 125) // no watch is running
	if list := in.messages(t); len(list) != 1 {
		t.Errorf("told were %+v", list)
	}
}

// A user ends a program that shows a limit. The watch ends, too, instead of waiting for the limit.
func TestATUIThatShowsALimitIsEndedByItsUser(t *testing.T) {
	t.Parallel()
	in := newWebhook(t)
	s, _ := watchTUI(t, in, "", "3am")
	s.Expect("frame 1\x1b")
	s.Write("l")
	s.Expect("frame 2\x1b")
	testwait.Until(t, "the limit was noticed", func() bool { return len(in.messages(t)) > 0 })
	s.Write("q")
	s.WantCode(0)
	if list := in.messages(t); len(list) != 1 {
		t.Errorf("told were %+v", list)
	}
}

// The prompt is typed only if a flag or the configuration allows it.
func TestThePromptIsTypedIntoATUI(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags []string
		file  string
		want  bool
	}{
		"by the flag":             {[]string{"--type-at-reset"}, "", true},
		"by the file":             {nil, "watch: {type-at-reset: true}\n", true},
		"by the flag, not really": {[]string{"--type-at-reset=false"}, "watch: {type-at-reset: true}\n", false},
		"by neither":              {nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newWebhook(t)
			s, _ := watchTUI(t, in, test.file, "in 2s", append(test.flags, "--policy", "fixed(10ms) attempts=3 server-slack=1ms")...)
			s.Expect("frame 1\x1b")
			s.Write("l")
			s.Write("\r") // the last key is Enter, as after a prompt
			testwait.Until(t, "a message about the limit", func() bool { return len(in.messages(t)) > 0 })
			if !test.want {
				// Wait until the limit has ended, and check that no prompt was typed.
				until := in.messages(t)[0].Until
				testwait.Until(t, "the limit is over", func() bool { return time.Now().After(until.Add(3 * time.Second)) }) // real clock: the end of the limit is stated as one
				if strings.Contains(s.Screen(), "Continue.") {
					t.Errorf("the prompt was typed: %q", s.Screen())
				}
			} else {
				s.Expect("Continue.\\r")
				testwait.Until(t, "a message that it goes on", func() bool { return len(in.messages(t)) > 1 })
				if m := in.messages(t)[1]; m.Event != notify.Resumed || !strings.Contains(m.Text, "the prompt to continue was typed") {
					t.Errorf("the message is %+v", m)
				}
			}
			s.Write("q")
			s.WantCode(0)
		})
	}
}

// Ctrl-Z stops the TUI and tideover, the shell gets the terminal in its usual modes, and fg
// restores the TUI.
func TestCtrlZOfATUI(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	for name, start := range map[string]string{
		"directly": `"$1" helper:tui`,
		"watched":  `"$0" watch -q --data ` + clitest.ShortDir(t) + ` -- "$1" helper:tui`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := clitest.UnderShell(t, `stty -echo; stty -a | grep -o -- '-\?icanon'; `+start+`; echo "stopped $?"; stty -a | grep -o -- '-\?icanon'; read x; echo "shell read <$x>"; fg; echo "ended $?"; stty -a | grep -o -- '-\?icanon'; echo over`)
			s.Expect("frame 1\x1b")
			s.Write("a")
			s.Expect("frame 2\x1b")
			s.Write(clitest.CtrlZ)
			s.Expect("stopped 148")
			if err := pty.Setsize(s.Tty, &pty.Winsize{Rows: 30, Cols: 101}); err != nil {
				t.Fatal(err)
			}
			s.Write("for the shell\n")
			s.Expect("shell read <for the shell>")
			s.Expect("101 x 30")
			s.Expect("a<continued>")
			s.Write("b")
			s.Expect("a<continued>b")
			s.Write("q")
			s.Expect("ended 0")
			s.Expect("over")
			s.WantCode(0)
			<-s.Done
			text := s.Screen()
			if n := strings.Count(text, "icanon"); n != 3 || strings.Contains(text, "-icanon") {
				t.Errorf("the modes before, between and after are not the usual ones: %q", text)
			}
			// Output from before the stop is shown before the shell continues.
			if left, stopped := strings.Index(text, leaveScreen), strings.Index(text, "stopped 148"); left < 0 || left > stopped {
				t.Errorf("the screen was left after the shell went on: %q", text)
			}
		})
	}
}

// A watch is killed while Ctrl-Z has stopped it and its command. The command is continued and
// ended, so that no process is left.
func TestAStoppedWatchIsKilled(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	s := clitest.UnderShell(t, `"$0" watch -q --data `+clitest.ShortDir(t)+` -- "$1" helper:tui; echo "stopped $?"; kill -9 %1; wait; echo "over"`)
	s.Expect("frame 1\x1b")
	s.Write(clitest.CtrlZ)
	s.Expect("stopped 148")
	s.Expect("over")
	testwait.Until(t, "nothing of it is left", func() bool { return len(clitest.Survivors(t, s.Mark)) == 0 })
}

// A command in the background keeps running and does not get the input that is meant for the shell.
func TestAWatchedCommandInTheBackground(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	signpost := t.TempDir() + "/go"
	s := clitest.UnderShell(t, `stty -echo; export GO=`+signpost+`; "$0" watch -q --data `+clitest.ShortDir(t)+` -- "$1" helper:pause; bg; echo "in the back"; read x; echo "shell read <$x>"; wait; echo "ended $?"`)
	s.Expect("ready")
	s.Write(clitest.CtrlZ)
	s.Expect("in the back")
	s.Write("for the shell\n")
	s.Expect("shell read <for the shell>")
	if err := os.WriteFile(signpost, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Expect("going")
	s.Expect("ended 0")
	s.WantCode(0)
}

// Keys that are typed during a wait do not reach the next command.
func TestKeysTypedDuringAWaitAreDropped(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo "retry after 1s"; exit 1`, `stty -icanon -echo min 0 time 0; echo "had <$(dd bs=100 count=1 2>/dev/null)>"; stty icanon; echo "asks"; read x; echo "read <$x>"`)
	s := clitest.OnTerminal(t, "watch", "--data", filepath.Join(w.dir, "state"), "--policy", "fixed(10ms) attempts=3 server-slack=2s", "--", filepath.Join(w.dir, "assistant"))
	s.Expect("next at")
	s.Write("rm -rf /\nyes")
	s.Expect("asks")
	s.Write("hello\r")
	s.Expect("read <hello>")
	if !strings.Contains(s.Screen(), "had <>") {
		t.Errorf("the resumed command was given what was typed during the wait: %q", s.Screen())
	}
	s.WantCode(0)
}

func TestCtrlCDuringAWaitEndsTheWatch(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo "retry after 3600s"; exit 1`)
	s := clitest.OnTerminal(t, "watch", "--data", filepath.Join(w.dir, "state"), "--", filepath.Join(w.dir, "assistant"))
	s.Expect("next in ")
	s.Write(clitest.CtrlC)
	s.WantCode(130)
}

// Editors and pagers that are installed on this machine work in a watch, too.
func TestRealProgramsOnTheWholeScreen(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		keys []string // pairs: keys to type, and the text that is expected after them
	}{
		"vim":  {[]string{"vim", "-u", "NONE", "-i", "NONE", "-n", "FILE"}, []string{"", "first line", "iX", "Xfirst line", "\x1b:q!\r", ""}},
		"less": {[]string{"less", "FILE"}, []string{"", "first line", "q", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(name); err != nil {
				t.Skip("needs " + name)
			}
			dir := clitest.ShortDir(t)
			file := filepath.Join(dir, "file")
			clitest.WriteFile(t, file, "first line\n"+strings.Repeat("more\n", 100))
			args := []string{"watch", "-q", "--data", filepath.Join(dir, "state"), "--"}
			for _, arg := range test.args {
				args = append(args, strings.ReplaceAll(arg, "FILE", file))
			}
			s := clitest.OnTerminal(t, args...)
			for i := 0; i < len(test.keys); i += 2 {
				s.Write(test.keys[i])
				s.Expect(test.keys[i+1])
			}
			s.WantCode(0)
		})
	}
}
