package engine

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/engine/move"
)

func TestClusterHandoverIsToldAsOne(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := one(t, func(ctx context.Context, n int) (int, error) {
			select {
			case <-time.After(time.Minute):
				return n, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		})
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		var runs []Started
		for range 32 {
			runs = append(runs, started(t, a.Engine, w, 1))
		}
		time.Sleep(time.Second)
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		moved := 0
		for _, r := range runs {
			first := must(a.Get(t.Context(), r.ID)).Steps[0].Attempts[0]
			if first.Outcome == "" || first.Outcome == "running" {
				continue
			}
			moved++
			if first.Outcome != "released" || !strings.Contains(first.Error, "goes on in another process") {
				t.Errorf("an attempt of a shard that moved: %s, %q", first.Outcome, first.Error)
			}
		}
		if moved == 0 {
			t.Error("no run has moved")
		}
	})
}

func TestClusterThatWasMovedAwayIsRefused(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("w", nothing()))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		_ = a.Close(t.Context())
		if _, err := move.Move(t.Context(), s.Join("mover"), new(memlog.Store).Open(), move.Options{To: "elsewhere"}); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), Config{Log: s.Join("b"), Workflows: []*Workflow{w}})
		if moved, ok := errors.AsType[*move.MovedError](err); !ok || moved.To != "elsewhere" {
			t.Errorf("Open = %v; want that everything was moved elsewhere", err)
		}
	})
}

func TestClusterBackupThatFailsLeavesNothing(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("w", nothing()))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		settled(t, a)
		a.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "peek" && op.Shard == 5 {
				f.Before = journal.ErrDamaged
			}
			return f
		})
		dir := t.TempDir()
		err := a.Backup(t.Context(), dir)
		if list, _ := os.ReadDir(dir); err == nil || len(list) > 0 {
			t.Errorf("Backup = %v, and %v is left", err, list)
		}
		a.log.Disturb(nil)
	})
}

func TestClusterTroublesOfAShardThatIsOpened(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("w", nothing()))
		a := s.Join("a")
		a.Disturb(func(op memlog.Operation) (f memlog.Fault) {
			if op.Name == "append" && op.Shard == 2 {
				f.Before = errors.New("the stream is full")
			}
			return f
		})
		e := must(Open(t.Context(), Config{Log: a, Workflows: []*Workflow{w}, Logger: quiet()}))
		defer e.Close(gone())
		time.Sleep(10 * time.Second)
		list := e.Troubles()
		if len(list) != 1 || list[0].What != "shard 2 can't store what happens" || !strings.Contains(list[0].Error, "full") {
			t.Errorf("Troubles() = %+v; want the shard that can't be opened", list)
		}
	})
}

// lostLog is a log that a test can make fail for good.
type lostLog struct {
	journal.Cluster
	ended chan struct{}
	err   error // valid when ended is closed
}

func (l *lostLog) Ended() <-chan struct{} { return l.ended }

func (l *lostLog) Err() error {
	select {
	case <-l.ended:
		return l.err
	default:
		return nil
	}
}

func TestClusterWhoseLogIsOfNoUseEndsTheEngine(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		told := make(chan struct{}, 1)
		w := one(t, func(ctx context.Context, n int) (int, error) {
			<-ctx.Done()
			told <- struct{}{}
			return 0, context.Cause(ctx)
		})
		log := &lostLog{Cluster: s.Join("a"), ended: make(chan struct{}), err: errors.New("made anew")}
		e := must(Open(t.Context(), Config{Log: log, Workflows: []*Workflow{w}, Logger: quiet()}))
		time.Sleep(time.Second)
		run := started(t, e, w, 1)
		time.Sleep(time.Second)
		if err := e.Err(); err != nil {
			t.Fatalf("Err() = %v before the log is of no use", err)
		}
		close(log.ended)
		select {
		case <-e.Done():
		case <-time.After(time.Hour):
			t.Fatal("the engine goes on")
		}
		<-told
		if err := e.Err(); !errors.Is(err, log.err) {
			t.Errorf("Err() = %v; want %v", err, log.err)
		}
		if err := e.Close(t.Context()); !errors.Is(err, log.err) {
			t.Errorf("Close() = %v; want %v", err, log.err)
		}
		if _, err := e.Get(t.Context(), run.ID); !errors.Is(err, ErrClosed) {
			t.Errorf("Get() = %v; want %v", err, ErrClosed)
		}
	})
}
