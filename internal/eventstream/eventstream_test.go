package eventstream_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/eventstream"
)

func TestStream(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := eventstream.New(w, time.Minute)
	s.Add("", "", []byte("a\nb"))
	s.AddJSON("end", "7", map[string]int{"n": 1})
	s.Beat("8")
	s.Beat("")
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "data: a\ndata: b\n\nid: 7\nevent: end\ndata: {\"n\":1}\n\nid: 8\n: \n\n: \n\n"
	if got := w.Body.String(); got != want || w.Header().Get("Content-Type") != "text/event-stream" || !w.Flushed {
		t.Errorf("the stream is %q, want %q; headers %v, flushed %v", got, want, w.Header(), w.Flushed)
	}
	s.AddJSON("", "", func() {})
	s.Beat("")
	if err := s.Flush(); err == nil || w.Body.String() != want {
		t.Errorf("a value that JSON can't encode: %v, %q", err, w.Body)
	}
}
