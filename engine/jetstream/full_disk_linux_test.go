package jetstream

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

// A NATS server whose disk is full switches JetStream off. When there is room again, it stays so until
// it is restarted or reloads its configuration; the check says that.
func TestAServerWhoseDiskWasFullIsFound(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3)
	disk := nodes.Store(0)
	nodes.Kill(0)
	if err := errors.Join(os.RemoveAll(disk), os.Mkdir(disk, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=32m"); err != nil {
		t.Skipf("a small disk can't be mounted: %v", err)
	}
	t.Cleanup(func() {
		nodes.Kill(0)
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	nodes.Restart(0)
	nodes.WaitReady()
	log := openTest(t, Config{
		URL: nodes.NodeURL(1) + "," + nodes.NodeURL(2), Shards: 2, SecondPlace: t.TempDir(),
		SystemUser: natstest.SystemUser, SystemPassword: natstest.SystemPassword,
	})
	found := func() []journal.Finding {
		list, err := log.Check(t.Context())
		if err != nil {
			t.Log(err)
		}
		return list
	}
	isOff := func() bool {
		list := found()
		return len(list) == 1 && has(list, journal.Weak, "server n0 has switched JetStream off") && strings.Contains(list[0].Do, "nats-server --signal reload")
	}
	testwait.Until(t, "all servers are well", func() bool { return len(found()) == 0 })
	l := mustLease(t, log, 0)
	var last uint64
	add := func() {
		natstest.Wait(t, func(ctx context.Context) error {
			seq, err := l.Append(ctx, last, journal.ID{1, byte(last)}, make([]byte, 50_000))
			last = max(last, seq)
			return err
		})
	}
	filler := filepath.Join(disk, "filler")
	fillDisk(t, filler)
	testwait.Until(t, "the server has switched JetStream off", func() bool { add(); return isOff() })
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if add(); !isOff() {
			t.Errorf("with room again, the check finds %v", &foundError{found()})
		}
	}
	nodes.Reload(0)
	testwait.Until(t, "the server has caught up", func() bool { return len(found()) == 0 })
}

// fillDisk writes a file until the disk is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
}
