package cli

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
			write(t, path, string(wal))
		},
		"an older copy": func(t *testing.T, data string, older map[string]string) {
			t.Helper()
			for _, name := range []string{"log.db", "log.db-wal"} {
				write(t, filepath.Join(data, name), older[name])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := shortDir(t)
			s := serveFile(t, text, dir)
			run := func(key string) { wantCode(t, s.runCommand("run", "one", "--wait", "--key", key), 0) }
			for _, key := range []string{"a", "b", "c"} {
				run(key)
			}
			older := filesOf(t, s.data)
			for _, key := range []string{"d", "e", "f", "g"} {
				run(key)
			}
			wantCode(t, tideover(t, "doctor", "--config", s.file, "--data", s.data, "--deep"), 0)
			s.signal(syscall.SIGKILL)
			s.wait()
			harm(t, s.data, older)
			flags := []string{"--config", s.file, "--data", s.data}
			before := filesOf(t, s.data)

			o := tideover(t, append([]string{"doctor"}, flags...)...)
			wantCode(t, o, 1)
			wantIn(t, "doctor", o.out, "acknowledged entries")

			o = tideover(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
			wantCode(t, o, 125)
			wantIn(t, "error", o.stderr, "acknowledged entries")
			wantIn(t, "error", o.stderr, "restore a backup")
			wantIn(t, "error", o.stderr, "--accept-loss")
			if after := filesOf(t, s.data); !maps.Equal(before, after) {
				t.Error("the refused start has changed the log, the view or a blob")
			}

			s = beginServeWith(t, []string{"--accept-loss"}, text, dir)
			s.serves()
			wantIn(t, "status", s.runCommand("doctor").out, "lost acknowledged entries")
			run("g")
			s.signal(syscall.SIGTERM)
			wantCode(t, s.wait(), 0)
			s = serveFile(t, text, dir)
			wantIn(t, "after a restart", s.runCommand("doctor").out, "lost acknowledged entries")
			wantIn(t, "after a restart", tideover(t, append([]string{"doctor"}, flags...)...).out, "accepted with --accept-loss")
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
