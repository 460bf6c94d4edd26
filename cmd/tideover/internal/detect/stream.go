package detect

import (
	"bytes"
	"time"
)

// maxLine is how much of a line is held. An event that is longer is not read. Of
// text that is longer the last part is: it is the output of a program that draws
// on the screen and never ends a line.
const maxLine = 1 << 20

// Stream takes one stream of output for its [Detector]. Lines of several streams
// are put in order as they are completed.
type Stream struct {
	d       *Detector
	partial []byte // the beginning of a line whose end has not come
	dropped bool   // the line is an event that is too long, and only its beginning is held
}

// Write takes the next piece. It keeps no more of it than the last lines, and it
// never fails.
func (s *Stream) Write(p []byte) (int, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	at := s.d.options.At
	if at.IsZero() {
		at = time.Now()
	}
	size := len(p)
	for {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			s.hold(p)
			return size, nil
		}
		if len(s.partial) == 0 && !s.dropped && end <= maxLine {
			s.d.line(p[:end], at)
		} else {
			s.hold(p[:end])
			s.end(at)
		}
		p = p[end+1:]
	}
}

// hold keeps the piece of a line. Where the line is cut depends on its length
// and not on the pieces that it comes in.
func (s *Stream) hold(p []byte) {
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

// end ends the line that is held.
func (s *Stream) end(at time.Time) {
	s.d.line(s.partial, at)
	s.dropped, s.partial = false, s.partial[:0]
	if cap(s.partial) > maxLine/16 {
		s.partial = nil // one long line should not be paid for by all that follow
	}
}
