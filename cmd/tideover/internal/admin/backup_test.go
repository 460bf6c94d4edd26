package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/internal/console/control"
)

func TestWhoseMistakeABackupIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"a folder that may not be made", &fs.PathError{Op: "mkdir", Path: "/backups", Err: syscall.EACCES}, true},
		{"one that may not be written to", &fs.PathError{Op: "mkdir", Path: "/backups/one/blobs", Err: syscall.EACCES}, true},
		{"a disk that may only be read", &fs.PathError{Op: "mkdir", Path: "/backups/one", Err: syscall.EROFS}, true},
		{"a full disk", &fs.PathError{Op: "write", Path: "/backups/one/log.db.tmp", Err: syscall.ENOSPC}, false},
		{"a file of ours that can't be read", &fs.PathError{Op: "open", Path: "/data/blobs/x", Err: syscall.EACCES}, false},
		{"something else", errors.New("disk I/O error"), false},
	} {
		if got := atTarget(fmt.Errorf("backup: %w", c.err), "/backups/one"); got != c.want {
			t.Errorf("%s: atTarget = %v, want %v", c.name, got, c.want)
		}
	}
}

func TestALostShardIsNamedInTheProblem(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("backup: %w", &move.LostShardError{Shard: 3, Err: errors.New("the stream was deleted")})
	p, ok := errors.AsType[*control.Error](backupProblem(err, "/copy"))
	if !ok || p.Status != 500 || p.Message != "backup: the stream was deleted" || !strings.Contains(p.Hint, "--without-shard 3") {
		t.Errorf("backupProblem = %+v; want a hint that names the shard", p)
	}
}
