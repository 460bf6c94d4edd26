package output

import (
	"fmt"
	"strings"
	"testing"
)

func TestSearchNumbersTheLinesOfTheWholeStream(t *testing.T) {
	t.Parallel()
	c := &Capture{Limit: 1000}
	for i := range 500 {
		fmt.Fprintf(c, "line %d\x1b[31m Red\x1b[0m\r\n", i+1)
	}
	r := &Record{Streams: []Stream{c.Stream("stdout"), {Name: "stderr", Head: []byte("one\nLINE <b>\n"), Size: 13, Lines: 2}}}
	for text, want := range map[string]string{
		"line 2 red": "stdout:2:line 2 Red", "499": "stdout:499:line 499 Red", "250": "", "<B>": "stderr:2:LINE <b>", "[31m": "", "(": "",
		"line 50": "stdout:500:line 500 Red",
	} {
		list, found := r.Search(text, 10)
		var got []string
		for _, l := range list {
			got = append(got, fmt.Sprintf("%s:%d:%s", l.Stream, l.Number, l.Text))
		}
		if strings.Join(got, " ") != want || found != len(list) {
			t.Errorf("Search(%q) = %q, %d, want %q", text, got, found, want)
		}
	}
	if list, found := r.Search("e", 3); len(list) != 3 || found < 20 {
		t.Errorf("Search(e) returns %d of %d lines, want 3 of many", len(list), found)
	}
}

func TestWriteText(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]*Record{
		"hello\n": {Streams: []Stream{{Name: "stdout", Head: []byte("hello"), Size: 5}}},
		"--- stdout: 9 bytes\nab\n--- 4 bytes omitted ---\ncd\n--- stderr: 1 byte\nx\n": {Streams: []Stream{
			{Name: "stdout", Head: []byte("ab"), Tail: []byte("cd\n"), Size: 9}, {Name: "stderr", Head: []byte("x"), Size: 1},
		}},
		"HTTP/1.1 503 Busy\n\nlater\n--- the rest was not read ---\n": {Status: "HTTP/1.1 503 Busy", Streams: []Stream{{Name: "body", Head: []byte("later"), Size: 5, More: true}}},
		"PUT http://a/b\nHTTP/1.1 404 Not Found\n\n":                  {Request: "PUT http://a/b", Status: "HTTP/1.1 404 Not Found"},
		"cat 'a b'\n\n--- stdout: 1 byte\nx\n": {
			Command: "cat 'a b'", Streams: []Stream{{Name: "stdout", Head: []byte("x"), Size: 1}, {Name: "stderr"}},
		},
	} {
		var b strings.Builder
		r.WriteText(&b)
		if got := b.String(); got != want {
			t.Errorf("WriteText = %q, want %q", got, want)
		}
	}
}
