package shortage

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("too many open files"), false}, // a program may say so of itself
		{syscall.ECONNREFUSED, false},
		{os.ErrDeadlineExceeded, false},
		{fmt.Errorf("start: %w", &os.PathError{Op: "fork/exec", Path: "/bin/x", Err: syscall.EAGAIN}), true},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}, true},
		{os.NewSyscallError("pipe2", syscall.ENFILE), true},
		{errors.Join(errors.New("x"), syscall.ENOMEM), true},
		{&net.DNSError{Err: "dial udp 192.0.2.1:53: socket: too many open files", Name: "a.example"}, true},
		{&net.DNSError{Err: "no such host", Name: "a.example", IsNotFound: true}, false},
		{fmt.Errorf("x: %w", &Error{"fork: no"}), true},
	} {
		if got := Is(c.err); got != c.want {
			t.Errorf("Is(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	for before, most := range map[int]time.Duration{-1: 30 * time.Second, 0: time.Second, 1: 2 * time.Second, 4: 16 * time.Second, 5: 30 * time.Second, 1000: 30 * time.Second} {
		for range 100 {
			if d := Delay(before); d > most || d < most/2 {
				t.Fatalf("Delay(%d) = %v, want %v to %v", before, d, most/2, most)
			}
		}
	}
}
