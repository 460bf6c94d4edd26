package sqlitelog

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

var killRounds = flag.Int("kill.rounds", 3, "how often the writer is killed")

// killData is what the writer that is killed appends, of very different sizes.
func killData(seq uint64) []byte {
	sum := sha256.Sum256(fmt.Append(nil, seq))
	return bytes.Repeat(sum[:], 1+int(sum[0])*int(sum[1])/64)
}

// writeForEver appends, and truncates now and then, until it is killed. It
// prints each sequence when its append has returned.
func writeForEver(dir string) error {
	ctx := context.Background()
	log, err := Open(ctx, Config{Dir: dir})
	if err != nil {
		return err
	}
	l, err := log.Lease(ctx, 0)
	if err != nil {
		return err
	}
	first, last, err := l.Bounds(ctx)
	for err == nil {
		last, err = l.Append(ctx, last, testID(last+1), killData(last+1))
		if err == nil {
			fmt.Fprintf(os.Stdout, "%d %x\n", last, testID(last))
		}
		if err == nil && last > first+300 {
			err = l.Truncate(ctx, first+200)
			first += 200
		}
	}
	return err
}

func TestAcknowledgedEntriesSurviveKill(t *testing.T) {
	dir := t.TempDir()
	for range *killRounds {
		acknowledged := runAndKill(t, dir, 1+rand.IntN(120))
		l := openTest(t, dir, Full)
		first, last, err := l.Bounds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if last < acknowledged {
			t.Fatalf("the last entry is %d, but %d was acknowledged", last, acknowledged)
		}
		next := first
		for _, e := range collect(t, l) {
			if e.Seq != next || e.ID != testID(next) || !bytes.Equal(e.Data, killData(next)) {
				t.Fatalf("entry %d where %d is next, or its contents differ", e.Seq, next)
			}
			next++
		}
		if next != last+1 {
			t.Fatalf("reading ends at %d; want %d", next-1, last)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// runAndKill kills a writer at some moment after it has acknowledged n entries
// and returns the last one that it has.
func runAndKill(t *testing.T, dir string, n int) (acknowledged uint64) {
	t.Helper()
	cmd := childCommand(t, "writer", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var killer *time.Timer
	for lines := bufio.NewScanner(out); lines.Scan(); n-- {
		var id []byte
		if _, err := fmt.Sscanf(lines.Text(), "%d %x", &acknowledged, &id); err != nil {
			break // the last line may be cut off
		}
		if journal.ID(id) != testID(acknowledged) {
			t.Errorf("entry %d is acknowledged with id %x", acknowledged, id)
		}
		if n == 0 {
			// real clock: any moment will do
			killer = time.AfterFunc(time.Duration(rand.IntN(2000))*time.Microsecond, func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	if killer == nil {
		t.Fatalf("the writer ended by itself: %v", cmd.ProcessState)
	}
	return acknowledged
}
