package jetstream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

// bucket is the key-value bucket of the cluster: its settings, its members and the
// owners of shards. NATS's own tools can read it.
type bucket struct {
	stream
	name string
}

func newBucket(c *conn, n names) bucket { return bucket{stream{c, n.bucketStream()}, n.bucket()} }

// record is a value in the bucket. Each write of a key has a revision of its own.
type record struct {
	key      string
	value    []byte
	revision uint64
}

// Headers of NATS's key-value buckets.
const (
	operationHeader = "KV-Operation"
	operationPurge  = "PURGE"

	// markerTime is how long the bucket keeps the mark of a removed key: longer than
	// replicas and readers may be behind.
	markerTime = "60s"
)

func (b bucket) subject(key string) string { return "$KV." + b.name + "." + key }

// get returns a record, or errNoMessage if the key has no value; then the record
// still has the revision that put needs.
func (b bucket) get(ctx context.Context, key string) (record, error) {
	m, err := b.stream.get(ctx, getRequest{Last: b.subject(key)})
	if err == nil && m.header.Get(operationHeader) != "" {
		err = fmt.Errorf("%w: key %s was removed", errNoMessage, key)
	}
	return record{key, m.Data, m.Seq}, err
}

// put replaces the value that has the given revision; 0 means that the key has no value.
// If the key has another revision, put fails with errConflict. If the answer of the
// server is lost, put fails although the value may have been stored.
func (b bucket) put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	m := b.message(key, revision)
	m.Data = value
	ack, err := b.publish(ctx, m)
	if err != nil {
		return 0, fmt.Errorf("put key %s: %w", key, err)
	}
	return ack.Sequence, nil
}

// putJSON is put with the JSON of a value.
func (b bucket) putJSON(ctx context.Context, key string, value any, revision uint64) (uint64, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return 0, err
	}
	return b.put(ctx, key, text, revision)
}

// putIfAbsent stores the value, unless the key has a value already, and returns the value
// that the key has then. An empty value is not stored. If the answer of the server is
// lost, the caller repeats the call, which then finds the value.
func (b bucket) putIfAbsent(ctx context.Context, key, value string) (string, error) {
	found, err := b.get(ctx, key)
	if err == nil {
		return string(found.value), nil
	}
	if !errors.Is(err, errNoMessage) {
		return "", err
	}
	if value == "" {
		return "", nil
	}
	_, err = b.put(ctx, key, []byte(value), found.revision)
	if errors.Is(err, errConflict) {
		return "", errInProcess // another member has just stored a value: the next attempt reads it
	}
	return value, err
}

// getJSON decodes the JSON of a value, and returns its revision. If the key has no value, it returns
// errNoMessage and the revision that put needs.
func (b bucket) getJSON(ctx context.Context, key string, value any) (revision uint64, err error) {
	r, err := b.get(ctx, key)
	if err != nil {
		return r.revision, err
	}
	if err := json.Unmarshal(r.value, value); err != nil {
		return 0, fmt.Errorf("%w: key %s of bucket %s: %w", journal.ErrDamaged, key, b.name, err)
	}
	return r.revision, nil
}

// settings returns the settings of the cluster and their revision.
func (b bucket) settings(ctx context.Context) (s settings, revision uint64, err error) {
	revision, err = b.getJSON(ctx, settingsKey, &s)
	return s, revision, err
}

func (b bucket) message(key string, revision uint64) *nats.Msg {
	return &nats.Msg{Subject: b.subject(key), Header: nats.Header{
		natsjs.ExpectedLastSubjSeqHeader: {strconv.FormatUint(revision, 10)},
	}}
}

// remove removes the value with the revision, or fails with errConflict.
func (b bucket) remove(ctx context.Context, key string, revision uint64) error {
	m := b.message(key, revision)
	m.Header.Set(operationHeader, operationPurge)
	m.Header.Set(natsjs.MsgRollup, natsjs.MsgRollupSubject)
	m.Header.Set(natsjs.MsgTTLHeader, markerTime)
	_, err := b.publish(ctx, m)
	return disk.Wrapf(err, "remove key %s", key)
}

// all returns the records of all members and shards, the settings, and the revision
// of the bucket. Any replica answers, so the result may be older than an earlier one. A
// server sends at most 1024 records.
func (b bucket) all(ctx context.Context) (records []record, revision uint64, err error) {
	keys := []string{b.subject("member.*"), b.subject("shard.*"), b.subject(settingsKey)}
	revision, err = b.batch(ctx, getRequest{MultiLast: keys}, func(m message) error {
		if m.header.Get(operationHeader) == "" {
			records = append(records, record{strings.TrimPrefix(m.Subject, b.subject("")), m.Data, m.Seq})
		}
		return nil
	})
	switch {
	case errors.Is(err, errNoMessage):
		return nil, 0, nil // the replica has no records yet
	case err != nil:
		return nil, 0, fmt.Errorf("read bucket %s: %w", b.name, b.deleted(err))
	}
	return records, revision, nil
}

// names is the name of a cluster. Its methods return the names of the cluster's streams
// and subjects.
type names string

func (n names) logStream(shard int) string     { return fmt.Sprintf("%s-log-%d", n, shard) }
func (n names) logSubject(shard int) string    { return fmt.Sprintf("%s.log.%d", n, shard) }
func (n names) bucket() string                 { return string(n) + "-cluster" }
func (n names) bucketStream() string           { return "KV_" + n.bucket() }
func (n names) blobs() string                  { return string(n) + "-blobs" }
func (n names) blobStream() string             { return "OBJ_" + n.blobs() }
func (n names) shardSubject(shard int) string  { return fmt.Sprintf("%s.shard.%d", n, shard) }
func (n names) memberSubject(id string) string { return string(n) + ".member." + id }

// The subjects of an object's chunks and of its description.
func (n names) chunkSubject(object string) string { return "$O." + n.blobs() + ".C." + object }
func (n names) metaSubject(object string) string  { return "$O." + n.blobs() + ".M." + object }

// noticeSubject is the subject on which a member announces changes of the bucket.
func (n names) noticeSubject() string { return string(n) + ".notice" }

// The keys of the bucket.
const settingsKey = "settings"

func memberKey(id string) string { return "member." + id }
func shardKey(shard int) string  { return fmt.Sprintf("shard.%d", shard) }

// settledKey returns the key of the bucket for a name of [Log.Settle]. It encodes the name,
// because a name may start or end with a dot and a key may not.
func settledKey(name string) string {
	return "settled." + base64.RawURLEncoding.EncodeToString([]byte(name))
}

// parseKey returns the member id in the key of a member, or the shard number in the key
// of a shard. For other keys it returns "" and -1.
func parseKey(key string) (member string, shard int) {
	if id, ok := strings.CutPrefix(key, "member."); ok {
		return id, -1
	}
	if text, ok := strings.CutPrefix(key, "shard."); ok {
		if n, err := strconv.Atoi(text); err == nil {
			return "", n
		}
	}
	return "", -1
}
