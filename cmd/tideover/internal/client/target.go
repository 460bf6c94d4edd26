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
	TokenVar  = "TIDEOVER_TOKEN" //nolint:gosec // the name of one

	// CAVar names a file with certificates. SSL_CERT_FILE works only on some systems.
	CAVar = "TIDEOVER_CA"
)

// Target is the address of a server and the credentials for it.
type Target struct {
	// Server is unix:/path, http://host:port or https://host:port. Empty means
	// DefaultSocket.
	Server string

	// Token is for servers that are called over TCP.
	Token secret.String

	// Roots are the authorities that may have issued the server's certificate. nil means those
	// of the system.
	Roots *x509.CertPool

	// By names the caller in the history of runs. Empty means "api".
	By string
}

// TargetOf returns the target of a flag and the environment. The flag takes precedence.
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

// DefaultSocket returns the path of the socket if none is configured. It is the default of the
// configuration, too.
func DefaultSocket(getenv func(string) string) (string, error) {
	dir := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // the XDG specification ignores relative paths
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("there is no home folder to look for the server in; name it with --server")
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "tideover", "tideover.sock"), nil
}

// UserFolder returns a folder of this user's state that all processes of the user share,
// independent of their data folders. It is "" if there is no home folder.
func UserFolder(name string) string {
	socket, err := DefaultSocket(os.Getenv)
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(socket), name)
}

// AccountsFolder returns the folder with the limits of accounts: that of the user, or one in the
// data folder if there is no home folder.
func AccountsFolder(data string) string {
	const name = "accounts"
	return cmp.Or(UserFolder(name), filepath.Join(data, name))
}

// resolve returns the path of the socket, or the base of the addresses.
func (t Target) resolve() (socket, base string, err error) {
	if path, ok := strings.CutPrefix(t.Server, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if path == "" {
			return "", "", fmt.Errorf("server %q: no path", t.Server)
		}
		return path, "http://tideover", nil
	}
	u, err := url.Parse(t.Server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return "", "", fmt.Errorf("server %q: must be unix:/path/to/socket, http://127.0.0.1:7878 or https://host:7878", t.Server)
	}
	return "", u.Scheme + "://" + u.Host, nil
}
