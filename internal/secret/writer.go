package secret

import (
	"io"
	"sync"
)

// Writer passes on what is written to it, without secrets.
type Writer struct {
	r *Redactor

	mu   sync.Mutex
	w    io.Writer
	scan scan
	out  []byte
}

// NewWriter returns a writer that removes secrets from a stream, also those that
// are split over several writes. It holds back only what may be the start of a
// secret, and never more than the longest one; [Writer.Close] writes that out.
// Secrets added later are removed from what is written later.
func (r *Redactor) NewWriter(w io.Writer) *Writer { return &Writer{r: r, w: w} }

// Write implements [io.Writer].
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.pass(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what was held back. It does not close the writer below.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pass(nil, true)
}

func (w *Writer) pass(p []byte, last bool) error {
	t := w.r.table.Load()
	if t == nil {
		t = new(table)
	}
	w.out = w.scan.run(t, w.out[:0], p, last)
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.w.Write(w.out)
	return err
}
