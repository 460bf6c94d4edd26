package jetstream

import (
	"context"
	"crypto/sha512"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

func TestWrongCredentialsAreRefusedAtOnceAndNotRepeated(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	for name, cfg := range map[string]Config{
		"a password":        {URL: nodes.URL(), User: "test", Password: "pa55w0rd"},
		"an unknown user":   {URL: nodes.URL(), User: "stranger", Password: "pa55w0rd"},
		"a token":           {URL: nodes.URL(), Token: "pa55w0rd"},
		"a password in URL": {URL: strings.ReplaceAll(nodes.URL(), "nats://", "nats://test:pa55w0rd@")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), cfg)
			wantErr(t, "Open", err, nil, "connect to NATS", "check the credentials")
			if strings.Contains(err.Error(), "pa55w0rd") {
				t.Errorf("Open = %v; it has the password in it", err)
			}
		})
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	// real clock: nothing listens there, so Open never succeeds
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, Config{URL: "nats://127.0.0.1:1,nats://127.0.0.1:2", User: "u", Password: "pa55w0rd"})
	wantErr(t, "Open without servers", err, nil, "connect to NATS")
	if strings.Contains(err.Error(), "pa55w0rd") {
		t.Errorf("Open = %v; it has the password in it", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Open(canceled, Config{URL: "nats://127.0.0.1:1"})
	wantErr(t, "Open with a canceled context", err, context.Canceled)
}

func TestUsersTokensAndSeeds(t *testing.T) {
	t.Parallel()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, seed := keys(t, user)
	path := filepath.Join(t.TempDir(), "user.nk")
	if err := os.WriteFile(path, []byte(seed), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes := natstest.Start(t, 1, natstest.WithAccess(fmt.Sprintf(
		"accounts { A { jetstream: enabled, users: [{nkey: %q}, {user: u, password: p}] } }\n", public)))
	for name, cfg := range map[string]Config{
		"seed":     {NKeySeed: path},
		"password": {User: "u", Password: "p"},
	} {
		cfg.URL, cfg.Name = nodes.URL(), name
		appendEntries(t, mustLease(t, openTest(t, cfg), 0), 1, 1)
	}
	tokens := natstest.Start(t, 1, natstest.WithAccess("authorization { token: t0k3n }\n"))
	appendEntries(t, mustLease(t, openTest(t, Config{URL: tokens.URL(), Token: "t0k3n"}), 0), 1, 1)
}

func TestTheLeastPermissionsSuffice(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1, natstest.WithAccess(`accounts { A { jetstream: enabled, users: [{user: u, password: pa55w0rd, permissions: {
		publish: ["n.>", "$KV.n-cluster.>", "$O.n-blobs.>", "_INBOX.>", "$JS.API.STREAM.CREATE.>", "$JS.API.STREAM.INFO.>",
			"$JS.API.STREAM.PURGE.>", "$JS.API.STREAM.MSG.GET.>", "$JS.API.DIRECT.GET.>"],
		subscribe: ["n.>", "_INBOX.>"] } }] } }
`))
	cfg := Config{URL: nodes.URL(), User: "u", Password: "pa55w0rd", Name: "n", Shards: 2}
	log, other := openTest(t, cfg), openTest(t, cfg)
	l := mustLease(t, log, 1)
	appendEntries(t, l, 1, 5)
	if err := l.Truncate(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	wantLog(t, l, 3, 5)
	putBlob(t, l, "a", "text")
	wantBlob(t, l, "a", "text")
	wantNames(t, l, "a")
	if err := errors.Join(l.Delete(t.Context(), "a"), l.Serve(func(r []byte, reply func([]byte)) { reply(r) })); err != nil {
		t.Fatal(err)
	}
	natstest.Wait(t, func(ctx context.Context) error { _, err := other.Call(ctx, 1, []byte("x")); return err })
	if _, err := other.Settle(t.Context(), "a", "b"); err != nil {
		t.Error(err)
	}
	if _, err := other.Status(t.Context()); err != nil {
		t.Error(err)
	}
	cfg.Name = "other" // the user has no permissions for this name
	testwait.Until(t, "Open says that it has no permission", func() bool {
		// real clock: without permission Open never succeeds
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := Open(ctx, cfg)
		if err == nil {
			t.Fatal("Open without permission succeeds")
		}
		return strings.Contains(err.Error(), "permissions violation")
	})
}

func TestCredentialsThatExpireAreRenewed(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	nodes := natstest.Start(t, 1, natstest.WithAccess(o.config()), natstest.WithProxies())
	path := filepath.Join(t.TempDir(), "user.creds")
	o.writeCredentials(path, time.Hour)
	log := openTest(t, Config{URL: nodes.URL(), Credentials: path})
	l := mustLease(t, log, 0)
	appendEntries(t, l, 1, 1)
	o.writeCredentials(path, 2*time.Second)
	nodes.CutClients(0) // so that the client reconnects with the new credentials
	nodes.HealClients(0)
	n := uint64(1)
	natstest.Wait(t, func(context.Context) error {
		err := tryAppend(t.Context(), l, n+1)
		if err == nil {
			n++
			return fmt.Errorf("entry %d was recorded", n)
		}
		if text := err.Error(); !strings.Contains(text, "not connected to NATS") || !strings.Contains(text, "have expired: renew them") {
			return err
		}
		wantPlain(t, "Append with credentials that have expired", err)
		return nil
	})
	o.writeCredentials(path, time.Hour)
	insist(t, l, n+1)
	wantLog(t, mustLeaseAgain(t, log, l), 1, n+1)
}

// mustLeaseAgain returns the lease, or the next one if it was lost.
func mustLeaseAgain(t *testing.T, log *Log, l *lease) *lease {
	t.Helper()
	if isOpen(l.Lost()) {
		return l
	}
	return takeOver(t, log, l.own.shard)
}

// operator signs credentials, as nsc does.
type operator struct {
	t                              *testing.T
	self, account, system          nkeys.KeyPair
	selfID, accountID, systemID    string
	selfText, accountText, sysText string
}

func keys(t *testing.T, pair nkeys.KeyPair) (public, seed string) {
	t.Helper()
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return public, string(raw)
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{t: t}
	create := func(f func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		pair, err := f()
		if err != nil {
			t.Fatal(err)
		}
		public, _ := keys(t, pair)
		return pair, public
	}
	o.self, o.selfID = create(nkeys.CreateOperator)
	o.account, o.accountID = create(nkeys.CreateAccount)
	o.system, o.systemID = create(nkeys.CreateAccount)
	limits := map[string]any{
		"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
		"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
	}
	o.selfText = o.sign(o.self, o.selfID, map[string]any{"type": "operator", "version": 2, "system_account": o.systemID}, 0)
	o.accountText = o.sign(o.self, o.accountID, map[string]any{"type": "account", "version": 2, "limits": limits}, 0)
	o.sysText = o.sign(o.self, o.systemID, map[string]any{"type": "account", "version": 2, "limits": map[string]any{
		"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
	}}, 0)
	return o
}

// sign returns a token with claims about the subject that is valid for ttl.
func (o *operator) sign(by nkeys.KeyPair, subject string, about map[string]any, ttl time.Duration) string {
	o.t.Helper()
	issuer, err := by.PublicKey()
	if err != nil {
		o.t.Fatal(err)
	}
	claims := map[string]any{"iat": time.Now().Unix(), "iss": issuer, "sub": subject, "name": "test", "nats": about}
	if ttl > 0 {
		claims["exp"] = time.Now().Add(ttl).Unix()
	}
	text, err := json.Marshal(claims)
	if err != nil {
		o.t.Fatal(err)
	}
	sum := sha512.Sum512_256(text)
	claims["jti"] = base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
	if text, err = json.Marshal(claims); err != nil {
		o.t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	token := encode([]byte(`{"typ":"JWT","alg":"ed25519-nkey"}`)) + "." + encode(text)
	signature, err := by.Sign([]byte(token))
	if err != nil {
		o.t.Fatal(err)
	}
	return token + "." + encode(signature)
}

func (o *operator) config() string {
	return fmt.Sprintf("operator: %s\nresolver: MEMORY\nresolver_preload: { %s: %s, %s: %s }\nsystem_account: %s\n",
		o.selfText, o.accountID, o.accountText, o.systemID, o.sysText, o.systemID)
}

func (o *operator) writeCredentials(path string, ttl time.Duration) {
	o.t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		o.t.Fatal(err)
	}
	public, seed := keys(o.t, user)
	token := o.sign(o.account, public, map[string]any{
		"type": "user", "version": 2, "pub": map[string]any{}, "sub": map[string]any{}, "subs": -1, "data": -1, "payload": -1,
	}, ttl)
	text := "-----BEGIN NATS USER JWT-----\n" + token + "\n------END NATS USER JWT------\n\n" +
		"-----BEGIN USER NKEY SEED-----\n" + seed + "\n------END USER NKEY SEED------\n"
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		o.t.Fatal(err)
	}
}

// The error of Open shows its caller whether a later attempt may succeed.
func TestErrorsThatMayPassAreThoseOfARunner(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{URL: nodes.URL(), Name: newName(), Shards: 2}
	openTest(t, cfg)
	change := func(change func(*Config)) Config {
		c := cfg
		change(&c)
		return c
	}
	const noServers = "no servers"
	tests := []struct {
		name string
		cfg  Config
		may  bool
	}{
		{noServers, change(func(c *Config) { c.URL = "nats://127.0.0.1:1" }), true},
		{"refused credentials", change(func(c *Config) { c.User = "stranger" }), false},
		{"another number of shards", change(func(c *Config) { c.Shards = 3 }), false},
		{"a bad configuration", change(func(c *Config) { c.Shards = -1 }), false},
		{"no second place", change(func(c *Config) { c.SecondPlace = "/nowhere/at/all" }), false},
	}
	for _, test := range tests {
		ctx, cancel := context.WithCancel(t.Context())
		if test.name == noServers {
			// real clock: nothing listens there, so Open never succeeds
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		}
		_, err := Open(ctx, test.cfg)
		cancel()
		gaveUp, may := errors.AsType[*retry.Error](err)
		if err == nil || (may && gaveUp.Reason != retry.StopPermanent) != test.may {
			t.Errorf("%s: Open = %v; may pass: %v; want %v", test.name, err, may, test.may)
		}
	}
}
