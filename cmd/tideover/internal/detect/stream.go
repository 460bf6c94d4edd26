package detect

import (
	"bytes"
	"cmp"
	"time"
)

// maxLine limits the length of a line. A longer event is ignored. Of a longer text only the last part
// is used: such text comes from a program that draws on the screen and never ends a line.
const maxLine = 1 << 20

// Stream receives one stream of output for its [Detector]. Lines of several streams are processed
// in the order in which they end.
type Stream struct {
	d       *Detector
	partial []byte // beginning of an incomplete line
	dropped bool   // the line is an event that is too long; only its beginning is stored
}

// Write processes the next piece of the output. It never fails.
func (s *Stream) Write(p []byte) (int, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	at, size := cmp.Or(s.d.options.At, time.Now()), len(p)
	for {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			s.appendPartial(p)
			return size, nil
		}
		if len(s.partial) == 0 && !s.dropped && end <= maxLine {
			s.d.line(p[:end], at)
		} else {
			s.appendPartial(p[:end])
			s.endLine(at)
		}
		p = p[end+1:]
	}
}

// appendPartial stores a piece of a line, and shortens a line that is too long. Where it cuts the line
// depends only on the length of the line, not on the sizes of the pieces.
func (s *Stream) appendPartial(p []byte) {
	for len(p) > 0 && !s.dropped {
		n := min(len(p), maxLine-len(s.partial))
		s.partial = append(s.partial, p[:n]...)
		p = p[n:]
		if len(p) == 0 {
			return
		}
		if beginsEvent(bytes.TrimLeft(s.partial, " \t")) {
			s.dropped, s.partial = true, s.partial[:maxKept]
			return
		}
		s.partial = s.partial[:copy(s.partial, s.partial[maxLine/2:])]
	}
}

// endLine processes the stored line.
func (s *Stream) endLine(at time.Time) {
	s.d.line(s.partial, at)
	s.dropped, s.partial = false, s.partial[:0]
	if cap(s.partial) > maxLine/16 {
		s.partial = nil // free the memory of a long line
	}
}
