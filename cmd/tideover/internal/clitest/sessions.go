//go:build unix

package clitest

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/testfile"
)

// SessionsEnv is a state folder with processes that run sessions.
type SessionsEnv struct {
	T     *testing.T
	State string // for XDG_STATE_HOME
}

// NewSessionsEnv returns a new state folder.
func NewSessionsEnv(t *testing.T) *SessionsEnv {
	t.Helper()
	CommandPath(t) // with -short, this skips the test, and not only a subtest of it
	state := testfile.ShortDir(t)
	return &SessionsEnv{t, state}
}

// ServeSocket returns the path of the socket of a server.
func (h *SessionsEnv) ServeSocket() string {
	return filepath.Join(h.State, "tideover", "tideover.sock")
}

// Env lets the command use the state folder, and no configuration.
func (h *SessionsEnv) Env(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = h.State // a folder without a configuration, unless the test writes one
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+h.State, "XDG_CONFIG_HOME="+h.State, "TIDEOVER_CONFIG=", "TIDEOVER_SERVER=", "TIDEOVER_TOKEN=",
		"TZ=UTC", "COLUMNS=", "USER=tester")
	return cmd
}

// HostedSession is what the commands on sessions print of one as JSON: the session, and the process that runs it.
type HostedSession struct {
	session.Status
	In string `json:"in"` // serve or watch
	At string `json:"at"` // the socket or the address of the process
}
