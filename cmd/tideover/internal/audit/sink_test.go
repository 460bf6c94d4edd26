package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/audit"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

const childEnv = "AUDIT_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		child(path)
	}
	os.Exit(m.Run())
}

// child writes events until it is killed.
func child(path string) {
	s, err := audit.Open(audit.Config{Path: path, MaxSize: 20_000, Keep: 1000})
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		s.Observe(event(i))
		if i%100 == 0 {
			time.Sleep(time.Millisecond) // real clock: the parent waits for what is written
		}
	}
}

func event(i int) retry.Event {
	return retry.Event{Kind: retry.AttemptFailed, Time: time.Unix(1, 0).UTC(), Name: "n", Attempt: i + 1, Err: errors.New("no")}
}

func open(t testing.TB, cfg audit.Config) *audit.Sink {
	t.Helper()
	s, err := audit.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t testing.TB, s *audit.Sink) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// events reads an audit log. Lines that are not events are returned separately.
func events(t testing.TB, path string) (list []retry.Event, broken []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		t.Errorf("%s ends in the middle of a line", path)
	}
	for line := range bytes.Lines(data) {
		var e retry.Event
		if err := json.Unmarshal(line, &e); err != nil {
			broken = append(broken, strings.TrimSpace(string(line)))
			continue
		}
		list = append(list, e)
	}
	return list, broken
}

func TestEventsAreLinesOfJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "audit.jsonl")
	red := new(secret.Redactor)
	red.Add("hunter22")
	s := open(t, audit.Config{Path: path, Redactor: red})
	e := event(0)
	e.Err = errors.New("no hunter22 here")
	s.Observe(e)
	s.Observe(event(1))
	closed(t, s)
	closed(t, s)
	s.Observe(event(2))
	list, broken := events(t, path)
	if len(list) != 2 || len(broken) != 0 || list[0].Err.Error() != "no *** here" || list[1].Attempt != 2 {
		t.Errorf("got %+v and %q", list, broken)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestAnOldTrailIsMadePrivateAndCompleted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, []byte("{\"kind\":\"att"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, audit.Config{Path: path})
	s.Observe(event(0))
	closed(t, s)
	list, broken := events(t, path)
	if len(list) != 1 || len(broken) != 1 || broken[0] != `{"kind":"att` {
		t.Errorf("got %+v and %q", list, broken)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestOnlyARegularFileIsATrail(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func(path string) error{
		"a link":              func(path string) error { return os.Symlink(victim, path) },
		"a link that dangles": func(path string) error { return os.Symlink(victim+"x", path) },
		"a folder":            func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if s, err := audit.Open(audit.Config{Path: path}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: Open = %v, %v", name, s, err)
		}
	}
	if info, err := os.Stat(victim); err != nil || info.Mode().Perm() != 0o644 || info.Size() != 0 {
		t.Errorf("the target was touched: %v, %v", info, err)
	}
	if _, err := os.Stat(victim + "x"); err == nil {
		t.Error("the target was made")
	}
}

func TestRotation(t *testing.T) {
	for _, c := range []struct{ keep, files int }{{0, 1}, {1, 2}, {3, 4}, {100, 0}} {
		t.Run(fmt.Sprint(c.keep), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			for _, n := range []int{c.keep + 1, c.keep + 2} { // files that an earlier, larger setting of keep has left
				if err := os.WriteFile(fmt.Sprint(path, ".", n), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, audit.Config{Path: path, MaxSize: 1000, Keep: c.keep})
			const all = 100
			for i := range all {
				s.Observe(event(i))
			}
			closed(t, s)
			files, err := filepath.Glob(path + "*")
			if err != nil || c.files > 0 && len(files) != c.files {
				t.Errorf("%d files, %v, want %d: %v", len(files), err, c.files, files)
			}
			next := all // the files must contain the events from the newest back to the oldest, without a gap
			for i := range files {
				name := path
				if i > 0 {
					name = fmt.Sprint(path, ".", i)
				}
				list, broken := events(t, name)
				if len(list) == 0 || len(broken) > 0 || list[len(list)-1].Attempt != next {
					t.Fatalf("%s: %+v, %q, want one that ends with %d", name, list, broken, next)
				}
				next -= len(list)
				if info, _ := os.Stat(name); info.Size() > 1000 || info.Mode().Perm() != 0o600 {
					t.Errorf("%s has %d bytes, mode %v", name, info.Size(), info.Mode())
				}
			}
			if c.files == 0 && next != 0 {
				t.Errorf("%d events are missing", next)
			}
		})
	}
}

func TestALineThatIsTooLongIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	s := open(t, audit.Config{Path: path, MaxSize: 1, Keep: 9})
	s.Observe(event(0))
	s.Observe(event(1))
	closed(t, s)
	if a, _ := events(t, path); len(a) != 1 || a[0].Attempt != 2 {
		t.Errorf("got %+v", a)
	}
	if a, _ := events(t, path+".1"); len(a) != 1 || a[0].Attempt != 1 {
		t.Errorf("got %+v", a)
	}
}

func written(path string) func() bool {
	return func() bool { info, err := os.Stat(path); return err == nil && info.Size() > 0 }
}

func TestAFileThatIsRemovedIsMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	s := open(t, audit.Config{Path: path})
	s.Observe(event(0))
	testwait.Until(t, "the first event", written(path))
	if err := os.Rename(path, path+".moved"); err != nil { // as logrotate does
		t.Fatal(err)
	}
	s.Observe(event(1))
	testwait.Until(t, "the second event", written(path))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s.Observe(event(2))
	closed(t, s)
	for name, want := range map[string]int{path + ".moved": 1, path: 3} {
		if list, broken := events(t, name); len(list) != 1 || len(broken) != 0 || list[0].Attempt != want {
			t.Errorf("%s: %+v, %q, want event %d", name, list, broken, want)
		}
	}
}

func TestASinkIsUsedByMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	s := open(t, audit.Config{Path: path, MaxSize: 50_000, Keep: 1000})
	const writers, each = 8, 500 // together fewer events than the queue can hold
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := range each {
				s.Observe(event(i))
			}
		})
	}
	wg.Wait()
	closed(t, s)
	files, _ := filepath.Glob(path + "*")
	n := 0
	for _, f := range files {
		list, broken := events(t, f)
		if len(broken) > 0 {
			t.Errorf("%s: %q", f, broken)
		}
		n += len(list)
	}
	if n != writers*each {
		t.Errorf("%d events, want %d", n, writers*each)
	}
}

// After the folder was removed, Observe must not block. The log must have one line about the failure and
// one about its end, and the audit log must say how many events are missing.
func TestTheDiskComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "d")
		path := filepath.Join(dir, "audit.jsonl")
		var log bytes.Buffer
		s := open(t, audit.Config{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		s.Observe(event(0))
		synctest.Wait()
		for i := range 10_000 { // the queue holds 8192 of them; the others are dropped
			s.Observe(event(i + 1))
		}
		time.Sleep(time.Minute)
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 || strings.Count(log.String(), "written again") != 1 {
			t.Errorf("the log has %d errors: %s", n, log.String())
		}
		closed(t, s)
		list, broken := events(t, path)
		last := list[len(list)-1]
		for i, e := range list {
			if e.Kind == retry.HookFailed {
				last = e
			} else if i > 8192+1 {
				t.Fatalf("event %d is too many", i)
			}
		}
		if len(broken) > 0 || last.Kind != retry.HookFailed || !strings.Contains(fmt.Sprint(last.Err), "1808 events were dropped") {
			t.Errorf("%d events, %q broken, the last %+v", len(list), broken, last)
		}
	})
}

func TestCloseSaysWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "d")
		s := open(t, audit.Config{Path: filepath.Join(dir, "audit.jsonl"), Logger: slog.New(slog.DiscardHandler)})
		if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		s.Observe(event(0))
		if err := s.Close(); err == nil || !strings.Contains(err.Error(), "not all events were written") {
			t.Errorf("Close = %v", err)
		}
	})
}

// size returns the bytes of all files of an audit log.
func size(path string) (n int64) {
	files, _ := filepath.Glob(path + "*")
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			n += info.Size()
		}
	}
	return n
}

// A process that writes is killed repeatedly, and the next process continues the file. All lines must be
// complete, except the one that was cut off by each kill.
func TestAKillLeavesATrail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	const kills = 3
	for range kills {
		before := size(path)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the child writes", func() bool { return size(path) > before+30_000 })
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	s := open(t, audit.Config{Path: path, MaxSize: 20_000, Keep: 1000})
	s.Observe(event(41))
	closed(t, s)
	files, _ := filepath.Glob(path + "*")
	total, torn := 0, 0
	for _, f := range files {
		list, broken := events(t, f)
		total, torn = total+len(list), torn+len(broken)
	}
	if list, _ := events(t, path); list[len(list)-1].Attempt != 42 {
		t.Errorf("the last event is %+v", list[len(list)-1])
	}
	if torn > kills || total < 100 {
		t.Errorf("%d events in %d files, %d lines are torn", total, len(files), torn)
	}
}

func BenchmarkObserve(b *testing.B) {
	s := open(b, audit.Config{Path: filepath.Join(b.TempDir(), "audit.jsonl"), MaxSize: 10e6, Keep: 1})
	for i := 0; b.Loop(); i++ {
		s.Observe(event(i))
	}
	_ = s.Close()
}

// A flood of refused requests is cut, the number of the others is in the file, and events are not affected.
func TestAFloodOfEntriesIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		s := open(t, audit.Config{Path: path})
		const all = 5000
		for i := range all {
			s.Record(audit.Entry{Kind: audit.RequestRefused, From: "192.0.2.1", Status: 401})
			if i%100 == 0 {
				s.Observe(event(i))
			}
		}
		time.Sleep(time.Minute)
		written, counted := entries(t, path)
		if written != 100 || counted != all-100 || s.Drops() != (audit.Drops{Limited: all - 100}) {
			t.Errorf("%d entries, %d counted as dropped, %+v", written, counted, s.Drops())
		}
		for range all {
			s.Record(audit.Entry{Kind: audit.RequestRefused})
		}
		s.Record(audit.Entry{Kind: audit.ConfigLoaded})
		closed(t, s)
		if written, counted = entries(t, path); written+counted != 2*all+1 || written > 200 {
			t.Errorf("after a minute: %d entries, %d counted as dropped, want %d together", written, counted, 2*all+1)
		}
		if list, _ := events(t, path); len(list) != all/100 {
			t.Errorf("%d events, want %d", len(list), all/100)
		}
	})
	var none *audit.Sink
	none.Record(audit.Entry{})
	if none.Drops() != (audit.Drops{}) || none.Err() != nil {
		t.Error("a missing log has drops or an error")
	}
}

// entries returns the number of entries in an audit log, and the sum of the numbers of those that were dropped.
func entries(t testing.TB, path string) (written, dropped int) {
	t.Helper()
	_, lines := events(t, path)
	for _, line := range lines {
		var e audit.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == audit.EntriesDropped {
			dropped += int(e.Count)
		} else {
			written++
		}
	}
	return written, dropped
}
