package output

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// Attempt names an attempt.
type Attempt struct {
	Run    string `json:"run"`
	Step   string `json:"step"`
	Number int    `json:"attempt"` // among all attempts of the step, from 1

	// Operation is the number of the operation of a workflow that is code. If a retry of the run
	// calls the operation again, its attempts begin with 1 again. It is 0 for a step.
	Operation int `json:"operation,omitempty"`
}

// Matches reports whether an attempt is the one that is asked for. If the number or the operation
// that is asked for is 0, it matches all.
func (a Attempt) Matches(asked Attempt) bool {
	return a.Run == asked.Run && a.Step == asked.Step && (asked.Number == 0 || a.Number == asked.Number) &&
		(asked.Operation == 0 || a.Operation == asked.Operation)
}

// Record is the output of an attempt. Members of a cluster send it to each other as JSON.
type Record struct {
	Attempt
	Ended   time.Time `json:"ended"`
	Exit    *int      `json:"exit,omitempty"`    // exit code of a command; nil if it is unknown or the attempt was a request
	Status  string    `json:"status,omitempty"`  // of the response to a request, such as "HTTP/1.1 503 Service Unavailable"
	Request string    `json:"request,omitempty"` // method and URL of a request, without its query
	Command string    `json:"command,omitempty"` // command line of a command, quoted as for a shell
	Streams []Stream  `json:"streams"`
}

// Stream is a stream of an output. Bytes between Head and Tail are omitted if Size is more than the
// bytes of both.
type Stream struct {
	Name  string `json:"name"`           // stdout, stderr or body
	Size  int64  `json:"size"`           // bytes of the whole stream, with secrets masked
	Lines int64  `json:"lines"`          // line ends in the whole stream
	More  bool   `json:"more,omitempty"` // the whole stream is longer than Size: it was not read to its end
	Head  []byte `json:"head,omitempty"`
	Tail  []byte `json:"tail,omitempty"`
}

// Omitted returns how many bytes between Head and Tail are omitted.
func (s *Stream) Omitted() int64 { return s.Size - int64(len(s.Head)) - int64(len(s.Tail)) }

// meta is the JSON in a record. Names are short because every attempt has one.
type meta struct {
	Run     string       `json:"r"`
	Step    string       `json:"s"`
	Number  int          `json:"n"`
	Op      int          `json:"p,omitempty"` // Attempt.Operation
	Ended   int64        `json:"t"`           // in milliseconds since 1970
	Exit    *int         `json:"x,omitempty"`
	Status  string       `json:"h,omitempty"`
	Request string       `json:"q,omitempty"`
	Command string       `json:"c,omitempty"`
	Streams []metaStream `json:"o,omitempty"`
}

type metaStream struct {
	Name  string `json:"n"`
	Size  int64  `json:"z"`
	Lines int64  `json:"l,omitempty"`
	More  bool   `json:"m,omitempty"`
	Head  int    `json:"a,omitempty"` // bytes of Head in the data
	Tail  int    `json:"e,omitempty"` // bytes of Tail in the data
}

// A record is stored as
//
//	mark of the segment  8 bytes
//	size of the meta     4 bytes
//	size of the data     4 bytes
//	checksum of the meta 4 bytes: of the two sizes and the meta
//	checksum of the data 4 bytes
//	meta, data
//
// in little-endian order. The mark is random, so that a command can't write bytes that look like a
// record.
const (
	markSize = 8
	headSize = markSize + 16
	maxMeta  = 64 << 10
	maxData  = 16 << 20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	order      = binary.LittleEndian
)

// encode returns the record as it is stored in a segment with this mark.
func (r *Record) encode(mark [markSize]byte) ([]byte, error) {
	m := meta{
		Run: r.Run, Step: r.Step, Number: r.Number, Op: r.Operation, Ended: r.Ended.UnixMilli(), Exit: r.Exit, Status: r.Status,
		Request: r.Request, Command: r.Command,
	}
	size := 0
	for i := range r.Streams {
		s := &r.Streams[i]
		m.Streams = append(m.Streams, metaStream{s.Name, s.Size, s.Lines, s.More, len(s.Head), len(s.Tail)})
		size += len(s.Head) + len(s.Tail)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(text) > maxMeta || size > maxData {
		return nil, fmt.Errorf("%d bytes of output and %d bytes about it are too many", size, len(text))
	}
	b := make([]byte, headSize, headSize+len(text)+size)
	copy(b, mark[:])
	order.PutUint32(b[markSize:], uint32(len(text)))
	order.PutUint32(b[markSize+4:], uint32(size))
	b = append(b, text...)
	for i := range r.Streams {
		b = append(append(b, r.Streams[i].Head...), r.Streams[i].Tail...)
	}
	order.PutUint32(b[markSize+8:], metaSum(b, text))
	order.PutUint32(b[markSize+12:], crc32.Checksum(b[headSize+len(text):], castagnoli))
	return b, nil
}

// metaSum returns the checksum of the sizes in the head, and of the meta.
func metaSum(head, text []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[markSize:markSize+8], castagnoli), castagnoli, text)
}

var errTorn = errors.New("the record is not complete")

// sizes returns the sizes of the meta and the data of the record that begins with head.
func sizes(head []byte, mark [markSize]byte) (text, data int, err error) {
	text, data = int(order.Uint32(head[markSize:])), int(order.Uint32(head[markSize+4:]))
	if [markSize]byte(head) != mark || text > maxMeta || data > maxData {
		return 0, 0, errTorn
	}
	return text, data, nil
}

// decodeMeta checks and decodes the meta of the record that begins with head.
func decodeMeta(head, text []byte) (m meta, err error) {
	if metaSum(head, text) != order.Uint32(head[markSize+8:]) {
		return m, errTorn
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, errors.Join(errTorn, err)
	}
	return m, nil
}

// record returns the record that the meta describes, with the data.
func (m *meta) record(data []byte) (*Record, error) {
	r := m.withoutStreams()
	for _, s := range m.Streams {
		if s.Head < 0 || s.Tail < 0 || s.Head > len(data) || s.Tail > len(data)-s.Head {
			return nil, errTorn
		}
		r.Streams = append(r.Streams, Stream{s.Name, s.Size, s.Lines, s.More, data[:s.Head:s.Head], data[s.Head : s.Head+s.Tail : s.Head+s.Tail]})
		data = data[s.Head+s.Tail:]
	}
	return r, nil
}

// withoutStreams returns the record that the meta describes, without its streams.
func (m *meta) withoutStreams() *Record {
	return &Record{
		Attempt: m.attempt(), Ended: time.UnixMilli(m.Ended), Exit: m.Exit, Status: m.Status, Request: m.Request, Command: m.Command,
	}
}

func (m *meta) attempt() Attempt {
	return Attempt{Run: m.Run, Step: m.Step, Number: m.Number, Operation: m.Op}
}
