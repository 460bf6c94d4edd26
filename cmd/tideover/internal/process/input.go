//go:build unix

package process

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// input is the standard input of the command: the same bytes in every attempt.
//
// The command gets a terminal or another device directly. A regular file is rewound. Everything
// else is stored in a spool.
type input struct {
	src   *os.File
	start int64  // initial position of a regular file; -1 if it is not rewound
	spool *spool // nil if the command gets src directly
	feed  *feed  // of the current attempt
}

func newInput(cfg Config) (*input, error) {
	in := &input{src: cfg.Stdin, start: -1}
	var st unix.Stat_t
	if err := unix.Fstat(fdOf(cfg.Stdin), &st); err != nil || cfg.Once {
		return in, nil //nolint:nilerr // a closed input is not an error
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		at, err := cfg.Stdin.Seek(0, io.SeekCurrent)
		in.start = at
		return in, err
	case unix.S_IFIFO, unix.S_IFSOCK:
		in.spool = &spool{
			src: cfg.Stdin, limit: cfg.StdinLimit, buf: make([]byte, 64<<10), results: make(chan reading, 1),
		}
	}
	return in, nil
}

// open returns the descriptor for the next attempt.
func (in *input) open() (fd uintptr, err error) {
	if in.start >= 0 {
		if _, err := in.src.Seek(in.start, io.SeekStart); err != nil {
			return 0, err
		}
	}
	if in.spool == nil {
		return uintptr(fdOf(in.src)), nil
	}
	if in.feed, err = in.spool.open(); err != nil {
		return 0, err
	}
	return uintptr(in.feed.child), nil
}

// started must be called after the command was started, or could not be started. It closes our copy
// of the command's descriptor and starts to write the input.
func (in *input) started() {
	if in.feed != nil {
		in.feed.start()
	}
}

// finish stops writing the input. It must be called at the end of the attempt.
func (in *input) finish() {
	if in.feed != nil {
		in.feed.stop()
		in.feed = nil
	}
}

// lost returns why the input can't be replayed; nil if it can.
func (in *input) lost() error {
	if in.spool == nil {
		return nil
	}
	return in.spool.lost
}

func (in *input) close() error {
	if in.spool == nil || in.spool.file == nil {
		return nil
	}
	return in.spool.file.Close()
}

// pipe returns a pipe whose ends are closed on exec. child is the end for the command, in blocking
// mode; ours is our end, which supports deadlines. oursWrites means that we write and the command reads.
func pipe(oursWrites bool) (child int, ours *os.File, err error) {
	var p [2]int
	syscall.ForkLock.RLock()
	err = syscall.Pipe(p[:])
	if err == nil {
		syscall.CloseOnExec(p[0])
		syscall.CloseOnExec(p[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return -1, nil, os.NewSyscallError("pipe", err)
	}
	if oursWrites {
		p[0], p[1] = p[1], p[0]
	}
	_ = syscall.SetNonblock(p[0], true)
	return p[1], os.NewFile(uintptr(p[0]), "|"), nil
}

// scratch returns an empty temporary file without a name. No other process can open it, and the
// system deletes it when it is closed.
func scratch() (*os.File, error) {
	f, err := os.CreateTemp("", "tideover-*") // mode 0600
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
