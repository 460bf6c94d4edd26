package jetstream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

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
