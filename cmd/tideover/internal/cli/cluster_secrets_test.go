//go:build unix

package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
)

const (
	plantedPassword = "right-PLANTED-pw"
	plantedToken    = "token-PLANTED-of-nats"
	plantedSystem   = "system-PLANTED-pw"
	withToken       = "authorization { token: \"" + plantedToken + "\" }\n"
	otherPasswords  = "accounts { TEST { jetstream: enabled, users: [{user: \"me\", password: \"another\"}] }, $SYS { users: [{user: \"system\", password: \"another\"}] } }\n"
	otherToken      = "authorization { token: \"another\" }\n"
)

// TestSecretsOfAClusterAreNowhere plants them in every place that may have some, does
// everything that could show them, servers that refuse us included, and looks.
func TestSecretsOfAClusterAreNowhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, access, engine, later string }{
		{
			"in the address", withPasswords,
			"{nats: 'nats://me:${env:PW}@%s', shards: 2, lease-time: 2s, system-user: system, system-password: '${env:SYSTEM}'}", otherPasswords,
		},
		{"as an address", withPasswords, "{nats: '${env:ADDRESS}', shards: 2, lease-time: 2s}", otherPasswords},
		{"user and password", withPasswords, "{nats: 'nats://%s', shards: 2, lease-time: 2s, user: me, password: '${file:./password}'}", otherPasswords},
		{"a token in the address", withToken, "{nats: 'nats://${env:TOKEN}@%s', shards: 2, lease-time: 2s}", otherToken},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nodes := natstest.Start(t, 1, natstest.WithAccess(c.access))
			host := strings.TrimPrefix(nodes.URL(), "nats://")
			engine := strings.Replace(c.engine, "%s", host, 1)
			v := &vault{t: t, dir: shortDir(t), env: []string{
				"PW=" + plantedPassword, "SYSTEM=" + plantedSystem, "TOKEN=" + plantedToken, "ADDRESS=nats://me:" + plantedPassword + "@" + host,
			}}
			write(t, filepath.Join(v.dir, "password"), plantedPassword+"\n")
			v.look(nodes, "version: 1\nworkflows: {w: {steps: [{id: a, run: [echo, x]}]}}\nengine: "+engine+"\n", c.later)
		})
	}
}

// vault is a server whose secrets must not get out.
type vault struct {
	t   *testing.T
	dir string
	env []string
	s   *served
}

func (v *vault) look(nodes *natstest.Cluster, text, later string) {
	v.t.Helper()
	v.s = serveFile(v.t, text, v.dir, v.env...)
	wantCode(v.t, v.s.ask("run", "w", "--wait", "--key", "k"), 0)
	eventually(v.t, "the check is over", func() bool { return strings.Contains(v.s.out.String(), "replicas") })
	v.verbs()
	v.pages()

	// What has changed is told, and has no effect yet.
	write(v.t, v.s.file, strings.Replace(text, "shards: 2, ", "shards: 2, name: other, ", 1))
	v.s.signal(syscall.SIGHUP)
	eventually(v.t, "the change is told", func() bool {
		return strings.Contains(v.s.out.String(), `msg="this takes effect when the server is started again" key=engine.name value=other`)
	})
	write(v.t, v.s.file, text)

	// The servers are away, and then refuse what was right.
	nodes.Kill(0)
	eventually(v.t, "trouble is told", func() bool { return strings.Contains(v.s.out.String(), "trouble with the connection to NATS") })
	nodes.Restart(0, later)
	eventually(v.t, "the refusal is told", func() bool {
		return strings.Contains(strings.ToLower(v.s.out.String()), "authorization violation")
	})
	v.verbs()
	v.pages()
	v.s.signal(syscall.SIGTERM)
	v.s.end()
	refused := beginServe(v.t, text, v.dir, v.env...)
	wantCode(v.t, refused.end(), 125)
	v.hide("a server that is refused", refused.out.String())
	v.hide("the log", v.s.out.String())
	v.files()
}

// hide fails if there is a secret in the text.
func (v *vault) hide(what, text string) {
	v.t.Helper()
	if at := strings.Index(text, "PLANTED"); at >= 0 {
		v.t.Errorf("%s has a secret: …%s…", what, text[max(0, at-200):min(len(text), at+100)])
	}
}

// verbs runs all that may show something, at once: some wait for servers that are
// away.
func (v *vault) verbs() {
	v.t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for _, args := range [][]string{
		{"runs", "--json"}, {"show", "k", "--json"}, {"status", "--json"}, {"cluster"}, {"cluster", "--json"}, {"dead", "--groups"}, {"schedules"}, {"workflows"},
		{"backup", filepath.Join(v.dir, "backup")},
	} {
		all.Go(func() {
			o := v.s.ask(args...)
			v.hide(fmt.Sprint(args), o.out+o.stderr)
		})
	}
	for _, args := range [][]string{
		{"config", "show", "--origin"}, {"config", "show", "--json"}, {"config", "check"}, {"doctor"}, {"doctor", "--json"},
	} {
		all.Go(func() { v.run(append(args, "--config", v.s.file, "--data", v.s.data)...) })
	}
	all.Go(func() { wantCode(v.t, v.run("move", v.s.file, filepath.Join(v.dir, "moved")), 125) })
}

// run runs a verb that does not ask the server.
func (v *vault) run(args ...string) outcome {
	cmd, _ := command(v.t, args...)
	cmd.Env = append(cmd.Env, v.env...)
	o := finish(v.t, cmd)
	v.hide(fmt.Sprint(args), o.out+o.stderr)
	return o
}

// pages reads what is served.
func (v *vault) pages() {
	v.t.Helper()
	token, err := os.ReadFile(filepath.Join(v.s.data, "token"))
	if err != nil {
		v.t.Fatal(err)
	}
	base, _, _ := strings.Cut(v.s.page(), "?")
	var all sync.WaitGroup
	defer all.Wait()
	for _, path := range []string{"runs", "dead", "cluster", "providers", "metrics", "healthz", "api/v1/cluster", "api/v1/status", "api/v1/runs", "api/v1/events?follow=false&after=0"} {
		r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			v.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		r.Header.Set("Accept", "text/html")
		all.Go(func() {
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				v.t.Error(err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				v.t.Error(err)
			}
			v.hide(path, string(text))
		})
	}
}

// files reads all that is on the disk, but where the secret belongs.
func (v *vault) files() {
	v.t.Helper()
	err := filepath.WalkDir(v.s.data, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte("PLANTED")) {
			v.t.Errorf("there is a secret in %s", path)
		}
		return err
	})
	if err != nil {
		v.t.Error(err)
	}
}
