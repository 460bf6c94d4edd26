//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize returns the size of the terminal; 0 if it is unknown.
func terminalSize(f *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}
