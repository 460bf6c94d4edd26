//go:build unix

package httpserver

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
)

// maxSocket is the longest socket path that all systems accept, in bytes.
const maxSocket = 103

// ListenUnix listens on a Unix socket that only this user can open. It creates a missing folder, with
// access for this user only. It replaces a stale socket, on which no process listens; a socket in use
// or another file at the path is an error. Closing the listener removes the socket.
func ListenUnix(path string) (net.Listener, error) {
	l, err := listenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func listenUnix(path string) (net.Listener, error) {
	if len(path) > maxSocket {
		return nil, fmt.Errorf("the path is too long: it has %d bytes, and the path of a socket can have at most %d", len(path), maxSocket)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	lock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	l, err := replaceSocket(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, l.Close(), lock.Close())
	}
	return &socket{l, path, sync.OnceValue(func() error {
		if now, err := os.Lstat(path); err == nil && os.SameFile(now, made) {
			_ = os.Remove(path)
		}
		return errors.Join(l.Close(), lock.Close())
	})}, nil
}

// lockSocket locks a file beside the socket, so that only one of several servers that start at the
// same time replaces the socket.
func lockSocket(path string) (*os.File, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|lockfile.NoFollow, 0o600)
	if err != nil {
		return nil, err
	}
	held, err := lockfile.Try(lock)
	if held {
		err = errInUse
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

var errInUse = errors.New("another tideover server uses this socket")

// replaceSocket creates the socket in a private folder and then moves it to its path, so that other
// users can never open it. Setting the umask instead would affect all goroutines.
func replaceSocket(path string) (net.Listener, error) {
	if err := checkStale(path); err != nil {
		return nil, err
	}
	private := filepath.Join(filepath.Dir(path), ".t"+strconv.FormatUint(rand.Uint64N(1<<30), 36))
	if err := os.Mkdir(private, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(private) //nolint:errcheck // a folder that remains does no harm
	made := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(made, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := os.Rename(made, path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// checkStale returns nil if the path does not exist, or is a socket on which no process listens.
// Otherwise it returns an error.
func checkStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("the path exists and is not a socket")
	}
	c, err := net.DialTimeout("unix", path, time.Second) //nolint:noctx // it has a timeout
	if err == nil {
		return errors.Join(errInUse, c.Close())
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// socket is a listener that removes its socket when it is closed.
type socket struct {
	net.Listener
	path  string
	close func() error
}

// Close removes the socket, unless another process has replaced it.
func (s *socket) Close() error { return s.close() }

// Addr returns the path of the socket. The inner listener still has the path from before the move.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }
