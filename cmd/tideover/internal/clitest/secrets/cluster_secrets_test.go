//go:build unix

package secrets_test

import (
	"flag"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

const (
	plantedPassword = "right-PLANTED-pw"
	plantedToken    = "token-PLANTED-of-nats"
	plantedSystem   = "system-PLANTED-pw"
	withToken       = "authorization { token: \"" + plantedToken + "\" }\n"
	otherPasswords  = "accounts { TEST { jetstream: enabled, users: [{user: \"me\", password: \"another\"}] }, $SYS { users: [{user: \"system\", password: \"another\"}] } }\n"
	otherToken      = "authorization { token: \"another\" }\n"
)

// everyAccess is for the ways to give the credentials of NATS that differ only in how the
// configuration is written.
var everyAccess = flag.Bool("access.every", false, "plant secrets of a cluster in every way to give credentials")

// The test plants secrets in every setting of a cluster that can hold one. It runs everything that
// could show them, also while NATS rejects the credentials, and checks all output.
func TestSecretsOfAClusterAreNowhere(t *testing.T) {
	t.Parallel()
	for i, c := range []struct{ name, access, engine, later string }{
		{
			"in the address", clitest.WithPasswords,
			"{nats: 'nats://me:${env:PW}@%s', shards: 2, lease-time: 24s, system-user: system, system-password: '${env:SYSTEM}'}", otherPasswords,
		},
		{"user and password", clitest.WithPasswords, "{nats: 'nats://%s', shards: 2, lease-time: 24s, user: me, password: '${file:./password}'}", otherPasswords},
		{"as an address", clitest.WithPasswords, "{nats: '${env:ADDRESS}', shards: 2, lease-time: 24s}", otherPasswords},
		{"a token in the address", withToken, "{nats: 'nats://${env:TOKEN}@%s', shards: 2, lease-time: 24s}", otherToken},
	} {
		if i > 1 && !*everyAccess {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nodes := natstest.Start(t, 1, natstest.WithAccess(c.access))
			host := strings.TrimPrefix(nodes.URL(), "nats://")
			engine := strings.Replace(c.engine, "%s", host, 1)
			v := &secretServer{t: t, dir: clitest.ShortDir(t), marks: []string{planted}, env: []string{
				"PW=" + plantedPassword, "SYSTEM=" + plantedSystem, "TOKEN=" + plantedToken, "ADDRESS=nats://me:" + plantedPassword + "@" + host,
			}}
			clitest.WriteFile(t, filepath.Join(v.dir, "password"), plantedPassword+"\n")
			v.checkOutputs(nodes, "version: 1\nworkflows: {w: {steps: [{id: a, run: [echo, x]}]}}\nengine: "+engine+"\n", c.later)
		})
	}
}

// checkOutputs serves the configuration text, runs everything that could show a secret, and checks
// the output. later is the access configuration with which NATS rejects the credentials.
func (v *secretServer) checkOutputs(nodes *natstest.Cluster, text, later string) {
	v.t.Helper()
	v.s = clitest.Serve(v.t, text, v.dir, v.env...)
	clitest.WantCode(v.t, v.s.RunCommand("run", "w", "--wait", "--key", "k"), 0)
	testwait.Until(v.t, "the check is over", func() bool { return strings.Contains(v.s.Log.String(), "replicas") })
	v.runClusterCommands()
	v.readClusterPages()

	// The log says that a new name of the cluster takes effect after a restart.
	clitest.WriteFile(v.t, v.s.File, strings.Replace(text, "shards: 2, ", "shards: 2, name: other, ", 1))
	v.s.Signal(syscall.SIGHUP)
	testwait.Until(v.t, "the change is reported", func() bool {
		return strings.Contains(v.s.Log.String(), `msg="this takes effect when the server is started again" key=engine.name value=other`)
	})
	clitest.WriteFile(v.t, v.s.File, text)

	// The NATS server is down, and later rejects the credentials, which were valid until then.
	nodes.Kill(0)
	testwait.Until(v.t, "the trouble is reported", func() bool { return strings.Contains(v.s.Log.String(), "error of the connection to NATS") })
	nodes.Restart(0, later)
	testwait.Until(v.t, "the rejection is reported", func() bool {
		return strings.Contains(strings.ToLower(v.s.Log.String()), "authorization violation")
	})
	v.runClusterCommands()
	v.readClusterPages()
	v.s.Signal(syscall.SIGTERM)
	v.s.End()
	refused := clitest.BeginServe(v.t, text, v.dir, v.env...)
	clitest.WantCode(v.t, refused.End(), 125)
	v.wantNoSecret("a server that is refused", refused.Log.String())
	v.wantNoSecret("the log", v.s.Log.String())
	v.files(v.s.Data)
}

// runClusterCommands runs all commands that can show something about a cluster.
func (v *secretServer) runClusterCommands() {
	v.t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		v.runAll([]string{"runs", "--json"}, []string{"show", "k", "--json"}, []string{"status", "--json"}, []string{"cluster"}, []string{"cluster", "--json"},
			[]string{"dead", "--groups"}, []string{"schedules"}, []string{"workflows"}, []string{"backup", filepath.Join(v.dir, "backup")})
	})
	for _, args := range [][]string{
		{"config", "show", "--origin"}, {"config", "show", "--json"}, {"config", "check"}, {"config", "check", "--json"}, {"doctor"}, {"doctor", "--json"},
	} {
		all.Go(func() { v.run(append(args, "--config", v.s.File, "--data", v.s.Data)...) })
	}
	all.Go(func() { clitest.WantCode(v.t, v.run("move", v.s.File, filepath.Join(v.dir, "moved")), 125) })
}

// readClusterPages reads everything that is served about a cluster.
func (v *secretServer) readClusterPages() {
	v.t.Helper()
	v.pages("runs", "dead", "cluster", "providers", "metrics", "healthz", "api/v1/cluster", "api/v1/status", "api/v1/runs", "api/v1/events?follow=false&after=0")
}
