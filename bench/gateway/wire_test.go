package gateway

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestReadHead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text    string
		first   string
		body    int
		last    bool
		rest    string
		wantErr bool
	}{
		"a length":                       {"POST / HTTP/1.1\r\ncontent-LENGTH: 3\r\n\r\nabcGET", "POST / HTTP/1.1", 3, false, "GET", false},
		"no body":                        {"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET", "GET / HTTP/1.1", 0, false, "GET", false},
		"chunks":                         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET", "HTTP/1.1 200 OK", 3, false, "GET", false},
		"chunks and trailers":            {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\nGET", "HTTP/1.1 200 OK", 0, false, "GET", false},
		"the last message":               {"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "GET / HTTP/1.1", 0, true, "", false},
		"a header without a colon":       {text: "GET / HTTP/1.1\r\nHost\r\n\r\n", wantErr: true},
		"a length that is none":          {text: "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", wantErr: true},
		"a negative length":              {text: "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", wantErr: true},
		"a head that ends in a line":     {text: "GET / HT", wantErr: true},
		"a head that ends before a body": {text: "GET / HTTP/1.1\r\n", wantErr: true},
		"a body that ends":               {text: "GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\na", wantErr: true},
		"chunks that end":                {text: "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na", wantErr: true},
		"chunks without an end":          {text: "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bufio.NewReader(strings.NewReader(test.text))
			var m message
			err := readHead(r, &m)
			body := 0
			if err == nil {
				body, err = discardBody(r, &m)
			}
			if test.wantErr {
				if err == nil || errors.Is(err, io.EOF) {
					t.Errorf("error %v; want one, and not the end of a connection", err)
				}
				return
			}
			rest, _ := io.ReadAll(r)
			if err != nil || string(m.first) != test.first || body != test.body || m.last != test.last || string(rest) != test.rest {
				t.Errorf("got %q, body %d, last %v, rest %q, %v; want %q, %d, %v, %q",
					m.first, body, m.last, rest, err, test.first, test.body, test.last, test.rest)
			}
		})
	}
}

func TestEndOfAConnectionIsNotAnError(t *testing.T) {
	t.Parallel()
	if err := readHead(bufio.NewReader(strings.NewReader("")), new(message)); !errors.Is(err, io.EOF) {
		t.Errorf("readHead of nothing: %v; want EOF", err)
	}
}

func TestReadHeadAllocatesNothing(t *testing.T) {
	in := strings.NewReader("")
	r := bufio.NewReader(in)
	var m message
	n := testing.AllocsPerRun(100, func() {
		in.Reset(small)
		r.Reset(in)
		if err := readHead(r, &m); err != nil {
			t.Fatal(err)
		}
		if _, err := discardBody(r, &m); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var small = string(smallAnswer)

// The report page states these sizes.
func TestSizes(t *testing.T) {
	t.Parallel()
	if len(answer) != 80 || len(postBody()) != 1024 {
		t.Errorf("answer of %d bytes, body of %d; want 80 and 1024", len(answer), len(postBody()))
	}
}
