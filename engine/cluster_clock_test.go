package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
)

var clockSeeds = flag.Int("clock.seeds", 3, "how often TestClocksOfMembersDiffer repeats, with other random numbers")

// machineOf is a machine whose clock is wrong, and on which members of a cluster run.
type machineOf struct {
	name   string
	booted time.Time
	skew   time.Duration
}

func (m *machineOf) join(t *testing.T, s *memlog.Store, w ...*Workflow) *member {
	t.Helper()
	log := s.Join(m.name)
	log.SetBoot(m.name, m.booted)
	return memberOf(t, log, Config{Workflows: w, wall: func(at time.Time) int64 { return at.Add(m.skew).UnixNano() }})
}

// moments has the times at which things happened, by name.
type moments struct {
	mu sync.Mutex
	at map[string][]time.Time
}

func (m *moments) note(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at[name] = append(m.at[name], time.Now())
}

// Members are killed and join again, on machines whose clocks differ by up to three minutes. No wait
// is shorter than stated, and none is longer than a takeover takes.
func TestClocksOfMembersDiffer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*clockSeeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			together(t, func(t *testing.T, s *memlog.Store) { testSkew(t, s, rand.New(rand.NewPCG(seed, 42))) })
		})
	}
}

// late is how much longer a wait may be: a takeover takes 3 seconds.
const late = 10 * time.Second

func testSkew(t *testing.T, s *memlog.Store, random *rand.Rand) {
	t.Helper()
	seen := &moments{at: map[string][]time.Time{}}
	retried := must(NewWorkflow("retried", Step("do", func(ctx context.Context, key string) (int, error) {
		if task, _ := TaskOf(ctx); task.Spent == 0 { // it may be lost, and made again
			seen.note(key + " before")
			return 0, errors.New("later")
		}
		seen.note(key + " after")
		return 0, nil
	}, Policy("fixed(40s) attempts=3"), MaxLost(100))))
	flow := func(name string, wait func(*Flow) error) *Workflow {
		return must(NewFlow(name, func(f *Flow, key string) (int, error) {
			do := func(when string) error {
				_, err := Do(f, when, func(context.Context) (int, error) { seen.note(key + " " + when); return 0, nil }, MaxLost(100))
				return err
			}
			return 0, errors.Join(do("before"), wait(f), do("after"))
		}, Function(MaxLost(100))))
	}
	slept := flow("slept", func(f *Flow) error { return Sleep(f, "wait", 40*time.Second) })
	awaited := flow("awaited", func(f *Flow) error {
		_, err := Await[int](f, "wait", Within(40*time.Second))
		if !errors.Is(err, ErrNoEvent) {
			return fmt.Errorf("await: %w", err)
		}
		return nil
	})
	machines, members := make([]*machineOf, 3), make([]*member, 3)
	for i := range machines {
		machines[i] = &machineOf{
			name: string(rune('a' + i)), booted: time.Now().Add(-time.Duration(random.Int64N(int64(time.Hour)))),
			skew: time.Duration(random.Int64N(int64(180*time.Second))) - 90*time.Second,
		}
		members[i] = machines[i].join(t, s, retried, slept, awaited)
	}
	settled(t, members...)
	begin := map[string]time.Time{}
	for i := range 60 {
		e, key := members[i%3].Engine, fmt.Sprint("key-", i)
		begin[key] = time.Now()
		switch i % 4 {
		case 0:
			started(t, e, retried, key, Key(key))
		case 1:
			started(t, e, retried, key, Key(key), In(30*time.Second))
		case 2:
			started(t, e, slept, key, Key(key))
		case 3:
			started(t, e, awaited, key, Key(key))
		}
	}
	for took := time.Duration(0); took < 2*time.Minute; {
		i, pause := random.IntN(3), time.Duration(random.Int64N(int64(8*time.Second)))
		members[i].kill()
		time.Sleep(pause)
		members[i] = machines[i].join(t, s, retried, slept, awaited)
		settled(t, members...)
		took += pause + time.Second
		time.Sleep(time.Second)
	}
	check := func(key, what string, got, want time.Duration) {
		t.Helper()
		if got < want || got > want+late {
			t.Errorf("%s: %s after %v, want %v", key, what, got, want)
		}
	}
	for i := range 60 {
		key := fmt.Sprint("key-", i)
		before, after := seen.at[key+" before"], seen.at[key+" after"]
		if len(before) == 0 || len(after) == 0 {
			t.Errorf("%s: %d attempts before its wait, %d after it", key, len(before), len(after))
			continue
		}
		if i%4 == 1 {
			check(key, "began", before[0].Sub(begin[key]), 30*time.Second)
		}
		check(key, "continued", after[0].Sub(before[len(before)-1]), 40*time.Second)
	}
	for _, m := range members {
		if list := m.Troubles(); len(list) > 0 {
			t.Errorf("troubles: %+v", list)
		}
	}
}

// A process that has never seen the previous owner can't know its clock, and says so until the waits
// that this concerns are over.
func TestTheClockOfThePreviousOwnerIsNotKnown(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(context.Context, int) (int, error) { return 0, nil })
		a := (&machineOf{"a", time.Now().Add(-time.Hour), 0}).join(t, s, w)
		settled(t, a)
		started(t, a.Engine, w, 1, In(time.Minute))
		a.kill()
		time.Sleep(5 * time.Second)
		b := (&machineOf{"b", time.Now().Add(-time.Hour), time.Second}).join(t, s, w)
		settled(t, b)
		list := b.Troubles()
		if len(list) != 1 || !list[0].Works || !strings.Contains(list[0].What, "does not know the clock of its previous owner") {
			t.Errorf("troubles: %+v", list)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if list := b.Troubles(); len(list) != 0 {
			t.Errorf("troubles after the last wait: %+v", list)
		}
	})
}
