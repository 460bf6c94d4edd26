package jetstream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
)

// objects is the object store of a cluster. Its format is that of NATS, so that
// NATS's own tools can read it. It does not use NATS's client library for object stores,
// because that reads from a consumer, trusts a replica that is behind, stores an object
// whose parts got lost, and leaves a mark for each deleted object.
type objects struct {
	stream
	names  names
	cache  *cache
	second *secondCopy // nil means none

	sweepAge time.Duration // chunks of unfinished uploads are removed when they are older
}

func openObjects(c *conn, n names, cfg Config, second *secondCopy) (*objects, error) {
	cache, err := openCache(cfg.Cache)
	if err != nil {
		return nil, err
	}
	return &objects{stream{c, n.blobStream()}, n, cache, second, 10 * time.Minute}, nil
}

// objectName returns the name that a blob of a shard has in the store.
func objectName(shard int, blob string) string { return fmt.Sprintf("%d/%s", shard, blob) }

func (o *objects) metaSubject(shard int, blob string) string {
	return o.names.metaSubject(base64.URLEncoding.EncodeToString([]byte(objectName(shard, blob))))
}

// blobOf is the inverse of the method metaSubject: it returns the shard and the name of
// the blob in a subject.
func (o *objects) blobOf(subject string) (shard int, blob string, ok bool) {
	text, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(subject, o.names.metaSubject("")))
	if err != nil {
		return 0, "", false
	}
	number, blob, ok := strings.Cut(string(text), "/")
	shard, err = strconv.Atoi(number)
	return shard, blob, ok && err == nil
}

// writerOf returns the object id in the subject of a chunk, and the shard and epoch of
// the writer, which the id contains.
func (o *objects) writerOf(subject string) (id string, shard int, epoch uint64, ok bool) {
	id = strings.TrimPrefix(subject, o.names.chunkSubject(""))
	_, err := fmt.Sscanf(id, "%d-%d-", &shard, &epoch)
	return id, shard, epoch, err == nil
}

// errDescription means that the description of a blob is damaged, not its contents.
var errDescription = errors.New("its description can't be read")

// find returns the description of a blob, or ErrNoBlob.
func (o *objects) find(ctx context.Context, shard int, blob string) (*natsjs.ObjectInfo, error) {
	m, err := o.get(ctx, getRequest{Last: o.metaSubject(shard, blob)})
	if errors.Is(err, errNoMessage) {
		return nil, fmt.Errorf("%w: %s", journal.ErrNoBlob, blob)
	}
	if err != nil {
		return nil, o.deleted(err)
	}
	info := new(natsjs.ObjectInfo)
	if err := json.Unmarshal(m.Data, info); err != nil {
		return nil, fmt.Errorf("%w: blob %s: %w: %w", journal.ErrDamaged, blob, errDescription, err)
	}
	if info.Deleted { // NATS's own tools mark a deleted object in this way
		return nil, fmt.Errorf("%w: %s", journal.ErrNoBlob, blob)
	}
	info.ModTime = m.Time
	return info, nil
}

// list returns the descriptions of all blobs of a shard.
func (o *objects) list(ctx context.Context, shard int) (list []*natsjs.ObjectInfo, err error) {
	subjects, err := o.subjects(ctx, o.names.metaSubject(">"))
	if err != nil {
		return nil, o.deleted(err)
	}
	var names []string
	for _, s := range subjects {
		if n, blob, ok := o.blobOf(s); ok && n == shard {
			names = append(names, blob)
		}
	}
	infos, errs := make([]*natsjs.ObjectInfo, len(names)), make([]error, len(names))
	inParallel(len(names), func(i int) { infos[i], errs[i] = o.find(ctx, shard, names[i]) })
	for i, err := range errs {
		switch {
		case err == nil:
			list = append(list, infos[i])
		case errors.Is(err, errDescription):
			// List the damaged blob too: Get returns the error.
			list = append(list, &natsjs.ObjectInfo{ObjectMeta: natsjs.ObjectMeta{Name: objectName(shard, names[i])}})
		case !errors.Is(err, journal.ErrNoBlob): // otherwise it was deleted meanwhile
			return nil, err
		}
	}
	return list, nil
}

// download copies the chunks of an object to w. It fails with ErrDamaged if a chunk is
// missing or has changed.
func (o *objects) download(ctx context.Context, info *natsjs.ObjectInfo, w io.Writer) error {
	sum, next := sha256.New(), uint64(1)
	for size := uint64(0); size < info.Size; {
		chunks, err := o.chunks(ctx, info, next)
		if err != nil {
			return err
		}
		for _, c := range chunks {
			size += uint64(len(c.Data))
			next = c.Seq + 1
			_, _ = sum.Write(c.Data) // never fails
			if _, err := w.Write(c.Data); err != nil {
				return err
			}
		}
	}
	if got := natsjs.GetObjectDigestValue(sum); got != info.Digest {
		return fmt.Errorf("%w: blob %s has the digest %s, not %s", journal.ErrDamaged, info.Name, got, info.Digest)
	}
	return nil
}

// chunks returns the next chunks of an object from the sequence on, at least one.
func (o *objects) chunks(ctx context.Context, info *natsjs.ObjectInfo, from uint64) (list []message, err error) {
	subject := o.names.chunkSubject(info.NUID)
	request := getRequest{Seq: from, Next: subject, Batch: 16, MaxBytes: 8 << 20}
	for a := range asks.Attempts(ctx, &err) {
		list = list[:0]
		_, err = o.batch(a.Context(), request, func(m message) error {
			list = append(list, m)
			return nil
		})
		if len(list) > 0 {
			return list, nil
		}
		if !errors.Is(err, errNoMessage) {
			continue
		}
		// The replica that answered may be behind, so ask the leader.
		var m message
		if m, err = o.get(a.Context(), getRequest{Seq: from, Next: subject}); err == nil {
			list = append(list, m)
		}
	}
	if errors.Is(err, errNoMessage) {
		return nil, fmt.Errorf("%w: blob %s lacks a part", journal.ErrDamaged, info.Name)
	}
	return list, err
}

// removeChunks removes the chunks of an object.
func (o *objects) removeChunks(ctx context.Context, id string) error {
	return o.purgeAll(ctx, o.names.chunkSubject(id))
}

func (o *objects) purgeAll(ctx context.Context, subject string) error {
	return asks.Do(ctx, func(ctx context.Context) error { return o.purge(ctx, subject, 0) })
}

// remove removes a blob. If info is nil, its chunks stay until the next owner removes
// them.
func (o *objects) remove(ctx context.Context, shard int, info *natsjs.ObjectInfo, blob string) error {
	if err := o.purgeAll(ctx, o.metaSubject(shard, blob)); err != nil || info == nil {
		return err
	}
	return o.removeChunks(ctx, info.NUID)
}

// sweep removes the chunks of a shard that owners with an earlier epoch have not made a
// blob.
func (o *objects) sweep(ctx context.Context, shard int, epoch uint64) error {
	subjects, err := o.subjects(ctx, o.names.chunkSubject(">"))
	if err != nil {
		return err
	}
	infos, err := o.list(ctx, shard)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, info := range infos {
		used[info.NUID] = true
	}
	for _, s := range subjects {
		id, of, written, ok := o.writerOf(s)
		if !ok || of != shard || written >= epoch || used[id] {
			continue
		}
		if err := o.purgeOld(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// purgeOld removes the chunks of a subject, unless they are so new that a member may
// still be uploading them.
func (o *objects) purgeOld(ctx context.Context, subject string) error {
	last, err := o.get(ctx, getRequest{Last: subject})
	if errors.Is(err, errNoMessage) || err == nil && time.Since(last.Time) < o.sweepAge {
		return nil
	}
	if err != nil {
		return err
	}
	return o.purge(ctx, subject, 0)
}

// chunkSize is how much of a blob is in one message. It is more than NATS's own tools
// use, because the servers sync each message to disk.
const chunkSize = 512 << 10

// upload is an object that is being stored.
type upload struct {
	objects *objects
	info    natsjs.ObjectInfo
	last    uint64 // sequence of the last chunk
}

// newUpload returns the upload of a local file that is to become a blob. The id of its
// chunks contains the shard and the epoch of the writer, so that the next owner can remove
// the chunks of an upload that was not finished.
func newUpload(o *objects, shard int, epoch uint64, blob string, f *localFile) *upload {
	return &upload{objects: o, info: natsjs.ObjectInfo{
		ObjectMeta: natsjs.ObjectMeta{
			Name: objectName(shard, blob),
			Opts: &natsjs.ObjectMetaOptions{ChunkSize: chunkSize},
		},
		Bucket: o.names.blobs(), NUID: fmt.Sprintf("%d-%d-%s", shard, epoch, rand.Text()), Size: uint64(f.size), Digest: f.digest,
	}}
}

// send stores the chunks. They are not visible before finish.
func (u *upload) send(ctx context.Context, r io.Reader) error {
	chunk := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(r, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if n == 0 {
			return nil
		}
		if err := u.sendChunk(ctx, chunk[:n]); err != nil {
			return err
		}
	}
}

// sendChunk stores the next chunk. It repeats the request after an error; the message id
// prevents that the chunk is stored twice.
func (u *upload) sendChunk(ctx context.Context, chunk []byte) (err error) {
	m := &nats.Msg{
		Subject: u.objects.names.chunkSubject(u.info.NUID),
		Header:  nats.Header{natsjs.MsgIDHeader: {fmt.Sprintf("%s-%d", u.info.NUID, u.info.Chunks)}},
		Data:    chunk,
	}
	for a := range asks.Attempts(ctx, &err) {
		var ack *natsjs.PubAck
		if ack, err = u.objects.publish(a.Context(), m); err == nil {
			u.last = ack.Sequence
		}
	}
	u.info.Chunks++
	return err
}

// abandon tries for a short time to remove the chunks. If it fails, the next owner
// removes them.
func (u *upload) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
	defer cancel()
	_ = u.objects.removeChunks(ctx, u.info.NUID)
}

// finish stores the description of the uploaded object, which makes it the blob with this
// name and replaces an earlier blob. It fails with errConflict if the chunks were
// removed.
func (u *upload) finish(ctx context.Context, shard int, blob string) (err error) {
	text, err := json.Marshal(u.info)
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: u.objects.metaSubject(shard, blob), Data: text, Header: nats.Header{
		natsjs.MsgIDHeader: {u.info.NUID},
		natsjs.MsgRollup:   {natsjs.MsgRollupSubject},
	}}
	if u.last > 0 {
		m.Header.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.FormatUint(u.last, 10))
		m.Header.Set(natsjs.ExpectedLastSubjSeqSubjHeader, u.objects.names.chunkSubject(u.info.NUID))
	}
	for a := range asks.Attempts(ctx, &err) {
		_, err = u.objects.publish(a.Context(), m)
	}
	return err
}
