package view

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/engine/internal/codec"
)

// Preview is how many bytes of Input and Output a list has at most.
const Preview = 256

// Run is a run as the view stores it. Times have a precision of a microsecond.
type Run struct {
	ID         string // takes the least space if it is a ULID in lower case with the time of Created
	Workflow   string
	Key        string // idempotency key; may be empty
	State      string
	Created    time.Time // must not change: the first value decides the place in lists
	Updated    time.Time
	Ended      time.Time // zero if the run has not ended
	Next       time.Time // when the current wait ends; zero if the run does not wait
	Attempts   int       // number of attempts of all steps
	Step       string    // the step that is running, waiting or failed
	Error      string    // the last error; "" if there is none
	Reason     string    // why the run is dead
	Input      []byte
	Output     []byte
	Detail     []byte // the encoded run, with steps and history; only Get returns it
	ReplacedBy string // id of the run that replaced this one, or continues it
	Status     string // short text that the run has set

	// Tags are the tags that the run has set. nil means that it has never had one: then the
	// view does not look for old ones.
	Tags map[string]string
}

// Batch is written in one transaction: first the runs of Put in their order, then the deletions.
type Batch struct {
	Cursor uint64 // number of the log entry up to which the view is complete after the batch
	Put    []Run
	Delete []string
}

// preview returns the beginning of a payload for lists, cut between two characters.
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

// A row has all fields that no query needs in one blob, the body, because every column costs time.
// Large payloads would make lists slow: they are in the table payloads, and the row has only their
// previews.

// inline is the largest total size of payloads in a row, in bytes. A row with them still fits into
// a page.
const inline = 2048

// Flags in the body.
const (
	spilled   = 1 // the payloads are in the table payloads
	described = 2 // the status and the tags follow
)

var errBody = errors.New("a row can't be decoded")

// spills reports whether the payloads of a run are too large for its row.
func spills(r *Run) bool { return len(r.Input)+len(r.Output)+len(r.Detail) > inline }

// appendBody encodes the body of a row. A change of its layout needs a new version in
// schema.go.
func appendBody(b []byte, place int64, r *Run) []byte {
	b = appendTimes(b, place, r)
	for _, s := range [...]string{r.Key, r.Step, r.Error, r.Reason, r.ReplacedBy} {
		b = codec.AppendBytes(b, s)
	}
	var flags byte
	if spills(r) {
		flags |= spilled
	}
	if r.Status != "" || r.Tags != nil {
		flags |= described
	}
	b = append(b, flags)
	if flags&described != 0 {
		b = codec.AppendBytes(b, r.Status)
		b = binary.AppendUvarint(b, uint64(len(r.Tags)))
		for _, name := range slices.Sorted(maps.Keys(r.Tags)) { // so that the same tags have the same bytes
			b = codec.AppendBytes(b, name)
			b = codec.AppendBytes(b, r.Tags[name])
		}
	}
	if flags&spilled != 0 {
		return appendBlobs(b, preview(r.Input), preview(r.Output), nil)
	}
	return appendBlobs(b, r.Input, r.Output, r.Detail)
}

// readAbout decodes the status and the tags.
func readAbout(d *codec.Reader, r *Run) {
	r.Status = string(d.Bytes())
	for n := d.Number(); n > 0 && d.Err == nil; n-- {
		if r.Tags == nil {
			r.Tags = map[string]string{}
		}
		name := string(d.Bytes())
		r.Tags[name] = string(d.Bytes())
	}
}

// timesSize is the number of bytes that are reserved for the times of a run. So most rows keep
// their length until the run has ended. A row that grows may split a full page, which costs about
// 50 bytes and 2 µs per run.
const timesSize = 12

// appendTimes encodes the times, padded to timesSize, after their length in bytes.
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

// base returns the time relative to which Ended and Next are encoded: Updated if it is set,
// because it is closer to them than Created.
func base(created int64, updated time.Time) int64 {
	if updated.IsZero() {
		return created
	}
	return updated.UnixMicro()
}

// appendTime encodes a time relative to a base, and the zero time as one byte.
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

// sameText reports whether the indexed texts of two runs are the same.
func sameText(a, b *Run) bool {
	return a.Key == b.Key && a.Workflow == b.Workflow && a.Error == b.Error && a.Status == b.Status &&
		maps.Equal(a.Tags, b.Tags) && bytes.Equal(a.Input, b.Input)
}

// readTime decodes a time that appendTime encoded.
func readTime(d *codec.Reader, base int64) time.Time {
	if d.Byte() == 0 {
		return time.Time{}
	}
	return time.UnixMicro(base + d.Varint()).UTC()
}

// readBlobs decodes the payloads that appendBlobs wrote, which are at the end of the data. They share
// the memory of the data.
func readBlobs(d *codec.Reader, r *Run) error {
	for _, p := range [...]*[]byte{&r.Input, &r.Output, &r.Detail} {
		if *p = d.Bytes(); len(*p) == 0 {
			*p = nil
		}
	}
	if d.Err != nil || len(d.Data) > 0 {
		return errBody
	}
	return nil
}

// decodeBody sets the fields of a run from the body of its row. elsewhere is true if its payloads
// are in the table payloads. The run shares the memory of b.
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
	flags := d.Byte()
	if elsewhere = flags&spilled != 0; flags&described != 0 {
		readAbout(&d, r)
	}
	if err := cmp.Or(readBlobs(&d, r), times.Err); err != nil {
		return false, errBody
	}
	return elsewhere, nil
}
