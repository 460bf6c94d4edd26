package server

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
	"github.com/tideover/tideover/internal/secret"
)

// openFolder checks who can access the data folder, creates it if necessary, and locks it.
func openFolder(data string) (unlock func(), err error) {
	if err := fileaccess.CheckFolder(data); err != nil {
		return nil, fmt.Errorf("server.data: %w, or name another folder with --data or server.data", err)
	}
	if err := os.MkdirAll(filepath.Join(data, "locks"), 0o700); err != nil {
		return nil, fmt.Errorf("server.data: %w", err)
	}
	return lockData(data)
}

// lockName is the file in the data folder that a server or a gateway locks. The lock of the engine's
// log is not enough, since a gateway alone has no engine.
const lockName = "server.lock"

// lockData locks the data folder, so that no other server uses it, even one with another address and
// socket. The operating system releases the lock when the process ends. unlock does not remove the
// file: a third process could then lock a new file while a second one has locked the old one.
func lockData(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|lockfile.NoFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("server.data: %w", err)
	}
	held, err := lockfile.Try(f)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("server.data: lock %s: %w", path, err)
	}
	if held {
		holder := lockHolder(f)
		_ = f.Close()
		return nil, fmt.Errorf("server.data: the folder %s is in use by %s: stop that one, or name another folder with --data or server.data", dir, holder)
	}
	// Only error messages use the contents.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return func() {
		_ = f.Truncate(0)
		_ = f.Close()
	}, nil
}

// lockHolder describes the process that has the lock.
func lockHolder(f *os.File) string {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return "another tideover" // it is starting or stopping, and its pid is not in the file
	}
	return fmt.Sprintf("another tideover (pid %d)", pid)
}

// loadToken returns the token of the configuration or, if none is configured, the token in the data
// folder. It creates that file if it does not exist.
func loadToken(cfg *config.Config) (secret.String, error) {
	if t := cfg.Server.Token; t != nil {
		token, err := t.Resolve(cfg.Secrets())
		if err != nil {
			return token, fmt.Errorf("server.token: %w", err)
		}
		return token, nil
	}
	return generated{"token", config.MinToken, rand.Text}.load(cfg.Server.Data)
}

// users returns the users of the configuration with their tokens.
func users(cfg *config.Config) (list []httpserver.User, err error) {
	for _, u := range cfg.Server.Users {
		token, err := u.Token.Resolve(cfg.Secrets())
		if err != nil {
			return nil, fmt.Errorf("server.users.%s.token: %w", u.Name, err)
		}
		list = append(list, httpserver.User{Name: u.Name, Token: token, ReadOnly: u.ReadOnly})
	}
	return list, nil
}

// loadCallbackKey returns the key of the configuration that signs callback URLs or, if none is
// configured, the key in the data folder. It creates that file if it does not exist. In a cluster
// the key must be configured, because each process has its own folder; without it the result is
// zero.
func loadCallbackKey(cfg *config.Config) (secret.String, error) {
	if k := cfg.Server.CallbackKey; k != nil {
		key, err := k.Resolve(cfg.Secrets())
		if err != nil {
			return key, fmt.Errorf("server.callback-key: %w", err)
		}
		return key, nil
	}
	if cfg.Engine.Clustered() {
		return secret.String{}, nil
	}
	return generated{"callback.key", 2 * callbackKeySize, newCallbackKey}.load(cfg.Server.Data)
}

const callbackKeySize = 32 // in bytes

func newCallbackKey() string {
	key := make([]byte, callbackKeySize)
	_, _ = rand.Read(key) // it never fails
	return hex.EncodeToString(key)
}

// generated is a secret in a file of the data folder, which the server creates if it does not exist.
type generated struct {
	name  string // of the file
	least int    // fewest characters
	make  func() string
}

func (g generated) load(dir string) (secret.String, error) {
	path := filepath.Join(dir, g.name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		data = []byte(g.make())
		err = writeSecret(path, data)
	}
	if err != nil {
		return secret.String{}, fmt.Errorf("%s: %w", g.name, err)
	}
	text := strings.TrimSpace(string(data))
	if len(text) < g.least {
		return secret.String{}, fmt.Errorf("%s: %s has %d characters, at least %d are needed; delete the file and a new %[1]s is made", g.name, path, len(text), g.least)
	}
	info, err := os.Stat(path)
	if err == nil {
		err = fileaccess.Check(path, info, fileaccess.GroupOrOthers)
	}
	if err != nil {
		return secret.String{}, fmt.Errorf("%s: %w, or delete the file and a new %[1]s is made", g.name, err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return secret.String{}, fmt.Errorf("%s: other users can read %s (%v): run chmod 600, or delete the file and a new %[1]s is made", g.name, path, info.Mode().Perm())
	}
	return secret.New(text), nil
}

// writeSecret creates the file of a secret. Only its owner can ever access it.
func writeSecret(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}
