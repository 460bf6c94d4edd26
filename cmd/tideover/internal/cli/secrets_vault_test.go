//go:build unix

package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// vault is a server whose secrets must not get out.
type vault struct {
	t     *testing.T
	dir   string
	env   []string
	s     *served
	marks []string // what must be nowhere
	token string   // of the API; empty means the one in the data folder
}

// hide fails if there is a secret in the text.
func (v *vault) hide(what, text string) {
	v.t.Helper()
	for _, mark := range v.marks {
		if at := strings.Index(text, mark); at >= 0 {
			v.t.Errorf("%s has a secret: …%s…", what, text[max(0, at-200):min(len(text), at+100)])
		}
	}
}

// masked fails also if there was none to be hidden: then nothing has been tested.
func (v *vault) masked(what, text string) {
	v.t.Helper()
	v.hide(what, text)
	if !strings.Contains(text, "***") {
		v.t.Errorf("%s has no mask: %.300s", what, text)
	}
}

// ask runs verbs that ask the server, at once: some wait for servers that are away.
func (v *vault) ask(verbs ...[]string) {
	v.t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for _, args := range verbs {
		all.Go(func() {
			o := v.s.ask(args...)
			v.hide(fmt.Sprint(args), o.out+o.stderr)
		})
	}
}

// run runs a verb that does not ask the server.
func (v *vault) run(args ...string) outcome {
	v.t.Helper()
	cmd, _ := command(v.t, args...)
	cmd.Env = append(cmd.Env, v.env...)
	o := finish(v.t, cmd)
	v.hide(fmt.Sprint(args), o.out+o.stderr)
	return o
}

// pages reads what is served, as a browser does, and returns it.
func (v *vault) pages(paths ...string) (text string) {
	v.t.Helper()
	token := v.token
	if token == "" {
		data, err := os.ReadFile(filepath.Join(v.s.data, "token"))
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

// page reads one. Of a stream that does not end it reads the first message.
func (v *vault) page(path, token string) string {
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.s.address()+strings.TrimPrefix(path, "/"), nil)
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
	v.hide(path, fmt.Sprint(resp.Header, string(text)))
	return string(text)
}

// firstMessage reads up to the end of the first message that has something in it.
func firstMessage(r io.Reader) (text []byte) {
	for chunk := make([]byte, 64<<10); ; {
		n, err := r.Read(chunk)
		text = append(text, chunk[:n]...)
		if whole := strings.HasSuffix(string(text), "\n\n"); err != nil || whole && strings.Contains(string(text), "data:") {
			return text
		}
	}
}

// files reads all that is on the disk.
func (v *vault) files(dir string) {
	v.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		v.hide(path, string(data))
		return err
	})
	if err != nil {
		v.t.Error(err)
	}
}
