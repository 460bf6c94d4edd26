//go:build unix

package secrets_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// secretServer is a server whose secrets must not appear in any output.
type secretServer struct {
	t     *testing.T
	dir   string
	env   []string
	s     *clitest.Server
	marks []string // texts that must not be in any output
	token string   // token of the API; empty means the one in the data folder
}

// wantNoSecret fails if the text contains a secret.
func (v *secretServer) wantNoSecret(what, text string) {
	v.t.Helper()
	for _, mark := range v.marks {
		if at := strings.Index(text, mark); at >= 0 {
			v.t.Errorf("%s has a secret: …%s…", what, text[max(0, at-200):min(len(text), at+100)])
		}
	}
}

// wantRedacted fails if the text contains a secret. It also fails if no secret was redacted,
// because the check would then prove nothing.
func (v *secretServer) wantRedacted(what, text string) {
	v.t.Helper()
	v.wantNoSecret(what, text)
	if !strings.Contains(text, "***") {
		v.t.Errorf("%s has no mask: %.300s", what, text)
	}
}

// runAll runs commands against the server and checks their output. It runs them concurrently,
// because some wait for servers that are down.
func (v *secretServer) runAll(verbs ...[]string) {
	v.t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for _, args := range verbs {
		all.Go(func() {
			o := v.s.RunCommand(args...)
			v.wantNoSecret(fmt.Sprint(args), o.Out+o.Stderr)
		})
	}
}

// run runs a command that does not connect to the server, and checks its output.
func (v *secretServer) run(args ...string) clitest.Outcome {
	v.t.Helper()
	cmd, _ := clitest.Command(v.t, args...)
	cmd.Env = append(cmd.Env, v.env...)
	o := clitest.Finish(v.t, cmd)
	v.wantNoSecret(fmt.Sprint(args), o.Out+o.Stderr)
	return o
}

// pages reads pages as a browser does, checks them, and returns their text.
func (v *secretServer) pages(paths ...string) (text string) {
	v.t.Helper()
	token := v.token
	if token == "" {
		data, err := os.ReadFile(filepath.Join(v.s.Data, "token"))
		if err != nil {
			v.t.Fatal(err)
		}
		token = strings.TrimSpace(string(data))
	}
	var all sync.WaitGroup
	room, texts := make(chan struct{}, 4), make([]string, len(paths))
	for i, path := range paths {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			texts[i] = v.page(path, token)
		})
	}
	all.Wait()
	return strings.Join(texts, "\n")
}

// page reads one page. If the page is a stream, it reads the first message.
func (v *secretServer) page(path, token string) string {
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.s.Address()+strings.TrimPrefix(path, "/"), nil)
	if err != nil {
		v.t.Error(err)
		return ""
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "text/html")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		v.t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	var text []byte
	if strings.HasPrefix(path, "/live/") {
		text = firstMessage(resp.Body)
	} else if text, err = io.ReadAll(resp.Body); err != nil {
		v.t.Errorf("%s: %v", path, err)
	}
	v.wantNoSecret(path, fmt.Sprint(resp.Header, string(text)))
	return string(text)
}

// firstMessage reads to the end of the first message that is not empty.
func firstMessage(r io.Reader) (text []byte) {
	for chunk := make([]byte, 64<<10); ; {
		n, err := r.Read(chunk)
		text = append(text, chunk[:n]...)
		if whole := strings.HasSuffix(string(text), "\n\n"); err != nil || whole && strings.Contains(string(text), "data:") {
			return text
		}
	}
}

// files checks that no file in the folder contains a secret.
func (v *secretServer) files(dir string) {
	v.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		v.wantNoSecret(path, string(data))
		return err
	})
	if err != nil {
		v.t.Error(err)
	}
}
