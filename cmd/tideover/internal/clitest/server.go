//go:build unix

package clitest

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"
)

// Server is a `tideover serve` with its own configuration.
type Server struct {
	*Background
	Log  *SyncBuffer
	File string
	Data string
}

// Serve starts a server with the configuration text, and waits until it serves. If dir is
// empty, it creates a new folder. env has further variables.
func Serve(t *testing.T, text, dir string, env ...string) *Server {
	t.Helper()
	s := BeginServe(t, text, dir, env...)
	s.AwaitReady()
	return s
}

// AwaitReady waits until the server serves.
func (s *Server) AwaitReady() {
	s.T.Helper()
	testwait.Until(s.T, "the server serves", func() bool { return strings.Contains(s.Log.String(), "the page is at") })
}

// BeginServe is [Serve], except that it does not wait until the server serves.
func BeginServe(t *testing.T, text, dir string, env ...string) *Server {
	t.Helper()
	return BeginServeWith(t, nil, text, dir, env...)
}

// BeginServeWith is [BeginServe] with further flags.
func BeginServeWith(t *testing.T, flags []string, text, dir string, env ...string) *Server {
	t.Helper()
	if dir == "" {
		dir = ShortDir(t)
	}
	s := &Server{Background: &Background{T: t, Folder: dir}, File: filepath.Join(dir, "tideover.yaml"), Data: filepath.Join(dir, "data"), Log: new(SyncBuffer)}
	WriteFile(t, s.File, text)
	s.Cmd, s.Mark = Command(t, append([]string{"serve", "--config", s.File, "--data", s.Data, "--listen", "127.0.0.1:0"}, flags...)...)
	s.Env = append(append(s.Env, "DIR="+dir, "TIDEOVER_SERVER_ENV_INHERIT=DIR"), env...)
	s.Stdout, s.Stderr = s.Log, s.Log
	s.Begin()
	return s
}

// WriteFile writes a file that only this user may read.
func WriteFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// RunCommand runs a command against the server.
func (s *Server) RunCommand(args ...string) Outcome {
	s.T.Helper()
	server := "unix:" + filepath.Join(s.Data, "tideover.sock")
	if args[0] == "doctor" { // so that a test covers $TIDEOVER_SERVER, too
		cmd, _ := Command(s.T, args...)
		cmd.Env = append(cmd.Env, "TIDEOVER_SERVER="+server)
		return Finish(s.T, cmd)
	}
	return InProcess(s.T, append(slices.Clone(args), "--server", server)...)
}

// PageURL returns the address of the web page, including the token.
func (s *Server) PageURL() string {
	_, rest, _ := strings.Cut(s.Log.String(), "the page is at ")
	page, _, _ := strings.Cut(rest, "\n")
	return page
}

// Show returns the run with this id.
func (s *Server) Show(id string) *engine.Info {
	s.T.Helper()
	var i engine.Info
	o := s.RunCommand("show", id, "--json")
	if err := json.Unmarshal([]byte(o.Out), &i); err != nil {
		s.T.Fatalf("show: %v in %q; %q", err, o.Out, o.Stderr)
	}
	return &i
}

// StartRuns starts n runs and returns their ids. The random keys spread the runs over all shards.
func (s *Server) StartRuns(workflow string, n int) (ids []string) {
	s.T.Helper()
	for range n {
		o := s.RunCommand("run", workflow, "--key", rand.Text())
		if o.Code != 0 {
			s.T.Fatalf("run %s: %+v; the server says %s", workflow, o, s.Log)
		}
		ids = append(ids, strings.TrimSpace(o.Out))
	}
	return ids
}

// WaitForSuccess waits until all runs have succeeded.
func (s *Server) WaitForSuccess(ids []string) {
	s.T.Helper()
	var last Outcome
	defer func() {
		if s.T.Failed() {
			s.T.Logf("the last that was shown is %+v; the server says %s", last, s.Log)
		}
	}()
	for _, id := range ids {
		testwait.Until(s.T, id+" succeeds", func() bool {
			var i engine.Info
			o := s.RunCommand("show", id, "--json")
			last = o
			if o.Code != 0 || json.Unmarshal([]byte(o.Out), &i) != nil {
				return false
			}
			if i.Finished() && i.State != engine.StateSucceeded {
				s.T.Fatalf("%s is %s: %s", id, i.State, o.Out)
			}
			return i.State == engine.StateSucceeded
		})
	}
}

// Examined runs the doctor with the configuration text, and returns its findings by severity.
func Examined(t *testing.T, text string, env ...string) (o Outcome, found map[string]string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tideover.yaml")
	WriteFile(t, file, text)
	cmd, _ := Command(t, "doctor", "--json", "--config", file)
	cmd.Env = append(cmd.Env, env...)
	o = Finish(t, cmd)
	var d admin.Diagnosis
	if err := json.Unmarshal([]byte(o.Out), &d); err != nil {
		t.Fatalf("doctor: %v in %+v", err, o)
	}
	found = map[string]string{}
	for _, f := range d.Findings {
		if f.What == "" || f.Why == "" || f.Do == "" {
			t.Errorf("a finding that says too little: %+v", f)
		}
		found[f.Severity] += f.What + "\n"
	}
	return o, found
}

// Token returns the token of the API.
func (s *Server) Token() string {
	s.T.Helper()
	data, err := os.ReadFile(filepath.Join(s.Data, "token"))
	if err != nil {
		s.T.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// Reload writes another configuration and waits until it is loaded.
func (s *Server) Reload(text string) {
	s.T.Helper()
	loaded := func() int { return strings.Count(s.Log.String(), "configuration loaded") }
	before := loaded()
	WriteFile(s.T, s.File, text)
	s.Signal(syscall.SIGHUP)
	testwait.Until(s.T, "the file is loaded", func() bool { return loaded() > before })
}

// FirstID returns the id of the oldest run in the output of `tideover runs --json`.
func FirstID(t *testing.T, runs string) string {
	t.Helper()
	var page engine.Page
	if err := json.Unmarshal([]byte(runs), &page); err != nil || len(page.Runs) == 0 {
		t.Fatalf("%v in %q", err, runs)
	}
	return page.Runs[len(page.Runs)-1].ID
}

// SyncBuffer is a buffer that a process writes to while a test reads it.
type SyncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *SyncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *SyncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// ShortDir returns a new folder whose path is short enough for a socket.
func ShortDir(t *testing.T) string {
	t.Helper()
	return testfile.ShortDir(t)
}
