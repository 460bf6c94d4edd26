package engine

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

var (
	damageCount = flag.Int("damage.count", 12, "damages of TestADamagedFileIsNoticed")
	damageRuns  = flag.Int("damage.runs", 150, "acknowledged runs in its folder")
	damageSeed  = flag.Uint64("damage.seed", 0, "random seed of TestADamagedFileIsNoticed; 0 picks one")
)

// TestADamagedFileIsNoticed damages one file of a data folder at a time: it flips bits, truncates the
// file, or replaces it by an older copy or by a file of another folder. A database and its write-ahead
// log count as one file. Each time, the folder opens with all acknowledged runs in their states, or is
// refused, unchanged, with a remedy that works.
func TestADamagedFileIsNoticed(t *testing.T) {
	t.Parallel()
	seed := *damageSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-damage.seed=%d -damage.count=%d -damage.runs=%d", seed, *damageCount, *damageRuns)
	d := newDamageTest(t, rand.New(rand.NewPCG(seed, 0)), *damageRuns)
	outcomes := map[string]int{}
	for n := range *damageCount {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(n))
		what, kind := d.damage(t, dir)
		outcome := d.judge(t, dir, what)
		if outcome == "whole" && strings.Contains(kind, "archive") {
			// The view has the runs too. Without it, they are missing, but not without a word.
			for _, suffix := range []string{"", "-wal", "-shm", "-sum"} {
				_ = os.Remove(filepath.Join(dir, "view.db"+suffix))
			}
			outcome += "; without the view " + d.judge(t, dir, what+", and the view is gone")
		}
		outcomes[kind+": "+outcome]++
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%4d %s", outcomes[k], k)
	}
}

type damageTest struct {
	random *rand.Rand
	flow   *Workflow
	states map[string]string // of the acknowledged runs, by id

	folders []string // the folder after an orderly end, and after a kill
	older   string   // an earlier state of the folder
	other   string   // another folder
	backup  string
}

func newDamageTest(t *testing.T, random *rand.Rand, runs int) *damageTest {
	t.Helper()
	d := &damageTest{random: random, states: map[string]string{}}
	d.flow = must(NewWorkflow("w", Step("s", func(_ context.Context, n int) (string, error) {
		if n%5 == 0 {
			return "", retry.Permanent(errors.New("no"))
		}
		return strings.Repeat("x", n%300), nil
	})))
	dir, folders := filepath.Join(t.TempDir(), "data"), t.TempDir()
	d.older, d.other, d.backup = filepath.Join(folders, "older"), filepath.Join(folders, "other"), filepath.Join(folders, "backup")
	d.folders = []string{filepath.Join(folders, "killed"), filepath.Join(folders, "closed")}

	other := d.open(t, d.other, nil)
	d.fill(t, other, 0, runs, map[string]string{})
	d.close(t, other)

	e := d.open(t, dir, nil)
	d.fill(t, e, 0, runs/2, d.states)
	copyStable(t, dir, d.older)
	d.fill(t, e, runs/2, runs, d.states)
	copyStable(t, dir, d.folders[0])
	if err := e.Backup(t.Context(), d.backup); err != nil {
		t.Fatal(err)
	}
	d.close(t, e)
	copyStable(t, dir, d.folders[1])
	for _, folder := range append(d.folders, d.backup) {
		if got := d.judge(t, copyFolder(t, folder), "no damage of "+filepath.Base(folder)); got != "whole" {
			t.Fatalf("without damage: %s", got)
		}
	}
	return d
}

func (d *damageTest) open(t *testing.T, dir string, change func(*Config)) *Engine {
	t.Helper()
	cfg := d.config(dir)
	if change != nil {
		change(&cfg)
	}
	return must(Open(t.Context(), cfg))
}

func (d *damageTest) config(dir string) Config {
	return Config{Dir: dir, Workflows: []*Workflow{d.flow}, Logger: quiet(), snapshotAfter: 20_000}
}

func (d *damageTest) close(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// fill starts runs that succeed, runs that die and runs that wait, and waits until they do.
func (d *damageTest) fill(t *testing.T, e *Engine, from, to int, states map[string]string) {
	t.Helper()
	for n := from; n < to; n++ {
		options := []StartOption{Key(fmt.Sprint("key-", n))}
		if n%7 == 0 {
			options = append(options, At(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
		}
		s := started(t, e, d.flow, n, options...)
		if n%7 == 0 {
			states[s.ID] = must(e.Get(t.Context(), s.ID)).State
			continue
		}
		states[s.ID] = waited(t, s).State
	}
}

// copyStable copies a folder whose engine may be open but idle: it copies again until nothing has
// changed meanwhile.
func copyStable(t *testing.T, from, to string) {
	t.Helper()
	for {
		if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			t.Fatal(err)
		}
		if maps.Equal(contents(t, from), contents(t, to)) {
			return
		}
	}
}

func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// contents returns the contents of all files of a folder, by path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name := must(filepath.Rel(dir, path))
		files[name] = string(data)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}

// damage copies one of the folders, damages a file of the copy, and returns what it did.
func (d *damageTest) damage(t *testing.T, dir string) (what, kind string) {
	t.Helper()
	from := d.folders[d.random.IntN(len(d.folders))]
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	files := slices.Sorted(maps.Keys(contents(t, dir)))
	files = slices.DeleteFunc(files, func(name string) bool {
		return strings.HasSuffix(name, "-shm") || strings.HasSuffix(name, ".reserve") || strings.HasSuffix(name, "-wal")
	})
	purpose := func(name string) string {
		group, _, _ := strings.Cut(strings.TrimPrefix(name, "blobs/"), "-")
		return group
	}
	var name string
	switch group := d.random.IntN(10); { // the databases have most of the data, and are damaged most often
	case group < 3:
		name = "log.db"
	case group < 6:
		name = "view.db"
	case group < 8:
		name = files[d.random.IntN(len(files))]
	default:
		wanted := []string{"snapshot", "archive", "log.last"}[d.random.IntN(3)]
		for name = ""; purpose(name) != wanted; {
			name = files[d.random.IntN(len(files))]
		}
	}
	path := filepath.Join(dir, name)
	part := path // a database or its write-ahead log
	if wal, err := os.Stat(path + "-wal"); err == nil && wal.Size() > 0 && d.random.IntN(2) == 0 {
		part += "-wal"
	}
	data := must(os.ReadFile(part))
	short := strings.TrimPrefix(part, dir+"/")
	switch kind = []string{"flip", "truncate", "older", "other"}[d.random.IntN(4)]; {
	case kind == "flip" && len(data) > 0:
		for range 1 + d.random.IntN(3) {
			at := d.random.IntN(len(data))
			data[at] ^= 1 << d.random.IntN(8)
			what += fmt.Sprintf(" %d", at)
		}
		what = fmt.Sprintf("flip of %s at%s of %d", short, what, len(data))
		writeFile(t, part, data)
	case kind == "truncate" && len(data) > 0:
		size := d.random.IntN(len(data))
		what = fmt.Sprintf("%s truncated to %d of %d", short, size, len(data))
		writeFile(t, part, data[:size])
	case kind == "older":
		what = "older copy of " + name
		d.replace(t, path, filepath.Join(d.older, name))
	default:
		kind = "other"
		source := d.pickOther(t, name)
		if strings.HasPrefix(name, "blobs") && d.random.IntN(2) == 0 {
			path = filepath.Join(dir, source) // beside our blob, and not in its place
		}
		what = source + " of another folder as " + strings.TrimPrefix(path, dir+"/")
		d.replace(t, path, filepath.Join(d.other, source))
	}
	return filepath.Base(from) + ": " + what, fmt.Sprintf("%-8s of %s", kind, purpose(name))
}

// pickOther returns the name of a file of the other folder with the same purpose.
func (d *damageTest) pickOther(t *testing.T, name string) string {
	t.Helper()
	prefix, _, blob := strings.Cut(name, "-")
	if !blob {
		return name
	}
	var same []string
	for _, other := range slices.Sorted(maps.Keys(contents(t, d.other))) {
		if strings.HasPrefix(other, prefix+"-") {
			same = append(same, other)
		}
	}
	if len(same) == 0 {
		return name
	}
	return same[d.random.IntN(len(same))]
}

// replace replaces a file, and its write-ahead log. It does nothing if there is no such file.
func (d *damageTest) replace(t *testing.T, path, from string) {
	t.Helper()
	if _, err := os.Stat(from); err != nil {
		return
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(path + suffix)
		if data, err := os.ReadFile(from + suffix); err == nil && suffix != "-shm" {
			writeFile(t, path+suffix, data)
		}
	}
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// judge opens the folder and returns the outcome.
func (d *damageTest) judge(t *testing.T, dir, what string) string {
	t.Helper()
	before := contents(t, dir)
	e, err := Open(t.Context(), d.config(dir))
	if err == nil {
		defer d.close(t, e)
		missing := d.missing(t, e)
		for range 3 { // a list waits for at most a second until the view is up to date
			if missing != "" {
				missing = d.missing(t, e)
			}
		}
		switch {
		case missing == "":
			return "whole"
		case len(e.Troubles())+len(e.Warnings()) > 0:
			return "opened with a trouble"
		}
		t.Errorf("%s: opened without a word: %s", what, missing)
		return "NOT WHOLE"
	}
	if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), "restore a backup") {
		t.Errorf("%s: refused without a remedy: %v", what, err)
	}
	for name, data := range contents(t, dir) {
		if was, ok := before[name]; (!ok || !bytes.Equal([]byte(was), []byte(data))) && name != "lock" {
			t.Errorf("%s: the refused open has changed %s: %v", what, name, err)
		}
	}
	loss, ok := errors.AsType[*journal.LossError](err)
	if !ok {
		return "refused as damaged"
	}
	if !loss.Acceptable {
		return "refused as a loss that can't be accepted"
	}
	cfg := d.config(dir)
	cfg.AcceptLoss = true
	e, err = Open(t.Context(), cfg)
	if err != nil {
		t.Errorf("%s: the loss can't be accepted: %v", what, err)
		return "NOT ACCEPTED"
	}
	defer d.close(t, e)
	if len(e.Warnings()) == 0 {
		t.Errorf("%s: no warning after a loss was accepted", what)
	}
	return "refused as a loss"
}

// missing says what of the acknowledged runs is missing or wrong; "" if nothing is.
func (d *damageTest) missing(t *testing.T, e *Engine) (text string) {
	t.Helper()
	listed := map[string]string{}
	for f := (Filter{Limit: 500, Fresh: true}); ; {
		page, err := e.List(t.Context(), f)
		if err != nil {
			return err.Error()
		}
		for _, r := range page.Runs {
			listed[r.ID] = r.State
		}
		if f.After = page.Next; page.Next == "" {
			break
		}
	}
	for id, state := range d.states {
		if listed[id] != state {
			text += fmt.Sprintf("%s is listed as %q, not %s; ", id, listed[id], state)
		}
		if i, err := e.Get(t.Context(), id); err != nil || i.State != state {
			text += fmt.Sprintf("%s: %v, want %s; ", id, err, state)
		}
	}
	if n := len(listed) - len(d.states); n > 0 {
		text += fmt.Sprintf("%d foreign runs are listed", n)
	}
	if text != "" {
		text = fmt.Sprintf("%d listed of %d; ", len(listed), len(d.states)) + text
	}
	return text[:min(len(text), 300)]
}
