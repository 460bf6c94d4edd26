package config_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// watched has the arguments of a call of the callback.
type watched struct {
	cfg *config.Config
	err error
}

func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tideover.yaml")
	write := func(retention string) {
		t.Helper()
		tmp := path + ".new" // replace the file by a rename, as editors do
		if err := os.WriteFile(tmp, []byte("version: 1\nserver: {retention: "+retention+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, path); err != nil {
			t.Fatal(err)
		}
	}
	write("1d")
	src := config.Source{Path: path, Environ: environ}
	cfg, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan watched, 10)
		w := config.NewWatcher(src, cfg)
		write("2d") // after the load and before the watch
		done := make(chan error)
		go func() {
			done <- w.Run(ctx, func(c *config.Config, err error) error { got <- watched{c, err}; return err })
		}()

		next := func(what string) watched {
			t.Helper()
			select {
			case g := <-got:
				return g
			case <-time.After(time.Minute):
				t.Fatalf("%s: nothing was reported", what)
				return watched{}
			}
		}
		quiet := func(what string) {
			t.Helper()
			select {
			case g := <-got:
				t.Errorf("%s: reported %v, %v", what, g.cfg, g.err)
			case <-time.After(time.Minute):
			}
		}
		days := func(what string, g watched, want int) {
			t.Helper()
			if g.err != nil || g.cfg.Server.Retention != time.Duration(want)*24*time.Hour {
				t.Errorf("%s: %v, %v, want %d days", what, g.cfg, g.err, want)
			}
		}
		days("a change before the watch", next("a change before the watch"), 2)
		quiet("no change")
		write("3d") // a file of the same size
		days("a change", next("a change"), 3)

		write("soon")
		if g := next("an error"); g.cfg != nil || g.err == nil || !strings.Contains(g.err.Error(), `"soon"`) {
			t.Errorf("an error: %v, %v", g.cfg, g.err)
		}
		quiet("the same error")
		write("4d")
		days("corrected", next("corrected"), 4)

		w.Reload()
		days("told to reload", next("told to reload"), 4)

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if g := next("removed"); g.err == nil {
			t.Errorf("removed: reported %v", g.cfg)
		}
		quiet("still removed")
		write("4d")
		days("back", next("back"), 4)

		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run = %v", err)
		}
	})
}

// A configuration that is not in effect is tried again, whatever the reason was; a reason is passed on once.
func TestWatchTriesAgain(t *testing.T) {
	dir := t.TempDir()
	path, token := filepath.Join(dir, "tideover.yaml"), filepath.Join(dir, "token")
	put := func(path, text string) {
		t.Helper()
		// The watcher may read the file while it is written.
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	put(path, "version: 1\n")
	src := config.Source{Path: path, Environ: environ}
	cfg, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var errs []string
		loaded, full := 0, 3 // the first three times there is no room
		done := make(chan error)
		go func() {
			done <- config.NewWatcher(src, cfg).Run(ctx, func(c *config.Config, err error) error {
				switch {
				case err != nil:
					errs = append(errs, err.Error())
				case full > 0:
					full--
					err = errors.New("no room")
				default:
					loaded++
				}
				return err
			})
		}()
		put(path, "version: 1\nserver: {token: '${file:token}'}\n")
		time.Sleep(time.Minute)
		put(token, "short")
		time.Sleep(time.Minute)
		put(token, "a token that is long enough")
		time.Sleep(time.Minute)
		cancel()
		<-done
		if len(errs) != 2 || !strings.Contains(errs[0], "no such file") || !strings.Contains(errs[1], "has 5 characters") || full != 0 || loaded != 1 {
			t.Errorf("errors %q, %d tries left, loaded %d times", errs, full, loaded)
		}
	})
}
