package engine

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/engine/internal/faultdisk"
	"github.com/tideover/tideover/internal/testwait"
)

var (
	faultRounds = flag.Int("faults.rounds", 15, "rounds of TestSyncFailuresAndPowerCuts: in each a sync fails and the power is cut")
	faultSeed   = flag.Uint64("faults.seed", 0, "of its randomness; 0 means any")
)

// power says whether the simulated machine has power. Without power, handlers and callers do nothing.
type power struct {
	mu  sync.RWMutex
	off bool
}

// do runs f if there is power.
func (p *power) do(f func()) (on bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.off {
		f()
	}
	return !p.off
}

// powerTest runs the workflow of the crash test on a simulated disk.
type powerTest struct {
	t      *testing.T
	dir    string
	random *rand.Rand
	power  *power         // of this round
	next   atomic.Int64   // key of the next run
	acked  map[int]string // under mu
	mu     sync.Mutex
	failed int // syncs
	cuts   int
}

// In each round a sync fails at a random point, in one of two ways, and soon afterwards
// the power is cut. At the end nothing that was acknowledged may be missing, no attempt
// may have been made twice under one number, and no wait may be shorter than recorded.
// It uses the checks of the crash test, which do not use the engine's data.
func TestSyncFailuresAndPowerCuts(t *testing.T) {
	t.Parallel()
	seed := *faultSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-faults.seed=%d -faults.rounds=%d", seed, *faultRounds)
	random := rand.New(rand.NewPCG(seed, 0))
	failed := 0
	for rounds := *faultRounds; rounds > 0; rounds -= roundsOfALog {
		p := &powerTest{t: t, dir: t.TempDir(), random: random, acked: map[int]string{}}
		for range min(rounds, roundsOfALog) {
			p.round()
		}
		p.drain()
		judge(t, p.dir, p.acked, int(p.next.Load()))
		failed += p.failed
	}
	t.Logf("%d power cuts, %d syncs failed", *faultRounds, failed)
}

// roundsOfALog is after how many power cuts a new log is begun: with more, reading it takes most
// of the time.
const roundsOfALog = 50

// data is the folder of the engine. After each power cut it is another one, because to
// the engine it is another process that opens it.
func (p *powerTest) data() string { return filepath.Join(p.dir, fmt.Sprintf("data-%d", p.cuts)) }

// open opens the engine. It returns nil if a sync fails meanwhile.
func (p *powerTest) open() (*Engine, *crashDriver) {
	file := must(os.OpenFile(filepath.Join(p.dir, "witness"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	p.t.Cleanup(func() { _ = file.Close() })
	var e *Engine
	opened := make(chan struct{})
	ended := func(key, step string) int {
		<-opened
		ids, err := e.Find(context.Background(), key, 2)
		if err != nil || len(ids) == 0 {
			return 0
		}
		i, err := e.Get(context.Background(), ids[0])
		if err != nil {
			return 0
		}
		for _, s := range i.Steps {
			if s.Name == step {
				return s.Spent
			}
		}
		return 0
	}
	seen := &witness{file, p.power}
	w := newCrashWorkflows(seen, ended, func(string, string) {})
	e, err := Open(context.Background(), Config{
		Dir: p.data(), Workflows: w.all(), Concurrency: 32, snapshotAfter: 30_000,
		Logger: slog.New(slog.NewTextHandler(p.t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	})
	close(opened)
	if err != nil {
		p.t.Logf("open: %v", err)
		return nil, nil
	}
	return e, newCrashDriver(seen, w)
}

// round runs the engine until a sync has failed, and cuts the power.
func (p *powerTest) round() {
	p.power = new(power)
	var syncs atomic.Int64
	failAt, failures, cutAfter := 1+int64(p.random.IntN(60)), 1+int64(p.random.IntN(3)), int64(p.random.IntN(8))
	disk := must(faultdisk.New(p.data(), faultdisk.Config{
		Seed: p.random.Uint64(), Drop: p.random.IntN(2) == 0,
		FailSync: func(string) bool { n := syncs.Add(1); return n >= failAt && n < failAt+failures },
	}))
	defer disk.Close()
	e, d := p.open()
	ctx, cancel := context.WithCancel(testwait.Context(p.t))
	defer cancel()
	var starters sync.WaitGroup // and drivers
	if e != nil {
		var stopped atomic.Bool // the engine is: too little of the write-ahead log was left
		for range 3 {
			starters.Go(func() {
				if errors.Is(p.start(ctx, e, d, &starters), ErrClosed) {
					stopped.Store(true)
				}
			})
		}
		testwait.Until(p.t, "a sync has failed, and others have followed", func() bool {
			return syncs.Load() >= failAt+failures+cutAfter || stopped.Load()
		})
	}
	p.power.mu.Lock()
	p.power.off = true
	contents := disk.Cut()
	before := p.data()
	p.cuts++
	err := errors.Join(linkBlobs(before, p.data()), faultdisk.Write(p.data(), contents))
	p.power.mu.Unlock()
	failed := disk.Failed()
	p.failed += failed
	cancel()
	starters.Wait()
	if e != nil {
		_ = e.Close(ctx)
	}
	if err := errors.Join(err, os.RemoveAll(before)); err != nil {
		p.t.Fatal(err)
	}
}

// start starts runs until the power is cut or the engine has stopped.
func (p *powerTest) start(ctx context.Context, e *Engine, d *crashDriver, drivers *sync.WaitGroup) (err error) {
	for ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		i := int(p.next.Add(1) - 1)
		var run Started
		run, err = d.flows.start(ctx, e, i)
		if err == nil && isFamily(i) {
			drivers.Go(func() { d.drive(ctx, e, i) })
		}
		p.power.do(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil {
				p.t.Logf("start %s: %v", crashKey(i), err)
				return
			}
			p.acked[i] = run.ID
		})
	}
	return err
}

// linkBlobs links the blobs of a folder to another one. They survive a power failure, because a blob
// is synced before it gets its name.
func linkBlobs(from, to string) error {
	if err := os.MkdirAll(filepath.Join(to, "blobs"), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(from, "blobs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		linked := os.Link(filepath.Join(from, "blobs", e.Name()), filepath.Join(to, "blobs", e.Name()))
		if !errors.Is(linked, fs.ErrNotExist) { // it is being renamed
			err = errors.Join(err, linked)
		}
	}
	return err
}

// drain repeats the starts that were not acknowledged, and records how every run ended.
func (p *powerTest) drain() {
	p.power = new(power)
	e, d := p.open()
	if e == nil {
		p.t.Fatal("the engine does not open after the last power cut")
	}
	ctx := testwait.Context(p.t)
	out := must(os.Create(filepath.Join(p.dir, "result")))
	defer out.Close()
	enc := json.NewEncoder(out)
	var drivers sync.WaitGroup
	for i := range int(p.next.Load()) {
		run, err := d.flows.start(ctx, e, i)
		if err != nil {
			p.t.Fatal(err)
		}
		if isFamily(i) {
			drivers.Go(func() { d.drive(ctx, e, i) })
		}
		if p.acked[i] == "" {
			p.acked[i] = run.ID
		}
	}
	for i := range int(p.next.Load()) {
		if err := d.flows.encode(ctx, e, enc, i); err != nil {
			p.t.Fatal(err)
		}
	}
	drivers.Wait()
	testwait.Until(p.t, "the end of all runs is reported", func() bool { return len(openRuns(must(e.Stats(ctx)), "told")) == 0 })
	if err := errors.Join(d.flows.countMembers(ctx, e), e.Close(ctx)); err != nil {
		p.t.Fatal(err)
	}
}

// If a sync fails while a log is created, the folder has no log or a complete one: the next start
// works.
func TestSyncFailuresWhileALogIsCreated(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	quietly := slog.New(slog.DiscardHandler)
	const failures = 2
	for failAt := int64(7); failAt <= 9; failAt++ { // syncs of the new log
		for seed := range uint64(12) {
			dir := filepath.Join(folder, fmt.Sprint(failAt, "-", seed))
			var syncs atomic.Int64
			disk := must(faultdisk.New(dir, faultdisk.Config{
				Seed: seed, Drop: true,
				FailSync: func(string) bool { n := syncs.Add(1); return n > failAt && n <= failAt+failures },
			}))
			e, created := Open(t.Context(), Config{Dir: dir, Logger: quietly})
			contents := disk.Cut()
			if e != nil {
				now, cancel := context.WithCancel(t.Context())
				cancel()
				_ = e.Close(now) // the power is off
			}
			disk.Close()
			after := dir + "-after"
			if err := errors.Join(linkBlobs(dir, after), faultdisk.Write(after, contents)); err != nil {
				t.Fatal(err)
			}
			e, err := Open(t.Context(), Config{Dir: after, Logger: quietly})
			if err != nil {
				t.Errorf("seed %d, %d syncs failed after %d, and it was created with the error %v: %v", seed, failures, failAt, created, err)
				continue
			}
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}
