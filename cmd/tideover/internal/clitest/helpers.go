//go:build unix

package clitest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// helpers are commands for tests of all packages.
var helpers = map[string]func([]string){
	"helper:generate":   helpGenerate,
	"helper:foreground": helpForeground,
	"helper:pause":      helpPause,
	"helper:read":       helpRead,
	"helper:winch":      helpWinch,
	"helper:slowstop":   helpSlowStop,
	"helper:root":       helpRoot,
}

// RandomBlock returns a MiB of random bytes, always the same.
func RandomBlock() []byte {
	block := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(block)
	return block
}

// helpGenerate writes as many bytes as its argument says: the random block repeatedly.
func helpGenerate(args []string) {
	block := RandomBlock()
	for left := Atoi(args[0]); left > 0; left -= len(block) {
		if _, err := os.Stdout.Write(block[:min(left, len(block))]); err != nil {
			os.Exit(3)
		}
	}
}

// poll returns when the condition holds. The test that started the helper ends it.
func poll(holds func() bool) {
	for !holds() {
		time.Sleep(5 * time.Millisecond) // real clock: a helper process polls, without a limit
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// awaitForeground returns when the process is in the terminal's foreground. A command is put there
// some microseconds after its start.
func awaitForeground() {
	poll(func() bool {
		group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
		return err == nil && group == unix.Getpgrp()
	})
}

// helpForeground waits until it is in the terminal's foreground. It succeeds only in the attempt
// whose number is its argument.
func helpForeground(args []string) {
	awaitForeground()
	fmt.Printf("attempt %s in the foreground\n", os.Getenv("TIDEOVER_ATTEMPT"))
	if os.Getenv("TIDEOVER_ATTEMPT") != args[0] {
		os.Exit(1)
	}
}

// helpRead waits for the foreground and reads a line. It is used instead of a shell, which may miss
// signals just after its start. Its optional argument is the exit code after an interrupt.
func helpRead(args []string) {
	if len(args) > 0 {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGINT)
		go func() { <-c; os.Exit(Atoi(args[0])) }()
	}
	awaitForeground()
	fmt.Println("ready")
	var line string
	_, _ = fmt.Scanln(&line)
	fmt.Println("read", line)
}

// helpPause prints that it is ready, and waits until the file that $GO names exists.
func helpPause([]string) {
	fmt.Println("ready")
	poll(func() bool { return exists(os.Getenv("GO")) })
	fmt.Println("going")
}

// helpWinch waits for a change of the window size and prints the width.
func helpWinch([]string) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	fmt.Println("ready")
	<-c
	size, _ := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	fmt.Println("columns", size.Col)
}

// helpSlowStop handles SIGTSTP, and stops only after its parent has stopped.
func helpSlowStop([]string) {
	c, continued := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTSTP)
	fmt.Println("ready")
	<-c
	signal.Notify(continued, syscall.SIGCONT)
	poll(func() bool { return StateIs(os.Getppid(), "T") })
	_ = os.WriteFile(os.Getenv("GO"), []byte(fmt.Sprintln(os.Getpid())), 0o600)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-continued
	fmt.Println("continued")
}

// StateIs reports whether the process has this state: a letter as in /proc/PID/status.
func StateIs(pid int, state string) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return strings.Contains(string(status), "\nState:\t"+state)
}

// helpRoot becomes root, which its setuid bit allows, so that its parent can't signal it. It ends
// when the file that its argument names exists.
func helpRoot(args []string) {
	if err := syscall.Setreuid(0, 0); err != nil {
		os.Exit(9)
	}
	fmt.Println("ready")
	poll(func() bool { return exists(args[0]) })
}
