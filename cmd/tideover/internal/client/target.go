package client

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/tideover/tideover/internal/secret"
)

// Environment variables with the address of the server and the credentials for it.
const (
	ServerVar = "TIDEOVER_SERVER"
	TokenVar  = "TIDEOVER_TOKEN" //nolint:gosec // not a token, but the name of a variable

	// CAVar names a file with certificates of authorities. Go supports SSL_CERT_FILE, which could
	// do the same, only on some systems.
	CAVar = "TIDEOVER_CA"
)

// Target is the address of a server and the credentials for it.
type Target struct {
	// Server is unix:/path, http://host:port or https://host:port. Empty means
	// DefaultSocket.
	Server string

	// Token is sent to servers over TCP. Unix sockets need none.
	Token secret.String

	// Roots are the authorities that may have issued the server's certificate. nil means the
	// authorities of the system.
	Roots *x509.CertPool

	// By names the caller in the history of runs. Empty means "api".
	By string
}

// TargetOf returns the target that the flag --server and the environment name. The flag takes
// precedence over [ServerVar].
func TargetOf(flag string, getenv func(string) string) (Target, error) {
	t := Target{Server: cmp.Or(flag, getenv(ServerVar)), Token: secret.New(getenv(TokenVar))}
	if path := getenv(CAVar); path != "" && strings.HasPrefix(t.Server, "https:") {
		var err error
		if t.Roots, err = authorities(path); err != nil {
			return t, fmt.Errorf("%s: %w", CAVar, err)
		}
	}
	if t.Server == "" {
		path, err := DefaultSocket(getenv)
		if err != nil {
			return t, err
		}
		t.Server = "unix:" + path
	}
	return t, nil
}

// DefaultSocket returns the default path of the server's socket. Servers and clients use it if
// nothing else is configured.
func DefaultSocket(getenv func(string) string) (string, error) {
	dir := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // the XDG specification ignores relative paths
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("the default socket is unknown because HOME is not set; name the server with --server")
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "tideover", "tideover.sock"), nil
}

// UserFolder returns the path of the folder with the name beside the default socket. All processes
// of this user share it, even if their data folders differ. It returns "" if there is no home
// folder.
func UserFolder(name string) string {
	socket, err := DefaultSocket(os.Getenv)
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(socket), name)
}

// AccountsFolder returns the folder with the limits of accounts: a [UserFolder], or a folder in the
// data folder if there is no home folder.
func AccountsFolder(data string) string {
	const name = "accounts"
	return cmp.Or(UserFolder(name), filepath.Join(data, name))
}

// resolve returns the base of all URLs, and the path of the socket, which is empty for TCP.
func (t Target) resolve() (socket, base string, err error) {
	if path, ok := strings.CutPrefix(t.Server, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if path == "" {
			return "", "", fmt.Errorf("server %q: the path of the socket is missing", t.Server)
		}
		return path, "http://tideover", nil
	}
	u, err := url.Parse(t.Server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return "", "", fmt.Errorf("server %q: must be unix:/path/to/socket, http://127.0.0.1:7878 or https://host:7878", t.Server)
	}
	return "", u.Scheme + "://" + u.Host, nil
}
