package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
)

var chaosSeeds = flag.Int("cluster.seeds", 2, "clusters that are made to suffer")

// storm is a cluster with random failures, in virtual time.
type storm struct {
	t     *testing.T
	store *memlog.Store
	cfg   func(*Workflow) Config                         // of the next process
	begun func(ctx context.Context, n int) time.Duration // is called for each attempt, and returns how long it takes

	mu      sync.Mutex
	random  *rand.Rand
	members []*member
	calm    bool
}

const stormAttempts = 4

func newStorm(t *testing.T, seed int) storm {
	return storm{t: t, store: &memlog.Store{Shards: 5}, random: rand.New(rand.NewPCG(uint64(seed), 1))}
}

// rage causes failures for a while, and returns when they have ended and all processes work again.
func (s *storm) rage(people ...func()) {
	for range 3 {
		s.join()
	}
	settled(s.t, s.members...)
	var all sync.WaitGroup
	for _, p := range people {
		all.Go(p)
	}
	for range 15 {
		time.Sleep(time.Duration(s.draw(3000)) * time.Millisecond)
		s.harm()
	}
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	all.Wait()
	time.Sleep(2 * time.Minute)
	settled(s.t, s.members...)
}

func (s *storm) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// any returns a random process, and whether the failures have ended.
func (s *storm) any() (m *member, calm bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[s.random.IntN(len(s.members))], s.calm
}

// join adds a process.
func (s *storm) join() {
	w := must(NewWorkflow("one", OnEnd(newEnds().told), Step("do", func(ctx context.Context, n int) (int, error) {
		select {
		case <-time.After(s.begun(ctx, n)):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if task, _ := TaskOf(ctx); task.Spent+1 < n%6 { // some need more attempts than there are
			return 0, errors.New("flaky")
		}
		return n, nil
	}, Policy(fmt.Sprintf("fixed(700ms) attempts=%d", stormAttempts)), MaxLost(1000))))
	m := joined(s.t, s.store, "p", s.cfg(w))
	m.log.Disturb(s.disturb)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
}

// leave removes a process from the cluster.
func (s *storm) leave(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = slices.Delete(slices.Clone(s.members), i, i+1)
}

// disturb makes one of twenty operations fail in some way.
func (s *storm) disturb(op memlog.Operation) (f memlog.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calm || s.random.IntN(20) > 0 {
		return f
	}
	f.Delay = time.Duration(s.random.IntN(1000)) * time.Millisecond
	switch s.random.IntN(4) {
	case 0:
		f.Before = fmt.Errorf("%s: not sent", op.Name)
	case 1:
		f.After = fmt.Errorf("%s: answer lost", op.Name)
	case 2:
		f.After = fmt.Errorf("%s: on its way", op.Name)
		f.Late = time.Duration(s.random.IntN(3000)) * time.Millisecond
	}
	return f
}

// harm kills, freezes, disconnects or closes a process, or adds one.
func (s *storm) harm() {
	i := s.draw(len(s.members))
	m := s.members[i]
	long := time.Duration(s.draw(12000)) * time.Millisecond
	switch s.draw(5) {
	case 0:
		m.kill()
		s.leave(i)
		s.join()
	case 1:
		m.log.Freeze()
		time.AfterFunc(long, m.log.Thaw)
	case 2:
		m.log.Cut()
		time.AfterFunc(long, m.log.Heal)
	case 3:
		m.log.Cut()
		time.AfterFunc(200*time.Millisecond, m.log.Heal)
	case 4:
		if len(s.members) <= 4 {
			s.join()
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.draw(3000))*time.Millisecond)
		defer cancel()
		_ = m.Close(ctx)
		s.leave(i)
	}
}
