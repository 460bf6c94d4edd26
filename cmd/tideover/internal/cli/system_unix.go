//go:build unix

package cli

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// descriptor returns a file for an open file descriptor that this process has inherited. Commands
// that this process starts do not inherit the descriptor, unless it is a standard stream.
func descriptor(fd int) (*os.File, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		// A descriptor with close-on-exec was opened by this process, not by the user.
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	if mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && mode&unix.O_ACCMODE == unix.O_RDONLY {
		return nil, fmt.Errorf("descriptor %d is open for reading only", fd)
	}
	copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	if fd > 2 {
		unix.CloseOnExec(fd)
	}
	return os.NewFile(uintptr(copied), fmt.Sprintf("descriptor %d", fd)), nil
}

// terminalSize returns the size of the terminal; 0 if it is unknown.
func terminalSize(f *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}
