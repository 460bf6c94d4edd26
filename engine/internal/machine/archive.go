package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// An archive is a stream of frames with finished runs.

// AppendArchive adds a frame with encoded runs to b.
func AppendArchive(b []byte, runs []byte) []byte { return frame(b, frameRuns, runs) }

// ReadArchive calls yield with each run of a stream of frames.
func (d *runDecoder) ReadArchive(stream io.Reader, yield func(*Run) error) error {
	in := bufio.NewReaderSize(stream, 1<<16)
	var buf []byte
	for {
		if _, err := in.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		kind, body, err := readFrame(in, buf)
		if err != nil {
			return err
		}
		if kind != frameRuns {
			return fmt.Errorf("%w: an archive has a frame of kind %q; want only %q", ErrEncoding, kind, frameRuns)
		}
		buf = body
		for r := (reader{data: body}); len(r.data) > 0; {
			run, err := d.readRun(&r)
			if err != nil {
				return err
			}
			if err := yield(run); err != nil {
				return err
			}
		}
	}
}
