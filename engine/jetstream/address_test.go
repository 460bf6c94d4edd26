package jetstream

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

func TestAddressesThatDoNotAnswerAreNamed(t *testing.T) {
	t.Parallel()
	var err error
	testwait.Until(t, "both addresses were tried", func() bool {
		// real clock: nothing listens there, so Open never succeeds
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err = Open(ctx, Config{URL: "nats://u:pa55w0rd@127.0.0.1:1,tls://127.0.0.1:2"})
		return err == nil || strings.Contains(err.Error(), "127.0.0.1:2: connect: connection refused")
	})
	wantErr(t, "Open", err, nil, "connect to NATS at 127.0.0.1:1, 127.0.0.1:2: ")
	if strings.Contains(err.Error(), "pa55w0rd") {
		t.Errorf("Open = %v; it has the password in it", err)
	}
}

func TestHostsOfAddresses(t *testing.T) {
	t.Parallel()
	got := strings.Join(hosts("nats://me:pw@a.example, tls://b:1,c,ws://d,wss://[::1]"), " ")
	if want := "a.example:4222 b:1 c:4222 d:80 [::1]:443"; got != want {
		t.Errorf("hosts = %q; want %q", got, want)
	}
}

func TestTLSAtAServerWithoutItIsToldFromWrongCredentials(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	_, err := Open(t.Context(), Config{URL: strings.ReplaceAll(nodes.URL(), "nats://", "tls://")})
	wantErr(t, "Open", err, nil, "secure connection not available; the server has no TLS: use nats://")
	if strings.Contains(err.Error(), "credentials") {
		t.Errorf("Open = %v; it blames the credentials", err)
	}
}

func TestADeadAddressIsFound(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	found, err := Check(t.Context(), Config{URL: nodes.URL() + ",nats://127.0.0.1:1", Name: newName()})
	if err != nil || !has(found, journal.Weak, "no answer from 127.0.0.1:1 (connection refused)") {
		t.Errorf("Check() = %v, %v", &foundError{found}, err)
	}
}

func TestAWrongSecondPlaceIsFoundBeforeServersAreAsked(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{URL: nodes.URL(), Name: newName(), SecondPlace: file}
	_, err := Open(t.Context(), cfg)
	wantErr(t, "Open", err, nil, "second place: "+file+" is not a folder")
	if _, err := admin(t, nodes).Stream(t.Context(), names(cfg.Name).bucketStream()); err == nil {
		t.Error("the cluster was made")
	}
	if os.Geteuid() == 0 {
		return // root may write anywhere
	}
	cfg.SecondPlace = filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(cfg.SecondPlace, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), cfg)
	wantErr(t, "Open", err, nil, "second place: it can't be written")
}
