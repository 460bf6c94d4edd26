package sqlitelog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

// With durability OS, a power failure may lose entries that log.last names. Another boot of the machine
// shows it: the loss is recorded, and not refused. In the same boot it is refused, as with durability Full.
func TestALossByAPowerFailureIsRecorded(t *testing.T) {
	for _, test := range []struct {
		name    string
		lazy    bool
		boot    [16]byte
		refused bool
	}{
		{"os, another boot", true, [16]byte{1}, false},
		{"os, the same boot", true, bootHash(), true},
		{"full, another boot", false, [16]byte{1}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filled(t, 3, 10)
			seen, ok := readWitness(dir)
			if !ok || seen.last != 3 {
				t.Fatalf("log.last names entry %d, %v", seen.last, ok)
			}
			seen.last, seen.lazy, seen.boot = 5, test.lazy, test.boot
			var b [witnessSize]byte
			seen.encode(&b)
			if err := os.WriteFile(filepath.Join(dir, witnessName), b[:], 0o600); err != nil {
				t.Fatal(err)
			}
			if test.refused {
				if loss, ok := errors.AsType[*journal.LossError](leaseError(t, dir)); !ok || loss.From != 4 || loss.To != 5 {
					t.Errorf("lease = %v; want the loss of the entries 4 and 5", loss)
				}
				return
			}
			l := openTest(t, dir, OS)
			if list := l.Losses(); len(list) != 1 || list[0].From != 4 || list[0].To != 5 || l.Identity() == seen.log {
				t.Errorf("Losses() = %v, and the identity is %d as before", list, l.Identity())
			}
		})
	}
}

// A flipped bit in the name of a blob is damage, which is found before SQLite opens the folder.
func TestANameThatNoBlobCanHaveIsDamage(t *testing.T) {
	dir := filled(t, 3, 10)
	path := filepath.Join(dir, "log.db")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := bytes.LastIndex(data, []byte("blob")); at >= 0; at = bytes.LastIndex(data[:at], []byte("blob")) {
		if !bytes.HasPrefix(data[at:], []byte("blobs")) {
			data[at] ^= 0x80
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = inspect(dir, Config{Dir: dir, CheckEntry: func([]byte) error { return nil }})
	if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), "restore a backup") {
		t.Errorf("inspect = %v, want damage with a remedy", err)
	}
}
