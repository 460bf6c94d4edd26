package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
)

// admin returns a connection with which a test changes streams, as an operator would.
func admin(t *testing.T, nodes *natstest.Cluster) natsjs.JetStream {
	t.Helper()
	js, err := natsjs.New(rawConn(t, nodes.URL()), natsjs.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestAStreamThatIsDeletedIsNeverMadeAgain(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	js := admin(t, nodes)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 2}
	log := openTest(t, cfg)
	l, untouched := mustLease(t, log, 0), mustLease(t, log, 1)
	appendEntries(t, l, 1, 5)
	name := l.stream.name
	if err := js.DeleteStream(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	says := []string{"stream " + name + " was deleted", "restore it from a backup"}
	wantErr(t, "Append", tryAppend(t.Context(), l, 6), journal.ErrDamaged, says...)
	_, _, err := l.Bounds(t.Context())
	wantErr(t, "Bounds", err, journal.ErrDamaged, says...)
	release(t, l)
	_, err = log.Lease(t.Context(), 0)
	wantErr(t, "Lease", err, journal.ErrDamaged, says...)
	again := openTest(t, cfg)
	_, err = again.Lease(t.Context(), 0)
	wantErr(t, "Lease after opening again", err, journal.ErrDamaged, says...)
	if _, err := js.Stream(t.Context(), name); err == nil {
		t.Error("the stream was made again")
	}
	status, err := log.Status(t.Context())
	if err != nil || status.Shards[0].Error == "" || status.Shards[1].Error != "" {
		t.Errorf("Status() = %+v, %v; want an error for shard 0", status, err)
	}
	appendEntries(t, untouched, 1, 3)
}

func TestAStreamThatIsReplacedIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	js := admin(t, nodes)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL(), Shards: 3})
	for shard, keepIdentity := range []bool{false, true} {
		l := mustLease(t, log, shard)
		appendEntries(t, l, 1, 5)
		info, err := l.stream.info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := js.DeleteStream(t.Context(), l.stream.name); err != nil {
			t.Fatal(err)
		}
		if !keepIdentity {
			info.Config.Metadata = nil
		}
		if _, err := js.CreateStream(t.Context(), info.Config); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Append", tryAppend(t.Context(), l, 6), journal.ErrDamaged, l.stream.name, "restore")
		_, _, err = l.Bounds(t.Context())
		wantErr(t, "Bounds", err, journal.ErrDamaged, l.stream.name)
		release(t, l)
		_, err = log.Lease(t.Context(), shard)
		wantErr(t, "Lease", err, journal.ErrDamaged, l.stream.name)
	}
}

func TestAStreamThatIsReplacedWhileNobodyOwnsItIsNoticed(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	js := admin(t, nodes)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 2}
	log, other := openTest(t, cfg), openTest(t, cfg)
	for shard := range 2 {
		l := mustLease(t, log, shard)
		appendEntries(t, l, 1, 5)
		if shard == 1 {
			putBlob(t, l, "snapshot", "text")
			appendEntries(t, l, 6, 8)
		}
	}
	id := log.Member()
	log.kill() // so that it does not store the end of its log in the bucket
	expel(t, other, id, other.backend.timing.gone)
	for shard := range 2 {
		s := stream{other.backend.c, other.backend.names.logStream(shard)}
		info, err := s.info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := js.DeleteStream(t.Context(), s.name); err != nil {
			t.Fatal(err)
		}
		if shard == 0 {
			info.Config.Metadata = nil // as if created by hand; otherwise from a copy of the configuration
		}
		if _, err := js.CreateStream(t.Context(), info.Config); err != nil {
			t.Fatal(err)
		}
		natstest.Wait(t, func(ctx context.Context) error { // until the killed member is expelled
			_, err := other.Lease(ctx, shard)
			if !errors.Is(err, journal.ErrDamaged) {
				return fmt.Errorf("Lease(%d) = %w; want %w", shard, err, journal.ErrDamaged)
			}
			return nil
		})
	}
}

// An owner that accepts a loss records it, and the next one does not need to accept it again.
func TestALossIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	js := admin(t, nodes)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 1}
	log := openTest(t, cfg)
	l := mustLease(t, log, 0)
	appendEntries(t, l, 1, 5)
	name := l.stream.name
	release(t, l)
	info, err := stream{log.backend.c, name}.info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), info.Config); err != nil { // as restored from a backup of the empty stream
		t.Fatal(err)
	}
	_, err = log.Lease(t.Context(), 0)
	wantErr(t, "Lease", err, journal.ErrDamaged, "1 to 5", "--accept-loss")

	accepting := cfg
	accepting.AcceptLoss = true
	l = mustLease(t, openTest(t, accepting), 0)
	wantLoss := func(l *lease) {
		t.Helper()
		if list := l.Losses(); len(list) != 1 || list[0].From != 1 || list[0].To != 5 || list[0].Why != journal.WhyAccepted || list[0].At.IsZero() {
			t.Errorf("Losses() = %+v", list)
		}
	}
	wantLoss(l)
	appendEntries(t, l, 1, 3)
	release(t, l)
	l = mustLease(t, log, 0)
	wantLoss(l)
	wantLog(t, l, 1, 3)
}

func TestEpochsGrowWhenTheBucketHasForgottenThem(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL()})
	var l *lease
	for range 3 {
		l = mustLease(t, log, 0)
		_, last, err := l.Bounds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		appendEntries(t, l, last+1, last+1)
		release(t, l)
	}
	r, err := log.backend.bucket.get(t.Context(), shardKey(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.backend.bucket.remove(t.Context(), shardKey(0), r.revision); err != nil {
		t.Fatal(err)
	}
	if next := mustLease(t, log, 0); next.Epoch() <= l.Epoch() {
		t.Errorf("epoch %d after %d", next.Epoch(), l.Epoch())
	}
}

func TestABucketThatIsDeletedIsNeverMadeAgain(t *testing.T) {
	nodes := natstest.SharedNode(t)
	js := admin(t, nodes)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 1}
	log := openTest(t, cfg)
	l := mustLease(t, log, 0)
	appendEntries(t, l, 1, 2)
	if err := js.DeleteStream(t.Context(), log.backend.names.bucketStream()); err != nil {
		t.Fatal(err)
	}
	awaitSilent(t, log, l, log.backend.timing.ended)
	_, err := Open(t.Context(), cfg)
	wantErr(t, "Open", err, journal.ErrDamaged, log.backend.names.bucketStream()+" was deleted", "restore")
	found, err := Check(t.Context(), cfg)
	if err != nil || !has(found, journal.Broken, log.backend.names.bucketStream()+" was deleted") {
		t.Errorf("Check() = %v, %v", &foundError{found}, err)
	}
}

func TestAnObjectStoreThatIsDeletedIsNeverMadeAgain(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	js := admin(t, nodes)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 1}
	log := openTest(t, cfg)
	l := mustLease(t, log, 0)
	putBlob(t, l, "a", "text")
	if err := js.DeleteStream(t.Context(), log.backend.names.blobStream()); err != nil {
		t.Fatal(err)
	}
	says := log.backend.names.blobStream() + " was deleted"
	_, err := l.Blobs(t.Context())
	wantErr(t, "Blobs", err, journal.ErrDamaged, says)
	_, err = l.Get(t.Context(), "a")
	wantErr(t, "Get", err, journal.ErrDamaged, says)
	appendEntries(t, l, 1, 2)
	openTest(t, cfg) // the log still works
}

func TestAnEntryThatIsMissingIsNoticed(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	js := admin(t, nodes)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL()})
	l := mustLease(t, log, 0)
	appendEntries(t, l, 1, 5)
	s, err := js.Stream(t.Context(), l.stream.name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(t.Context(), 3); err == nil {
		t.Fatal("an entry can be deleted by hand")
	}
	// A rollup of the whole stream would remove entries, if the stream allowed it.
	m := encode(l.subject, journal.Entry{Seq: 6})
	m.Header.Set(natsjs.MsgRollup, natsjs.MsgRollupAll)
	if _, err := js.PublishMsg(t.Context(), m); err == nil {
		t.Fatal("all entries can be replaced by hand")
	}
	wantLog(t, l, 1, 5)
}

func TestAFullStream(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL(), MaxBytes: MinBytes})
	l := mustLease(t, log, 0)
	data := bytes.Repeat([]byte("x"), 200_000)
	var last uint64
	var err error
	for range 20 {
		if err = appendData(t.Context(), l, last+1, data); err != nil {
			break
		}
		last++
	}
	wantErr(t, "Append to a full stream", err, journal.ErrFull, "raise its limit: nats stream edit "+l.stream.name+" --max-bytes")
	if last < 2 {
		t.Fatalf("it is full after %d entries", last)
	}
	for range 3 {
		err = appendData(t.Context(), l, last+1, data)
		wantErr(t, "a repeated Append", err, journal.ErrFull)
	}
	if _, end, err := l.Bounds(t.Context()); err != nil || end != last {
		t.Errorf("the last entry is %d, %v; want %d", end, err, last)
	}
	found, err := log.Check(t.Context())
	if err != nil || !has(found, journal.Weak, "bytes are used") {
		t.Errorf("Check() = %+v, %v; want that it is nearly full", found, err)
	}
	if err := l.Truncate(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := appendData(t.Context(), l, last+1, data); err != nil {
		t.Errorf("Append when there is room again = %v", err)
	}
}

func TestAnotherNumberOfShardsIsRefused(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 3}
	openTest(t, cfg)
	cfg.Shards = 4
	_, err := Open(t.Context(), cfg)
	wantErr(t, "Open with another number of shards", err, nil, "shards: ", "has 3, not 4")
	cfg.Shards = 0
	log, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if log.Shards() != 3 {
		t.Errorf("Shards() = %d; want 3", log.Shards())
	}
}

func TestANewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 1}
	log := openTest(t, cfg)
	r, err := log.backend.bucket.get(t.Context(), settingsKey)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Replace(r.value, []byte(`"version":1`), []byte(`"version":2`), 1)
	if _, err := log.backend.bucket.put(t.Context(), settingsKey, text, r.revision); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), cfg)
	wantErr(t, "Open of a newer format", err, journal.ErrNewer, "version 2")
}

func TestManyOpenANewClusterAtOnce(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 5}
	opened := make(chan *Log)
	for range 4 {
		go func() {
			log, err := Open(t.Context(), cfg)
			if err != nil {
				t.Error(err)
			}
			opened <- log
		}()
	}
	ids := map[string]bool{}
	for range 4 {
		if log := <-opened; log != nil {
			ids[log.backend.settings.ID] = true
			defer log.Close()
		}
	}
	if len(ids) != 1 {
		t.Errorf("%d clusters came of it", len(ids))
	}
}
