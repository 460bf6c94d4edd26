package view

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/engine/internal/codec"
)

// Preview is how many bytes of Input and Output a list shows.
const Preview = 256

// Run is what is known of a run. Times are kept to the microsecond.
type Run struct {
	ID         string // cheapest if it is a ULID in lower case with the millisecond of Created
	Workflow   string
	Key        string // idempotency key; may be empty
	State      string
	Created    time.Time // must not change: the first one decides the place in lists
	Updated    time.Time
	Ended      time.Time // zero: not yet
	Next       time.Time // when the next thing is due; zero: nothing is
	Attempts   int       // in all steps
	Step       string    // that is running, waiting or failed
	Error      string    // the last one, "" if there is none
	Reason     string    // why it stopped
	Input      []byte
	Output     []byte
	Detail     []byte // of steps and history; only Get returns it
	ReplacedBy string // the run that replays this one
}

// Batch is what is written in one transaction: first the runs to put, in order,
// then the ids to delete.
type Batch struct {
	Cursor uint64 // sequence of the log up to which the view is complete then
	Put    []Run
	Delete []string
}

// preview returns the beginning of a payload that lists have, cut between two characters.
func preview(p []byte) []byte {
	if len(p) <= Preview {
		return p
	}
	for n := Preview; n > Preview-utf8.UTFMax; n-- {
		if utf8.RuneStart(p[n]) {
			return p[:n]
		}
	}
	return p[:Preview]
}

// A row keeps what no query looks into as one blob, because every column and
// every bound value costs. Payloads that would make rows long, and lists slow,
// are kept in a table of their own and leave their previews in the row.

// inline is the size up to which payloads stay in the row: with it a row fits
// into a page.
const inline = 2048

const spilled = 1

var errBody = errors.New("a row can't be decoded")

// spills reports whether the payloads of a run get a row of their own.
func spills(r *Run) bool { return len(r.Input)+len(r.Output)+len(r.Detail) > inline }

// appendBody encodes what a row has beside its columns. A change of its layout needs a new
// version in schema.go.
func appendBody(b []byte, place int64, r *Run) []byte {
	b = appendTimes(b, place, r)
	for _, s := range [...]string{r.Key, r.Step, r.Error, r.Reason, r.ReplacedBy} {
		b = codec.AppendBytes(b, s)
	}
	if spills(r) {
		return appendBlobs(append(b, spilled), preview(r.Input), preview(r.Output), nil)
	}
	return appendBlobs(append(b, 0), r.Input, r.Output, r.Detail)
}

// timesSize is the room that the times of a run have from the start, so that
// most rows keep their length, and their page, until the run has ended. Rows
// that grow split pages that were full: that cost 50 bytes and 2 µs a run.
const timesSize = 12

// appendTimes encodes the times with the number of bytes they take.
func appendTimes(b []byte, place int64, r *Run) []byte {
	start := len(b)
	created := r.Created.UnixMicro()
	b = binary.AppendVarint(append(b, 0), created-milliAt(place)*1000)
	b = appendTime(b, created, r.Updated)
	for _, t := range [...]time.Time{r.Ended, r.Next} {
		b = appendTime(b, base(created, r.Updated), t)
	}
	for len(b) < start+1+timesSize {
		b = append(b, 0)
	}
	b[start] = byte(len(b) - start - 1)
	return b
}

// base is what the end and the wait are measured from: they are closer to the
// last change than to the beginning.
func base(created int64, updated time.Time) int64 {
	if updated.IsZero() {
		return created
	}
	return updated.UnixMicro()
}

// appendTime encodes a time as its distance from a base, and none as one byte.
func appendTime(b []byte, base int64, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return binary.AppendVarint(append(b, 1), t.UnixMicro()-base)
}

func appendBlobs(b []byte, blobs ...[]byte) []byte {
	for _, p := range blobs {
		b = codec.AppendBytes(b, p)
	}
	return b
}

// sameText reports whether what is searched for is the same.
func sameText(a, b *Run) bool {
	return a.Key == b.Key && a.Workflow == b.Workflow && a.Error == b.Error && bytes.Equal(a.Input, b.Input)
}

// readTime reads what appendTime wrote.
func readTime(d *codec.Reader, base int64) time.Time {
	if d.Byte() == 0 {
		return time.Time{}
	}
	return time.UnixMicro(base + d.Varint()).UTC()
}

// readBlobs reads what appendBlobs wrote. The run keeps parts of the data.
func readBlobs(d *codec.Reader, r *Run) {
	for _, p := range [...]*[]byte{&r.Input, &r.Output, &r.Detail} {
		if *p = d.Bytes(); len(*p) == 0 {
			*p = nil
		}
	}
}

// decodeBody fills in a run, and reports whether its payloads are elsewhere. The
// run keeps parts of b.
func decodeBody(place int64, b []byte, r *Run) (elsewhere bool, err error) {
	d := codec.Reader{Data: b}
	times := codec.Reader{Data: d.Bytes()}
	created := milliAt(place)*1000 + times.Varint()
	r.Created = time.UnixMicro(created).UTC()
	r.Updated = readTime(&times, created)
	r.Ended, r.Next = readTime(&times, base(created, r.Updated)), readTime(&times, base(created, r.Updated))
	for _, s := range [...]*string{&r.Key, &r.Step, &r.Error, &r.Reason, &r.ReplacedBy} {
		*s = string(d.Bytes())
	}
	elsewhere = d.Byte() == spilled
	readBlobs(&d, r)
	if d.Err != nil || times.Err != nil || len(d.Data) > 0 {
		return false, errBody
	}
	return elsewhere, nil
}

func decodeBlobs(b []byte, r *Run) error {
	d := codec.Reader{Data: b}
	readBlobs(&d, r)
	if d.Err != nil || len(d.Data) > 0 {
		return errBody
	}
	return nil
}
