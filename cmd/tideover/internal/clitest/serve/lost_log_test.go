//go:build unix

package serve_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// A flipped bit in the write-ahead log, or an older copy of the log, loses acknowledged runs. serve
// refuses such a folder and changes no byte of it, doctor reports it, and --accept-loss opens it and says
// so afterwards.
func TestALogThatHasLostRunsIsRefused(t *testing.T) {
	t.Parallel()
	const text = "version: 1\nworkflows: {one: {steps: [{id: s, run: [echo, one]}]}}\n"
	for name, harm := range map[string]func(t *testing.T, data string, older map[string]string){
		"a flipped bit": func(t *testing.T, data string, _ map[string]string) {
			t.Helper()
			path := filepath.Join(data, "log.db-wal")
			wal, err := os.ReadFile(path)
			if err != nil || len(wal) == 0 {
				t.Fatalf("%d bytes, %v", len(wal), err)
			}
			wal[len(wal)/2] ^= 4
			clitest.WriteFile(t, path, string(wal))
		},
		"an older copy": func(t *testing.T, data string, older map[string]string) {
			t.Helper()
			for _, name := range []string{"log.db", "log.db-wal"} {
				clitest.WriteFile(t, filepath.Join(data, name), older[name])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := clitest.ShortDir(t)
			s := clitest.Serve(t, text, dir)
			run := func(key string) { clitest.WantCode(t, s.RunCommand("run", "one", "--wait", "--key", key), 0) }
			for _, key := range []string{"a", "b", "c"} {
				run(key)
			}
			older := filesOf(t, s.Data)
			for _, key := range []string{"d", "e", "f", "g"} {
				run(key)
			}
			clitest.WantCode(t, clitest.Run(t, "doctor", "--config", s.File, "--data", s.Data, "--deep"), 0)
			s.Signal(syscall.SIGKILL)
			s.End()
			harm(t, s.Data, older)
			flags := []string{"--config", s.File, "--data", s.Data}
			before := filesOf(t, s.Data)

			o := clitest.Run(t, append([]string{"doctor"}, flags...)...)
			clitest.WantCode(t, o, 1)
			clitest.WantIn(t, "doctor", o.Out, "acknowledged entries")

			o = clitest.Run(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
			clitest.WantCode(t, o, 125)
			clitest.WantIn(t, "error", o.Stderr, "acknowledged entries")
			clitest.WantIn(t, "error", o.Stderr, "restore a backup")
			clitest.WantIn(t, "error", o.Stderr, "--accept-loss")
			if after := filesOf(t, s.Data); !maps.Equal(before, after) {
				t.Error("the refused start has changed the log, the view or a blob")
			}

			s = clitest.BeginServeWith(t, []string{"--accept-loss"}, text, dir)
			s.AwaitReady()
			clitest.WantIn(t, "status", s.RunCommand("doctor").Out, "lost acknowledged entries")
			run("g")
			s.Signal(syscall.SIGTERM)
			clitest.WantCode(t, s.End(), 0)
			s = clitest.Serve(t, text, dir)
			clitest.WantIn(t, "after a restart", s.RunCommand("doctor").Out, "lost acknowledged entries")
			clitest.WantIn(t, "after a restart", clitest.Run(t, append([]string{"doctor"}, flags...)...).Out, "accepted with --accept-loss")
		})
	}
}

// filesOf returns the contents of the files of the log, the view and the blobs, by name.
func filesOf(t *testing.T, data string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, data+"/")
		part := strings.HasPrefix(name, "log.") || strings.HasPrefix(name, "view.") || strings.HasPrefix(name, "blobs/") || name == "lock"
		if err != nil || e.IsDir() || !part {
			return err
		}
		text, err := os.ReadFile(path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
