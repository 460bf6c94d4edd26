package view

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"
)

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

// appendBody encodes what a row has beside its columns.
func appendBody(b []byte, place int64, r *Run) []byte {
	b = appendTimes(b, place, r)
	for _, s := range [...]string{r.Key, r.Step, r.Error, r.Reason, r.ReplacedBy} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
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
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

// sameText reports whether what is searched for is the same.
func sameText(a, b *Run) bool {
	return a.Key == b.Key && a.Workflow == b.Workflow && a.Error == b.Error && bytes.Equal(a.Input, b.Input)
}

// body reads an encoded blob. It stops at the first mistake.
type body struct {
	b   []byte
	bad bool
}

func (d *body) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *body) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *body) time(base int64) time.Time {
	if d.byte() == 0 {
		return time.Time{}
	}
	return time.UnixMicro(base + d.varint()).UTC()
}

// bytes returns a part of the encoded blob.
func (d *body) bytes() []byte {
	size, n := binary.Uvarint(d.b)
	if n <= 0 || size > uint64(len(d.b)-n) {
		d.bad, d.b = true, nil
		return nil
	}
	p := d.b[n : n+int(size) : n+int(size)]
	d.b = d.b[n+int(size):]
	if size == 0 {
		return nil
	}
	return p
}

// decodeBody fills in a run, and reports whether its payloads are elsewhere. The
// run keeps parts of b.
func decodeBody(place int64, b []byte, r *Run) (elsewhere bool, err error) {
	d := body{b: b}
	times := body{b: d.bytes()}
	created := milliAt(place)*1000 + times.varint()
	r.Created = time.UnixMicro(created).UTC()
	r.Updated = times.time(created)
	r.Ended, r.Next = times.time(base(created, r.Updated)), times.time(base(created, r.Updated))
	for _, s := range [...]*string{&r.Key, &r.Step, &r.Error, &r.Reason, &r.ReplacedBy} {
		*s = string(d.bytes())
	}
	elsewhere = d.byte() == spilled
	r.Input, r.Output, r.Detail = d.bytes(), d.bytes(), d.bytes()
	if d.bad || times.bad || len(d.b) > 0 {
		return false, errBody
	}
	return elsewhere, nil
}

func decodeBlobs(b []byte, r *Run) error {
	d := body{b: b}
	r.Input, r.Output, r.Detail = d.bytes(), d.bytes(), d.bytes()
	if d.bad || len(d.b) > 0 {
		return errBody
	}
	return nil
}
