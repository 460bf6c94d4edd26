//go:build unix

package api

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

// maxSocket is how long the path of a socket may be on every system.
const maxSocket = 103

// ListenUnix listens on a unix socket that nobody but the user can open. The
// folder is made, for the user alone, if it is not there. A socket that was left
// behind is replaced; one on which somebody answers is not, nor is any other
// file. Closing the listener removes the socket.
func ListenUnix(path string) (net.Listener, error) {
	l, err := listenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func listenUnix(path string) (net.Listener, error) {
	if len(path) > maxSocket {
		return nil, fmt.Errorf("%d bytes are too long for the path of a socket, which has at most %d", len(path), maxSocket)
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
	return &socket{Listener: l, path: path, lock: lock, made: made}, nil
}

// lockSocket makes sure that of several servers which start at once only one
// takes the socket for left behind.
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

var errInUse = errors.New("another tideover serves there")

// replaceSocket makes the socket elsewhere and moves it to its place, so that at
// no time others than the user could have opened it. (The umask is one for all
// goroutines.)
func replaceSocket(path string) (net.Listener, error) {
	if err := checkStale(path); err != nil {
		return nil, err
	}
	private := filepath.Join(filepath.Dir(path), ".t"+strconv.FormatUint(rand.Uint64N(1<<30), 36))
	if err := os.Mkdir(private, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(private) //nolint:errcheck // empty by then, or to be left
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

// checkStale refuses to replace what is not a socket that was left behind.
func checkStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is something that is not a socket")
	}
	c, err := net.DialTimeout("unix", path, time.Second) //nolint:noctx // it has a second
	if err == nil {
		return errors.Join(errInUse, c.Close())
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// socket is a listener that removes its socket.
type socket struct {
	net.Listener
	path string
	lock *os.File
	made fs.FileInfo
	once sync.Once
	err  error
}

// Close removes the socket, unless it is somebody else's by now.
func (s *socket) Close() error {
	s.once.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
			_ = os.Remove(s.path)
		}
		s.err = errors.Join(s.Listener.Close(), s.lock.Close())
	})
	return s.err
}

// Addr returns the address of the socket, where it is now.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }
