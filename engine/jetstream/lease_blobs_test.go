package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
)

// large is a text that needs several chunks.
var large = strings.Repeat("0123456789abcdef", 5*chunkSize/2/16)

func TestABlobIsReadAtRandomPlaces(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName()}
	l := mustLease(t, openTest(t, cfg), 0)
	putBlob(t, l, "a", large)
	release(t, l)
	l = mustLease(t, openTest(t, cfg), 0) // it has no local copy
	r, err := l.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	at := r.(io.ReaderAt)
	for _, offset := range []int{len(large) - 10, 0, chunkSize - 5} {
		got := make([]byte, 10)
		if _, err := at.ReadAt(got, int64(offset)); err != nil || string(got) != large[offset:offset+10] {
			t.Errorf("ReadAt(%d) = %q, %v", offset, got, err)
		}
	}
	if err := l.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != large {
		t.Errorf("after it was deleted %d bytes are read, %v; want %d", len(got), err, len(large))
	}
}

func TestNATSItselfReadsWhatIsStored(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	js := admin(t, nodes)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL()})
	l := mustLease(t, log, 0)
	putBlob(t, l, "snapshot-1", large)
	putBlob(t, l, "empty", "")
	store, err := js.ObjectStore(t.Context(), log.backend.names.blobs())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := store.GetBytes(t.Context(), "0/snapshot-1"); err != nil || string(got) != large {
		t.Errorf("NATS reads %d bytes, %v; want %d", len(got), err, len(large))
	}
	if got, err := store.GetBytes(t.Context(), "0/empty"); err != nil || len(got) != 0 {
		t.Errorf("NATS reads %d bytes, %v; want none", len(got), err)
	}
	kv, err := js.KeyValue(t.Context(), log.backend.names.bucket())
	if err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(t.Context(), shardKey(0)); err != nil || !bytes.Contains(e.Value(), []byte(log.Member())) {
		t.Errorf("NATS reads the owner %v, %v; want %s", e, err, log.Member())
	}
	// A blob that NATS's own tools have deleted is gone for us too.
	if err := store.Delete(t.Context(), "0/empty"); err != nil {
		t.Fatal(err)
	}
	_, err = l.Get(t.Context(), "empty")
	wantErr(t, "Get", err, journal.ErrNoBlob)
	if blobs, err := l.Blobs(t.Context()); err != nil || len(blobs) != 1 {
		t.Errorf("Blobs() = %v, %v; want one", blobs, err)
	}
}

// damages are functions that damage a blob in the object store.
var damages = map[string]func(ctx context.Context, js natsjs.JetStream, l *lease, info *natsjs.ObjectInfo) error{
	"its parts are gone": func(ctx context.Context, _ natsjs.JetStream, l *lease, info *natsjs.ObjectInfo) error {
		return l.blobs.objects.purge(ctx, l.own.backend.names.chunkSubject(info.NUID), 0)
	},
	"a part is gone": func(ctx context.Context, js natsjs.JetStream, l *lease, info *natsjs.ObjectInfo) error {
		s, err := js.Stream(ctx, l.own.backend.names.blobStream())
		if err != nil {
			return err
		}
		m, err := l.blobs.objects.get(ctx, getRequest{Seq: 1, Next: l.own.backend.names.chunkSubject(info.NUID)})
		if err != nil {
			return err
		}
		return s.DeleteMsg(ctx, m.Seq)
	},
	"a part is another one": func(ctx context.Context, js natsjs.JetStream, l *lease, info *natsjs.ObjectInfo) error {
		subject := l.own.backend.names.chunkSubject(info.NUID)
		if err := l.blobs.objects.purge(ctx, subject, 0); err != nil {
			return err
		}
		_, err := js.Publish(ctx, subject, bytes.Repeat([]byte("x"), int(info.Size)/4))
		for range 3 {
			_, again := js.Publish(ctx, subject, bytes.Repeat([]byte("x"), int(info.Size)/4))
			err = errors.Join(err, again)
		}
		return err
	},
	"it is not listed any more": func(ctx context.Context, _ natsjs.JetStream, l *lease, info *natsjs.ObjectInfo) error {
		return l.blobs.objects.purge(ctx, l.blobs.objects.metaSubject(l.own.shard, "a"), 0)
	},
	"its description is damaged": func(ctx context.Context, js natsjs.JetStream, l *lease, _ *natsjs.ObjectInfo) error {
		subject := l.blobs.objects.metaSubject(l.own.shard, "a")
		_, err := js.Publish(ctx, subject, []byte("{"))
		return err
	},
}

func TestADamagedBlobIsNoticedAndReadFromTheSecondPlace(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	js := admin(t, nodes)
	place := t.TempDir()
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: len(damages)}
	with, without := cfg, cfg
	with.SecondPlace = place
	shard := 0
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			l := mustLease(t, openTest(t, with), shard)
			shard++
			putBlob(t, l, "a", large)
			putBlob(t, l, "b", "other")
			info, err := l.blobs.objects.find(t.Context(), l.own.shard, "a")
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(t.Context(), js, l, info); err != nil {
				t.Fatal(err)
			}
			release(t, l)
			l = mustLease(t, openTest(t, without), l.own.shard)
			_, err = l.Get(t.Context(), "a")
			if !errors.Is(err, journal.ErrDamaged) && !errors.Is(err, journal.ErrNoBlob) {
				t.Errorf("Get without a second place = %v; want %v", err, journal.ErrDamaged)
			}
			wantBlob(t, l, "b", "other")
			if blobs, err := l.Blobs(t.Context()); err != nil || len(blobs) == 0 {
				t.Errorf("Blobs() = %v, %v; want the good one at least", blobs, err)
			}
			release(t, l)
			l = mustLease(t, openTest(t, with), l.own.shard)
			wantBlob(t, l, "a", large)
			wantNames(t, l, "a", "b")
			putBlob(t, l, "a", "new")
			wantBlob(t, l, "a", "new")
			if err := l.Delete(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			wantNames(t, l, "b")
		})
	}
}

func wantNames(t *testing.T, l journal.Lease, want ...string) {
	t.Helper()
	blobs, err := l.Blobs(t.Context())
	var names []string
	for _, b := range blobs {
		names = append(names, b.Name)
	}
	if err != nil || fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("Blobs() = %q, %v; want %q", names, err, want)
	}
}

func TestTheSecondPlaceHasAllAndOnlyWhatIsThere(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	place := t.TempDir()
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 2}
	l := mustLease(t, openTest(t, cfg), 1)
	putBlob(t, l, "before", "there was no second place")
	release(t, l)
	cfg.SecondPlace = place
	log := openTest(t, cfg)
	l = mustLease(t, log, 1)
	putBlob(t, l, "a", "one")
	putBlob(t, l, "a", "two")
	putBlob(t, l, "b", "")
	dir := filepath.Join(place, cfg.Name, "1")
	wantFiles(t, dir, "a", "b", "before")
	if err := l.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, "b", "before")
	wantNames(t, l, "b", "before")

	var got bytes.Buffer
	if err := l.blobs.objects.second.get(1, "before", &got); err != nil || got.String() != "there was no second place" {
		t.Errorf("the second place has %q, %v", got.String(), err)
	}
	path := filepath.Join(dir, "before")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "get of a damaged copy", l.blobs.objects.second.get(1, "before", io.Discard), journal.ErrDamaged)
	wantBlob(t, l, "before", "there was no second place") // NATS has a good one
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("%s has %q, %v; want %q", dir, names, err, want)
	}
}

func TestASecondPlaceThatFailsHoldsUpNothingAndIsCaughtUp(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	place := filepath.Join(t.TempDir(), "mounted")
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL(), SecondPlace: place})
	l := mustLease(t, log, 0)
	putBlob(t, l, "a", "one")
	if err := os.Rename(place, place+"-away"); err != nil {
		t.Fatal(err)
	}
	putBlob(t, l, "b", "two")
	wantBlob(t, l, "b", "two")
	if found := check(t, log); !has(found, journal.Broken, "second place can't be written") {
		t.Errorf("Check() = %v", &foundError{found})
	}
	if _, err := os.Stat(place); err == nil {
		t.Error("the folder was made: a disk that is mounted later would hide what is in it")
	}
	if err := os.Rename(place+"-away", place); err != nil {
		t.Fatal(err)
	}
	if found := check(t, log); !has(found, journal.Broken, "last copy to the second place failed") {
		t.Errorf("Check() = %v", &foundError{found})
	}
	putBlob(t, l, "c", "three")
	wantFiles(t, filepath.Join(place, log.backend.cfg.Name, "0"), "a", "b", "c")
	if found := check(t, log); has(found, journal.Broken, "second place") {
		t.Errorf("Check() = %v; want nothing about the second place", &foundError{found})
	}
}

func TestAnObjectStoreThatIsGoneIsReadFromTheSecondPlace(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	js := admin(t, nodes)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL(), SecondPlace: t.TempDir()})
	l := mustLease(t, log, 0)
	putBlob(t, l, "a", large)
	if err := js.DeleteStream(t.Context(), log.backend.names.blobStream()); err != nil {
		t.Fatal(err)
	}
	wantNames(t, l, "a")
	wantBlob(t, l, "a", large)
}

func TestWhatAnOwnerHasNotFinishedIsRemovedByTheNext(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL()})
	log.objects.sweepAge = 0
	l := mustLease(t, log, 0)
	putBlob(t, l, "kept", large)
	f, err := l.blobs.objects.cache.create()
	if err != nil {
		t.Fatal(err)
	}
	defer f.abandon()
	u := newUpload(l.blobs.objects, 0, l.own.epoch, "unfinished", f)
	if err := u.send(t.Context(), strings.NewReader(large)); err != nil {
		t.Fatal(err)
	}
	release(t, l)
	next := mustLease(t, log, 0)
	natstest.Wait(t, func(ctx context.Context) error {
		subjects, err := next.blobs.objects.subjects(ctx, log.backend.names.chunkSubject(">"))
		if err == nil && len(subjects) != 1 {
			err = fmt.Errorf("the parts of %d blobs are there", len(subjects))
		}
		return err
	})
	if err := u.finish(t.Context(), 0, "unfinished"); !errors.Is(err, errConflict) {
		t.Errorf("finish after the parts were removed = %v; want %v", err, errConflict)
	}
	wantNames(t, next, "kept")
	wantBlob(t, next, "kept", large)
}

func TestCopiesInTheCacheAreCheckedAndRemoved(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Cache: t.TempDir()}
	log := openTest(t, cfg)
	l := mustLease(t, log, 0)
	putBlob(t, l, "a", large)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(cfg.Cache, "0-*"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("the cache has %q, %v; want one copy", paths, err)
	}
	if err := os.WriteFile(paths[0], []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	log = openTest(t, cfg)
	l = mustLease(t, log, 0)
	wantBlob(t, l, "a", large)
	if err := l.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(paths[0], []byte("of a blob that another owner has deleted"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantNames(t, l)
	wantFiles(t, cfg.Cache)
	temporary := openTest(t, Config{Replicas: 1, URL: nodes.URL(), Name: cfg.Name})
	dir := temporary.objects.cache.dir
	if err := temporary.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary cache is there after Close: %v", err)
	}
}
