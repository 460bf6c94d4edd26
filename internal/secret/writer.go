package secret

import (
	"cmp"
	"io"
	"sync"
)

// Writer replaces the secrets in the text that is written to it, and writes the result
// to another writer.
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
// A secret that is added later is removed from the text that is written after that.
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

// Close writes the text that was held back. It does not close the underlying writer.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pass(nil, true)
}

func (w *Writer) pass(p []byte, last bool) error {
	w.out = w.scan.run(cmp.Or(w.r.table.Load(), &noSecrets), w.out[:0], p, last)
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.w.Write(w.out)
	return err
}
