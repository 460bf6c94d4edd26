package jetstream

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
)

// entryHeader is the header with the epoch and the checksum of an entry:
// "<epoch> <crc32c>". The id of the entry is the id of the message.
const entryHeader = "Tideover-Entry"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of all fields of an entry, its sequence included.
func checksum(e journal.Entry) uint32 {
	var head [32]byte
	binary.BigEndian.PutUint64(head[:], e.Seq)
	binary.BigEndian.PutUint64(head[8:], e.Epoch)
	copy(head[16:], e.ID[:])
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, e.Data)
}

// encode returns the message for an entry. The server stores it only directly after the
// entry with the sequence before.
func encode(subject string, e journal.Entry) *nats.Msg {
	return &nats.Msg{
		Subject: subject,
		Header: nats.Header{
			natsjs.MsgIDHeader:           {hex.EncodeToString(e.ID[:])},
			natsjs.ExpectedLastSeqHeader: {strconv.FormatUint(e.Seq-1, 10)},
			entryHeader:                  {fmt.Sprintf("%d %08x", e.Epoch, checksum(e))},
		},
		Data: e.Data,
	}
}

// decode returns the entry of a message, or ErrDamaged.
func decode(m message) (journal.Entry, error) {
	e := journal.Entry{Seq: m.Seq, Data: m.Data}
	sum, err := readHeader(m.header, &e)
	if err == nil && sum != checksum(e) {
		err = errors.New("its checksum is wrong")
	}
	if err != nil {
		return e, fmt.Errorf("%w: entry %d: %w; restore the stream from a backup", journal.ErrDamaged, m.Seq, err)
	}
	return e, nil
}

// readHeader sets the epoch and the id of the entry from the headers of its message, and
// returns the checksum in them.
func readHeader(h nats.Header, e *journal.Entry) (sum uint32, err error) {
	epoch, text, ok := strings.Cut(h.Get(entryHeader), " ")
	if !ok {
		return 0, errors.New("it was not written by tideover")
	}
	if e.Epoch, err = strconv.ParseUint(epoch, 10, 64); err != nil {
		return 0, err
	}
	id, err := hex.DecodeString(h.Get(natsjs.MsgIDHeader))
	if err != nil || len(id) != len(e.ID) {
		return 0, errors.New("its id can't be read")
	}
	copy(e.ID[:], id)
	crc, err := strconv.ParseUint(text, 16, 32)
	return uint32(crc), err
}
