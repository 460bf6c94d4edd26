package jetstream

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/engine/jetstream/natstest"
)

// TestWritersOfABucket uses package contend with a key-value bucket: ten writers add one
// to the same number at the same time.
func TestWritersOfABucket(t *testing.T) {
	t.Parallel()
	nc, err := nats.Connect(natstest.SharedNode(t).URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: newName(), Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	first, err := bucket.Put(t.Context(), "number", []byte("0"))
	if err != nil || first != 1 {
		t.Fatal(first, err)
	}

	writer := contend.Must("contention attempts=unlimited", contend.WithConflicts(func(err error) bool {
		return errors.Is(err, jetstream.ErrKeyExists) // the client's error for a wrong last sequence
	}))
	add := func(ctx context.Context, _ contend.Try) error {
		e, err := bucket.Get(ctx, "number")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(e.Value()))
		if err != nil {
			return err
		}
		_, err = bucket.Update(ctx, "number", []byte(strconv.Itoa(n+1)), e.Revision())
		return err
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := writer.Do(t.Context(), add); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if e, err := bucket.Get(t.Context(), "number"); err != nil || string(e.Value()) != "10" {
		t.Errorf("the number is %q, %v; want 10", e.Value(), err)
	}
}
