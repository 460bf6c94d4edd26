package notify_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/retry"
)

var discard = log.New(io.Discard, "", 0)

func pool(t testing.TB, cert []byte) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(cert) {
		t.Fatal("no certificate")
	}
	return p
}

// certificate returns a self-signed certificate for 127.0.0.1, also as PEM.
func certificate(t testing.TB) (pair *tls.Certificate, cert []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "smtptest"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func mailsIn(t testing.TB, dir string) (list []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.eml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(data))
	}
	return list
}

func emailYAML(addr, rest string) string {
	return `{timeout: 1h, email: {to: [me@example.com, "Öps <ops@example.com>"], from: "Tide <tide@example.com>", server: "` + addr + `", ` + rest + `}}`
}

const loginYAML = `username: me, password: "${env:P}"`

func TestEmail(t *testing.T) {
	pair, cert := certificate(t)
	for name, c := range map[string]struct {
		server smtpConfig
		yaml   string
	}{
		"starttls":              {smtpConfig{Certificate: pair, User: "me", Password: "pw-PLANTED"}, loginYAML},
		"starttls, LOGIN":       {smtpConfig{Certificate: pair, User: "me", Password: "pw-PLANTED", Mechanism: "LOGIN"}, loginYAML},
		"implicit":              {smtpConfig{Certificate: pair, Implicit: true, User: "me", Password: "pw-PLANTED"}, loginYAML + ", tls: implicit"},
		"none, on this machine": {smtpConfig{User: "me", Password: "pw-PLANTED"}, loginYAML + ", tls: none"},
		"none, without a login": {smtpConfig{}, "tls: none"},
	} {
		t.Run(name, func(t *testing.T) {
			addr, dir := startSMTP(t, c.server)
			n, env := load(t, emailYAML(addr, c.yaml), "P=pw-PLANTED")
			env.RootCAs = pool(t, cert)
			m := message()
			m.Title = "nächtlich\r\nBcc: evil@example.com"
			m.Text = "first\n.\n.second ünd " + strings.Repeat("long ", 40)
			if err := open(t, n, env).Send(context.Background(), m); err != nil {
				t.Fatal(err)
			}
			got := mailsIn(t, dir)
			if len(got) != 1 {
				t.Fatalf("%d mails", len(got))
			}
			checkMail(t, got[0], m.Text)
		})
	}
}

func checkMail(t *testing.T, got, text string) {
	t.Helper()
	envelope, rest, _ := strings.Cut(got, "\n")
	if want := "tide@example.com > me@example.com ops@example.com"; envelope != want {
		t.Errorf("envelope %q, want %q", envelope, want)
	}
	msg, err := mail.ReadMessage(strings.NewReader(rest))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(msg.Header.Get("Subject"))
	if err != nil || subject != "nächtlich Bcc: evil@example.com" || msg.Header.Get("Bcc") != "" {
		t.Errorf("Subject %q, %v; Bcc %q", subject, err, msg.Header.Get("Bcc"))
	}
	if id := msg.Header.Get("Message-ID"); id != "<0123456789abcdef@example.com>" {
		t.Errorf("Message-ID %q", id)
	}
	if d, err := msg.Header.Date(); err != nil || !d.Equal(at) {
		t.Errorf("Date %v, %v", d, err)
	}
	if to, err := msg.Header.AddressList("To"); err != nil || len(to) != 2 || to[1].Name != "Öps" {
		t.Errorf("To %v, %v", to, err)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(msg.Body))
	want := text + "\nrun 01K9\nhttp://127.0.0.1:7878/runs/01K9\nfrom box\n"
	if plain := strings.ReplaceAll(string(body), "\r\n", "\n"); err != nil || plain != want {
		t.Errorf("body %q, %v, want %q", plain, err, want)
	}
}

func TestWhatAMailServerSays(t *testing.T) {
	pair, cert := certificate(t)
	for _, c := range []struct {
		name, script, says string
		class              retry.Class
		mails              int
	}{
		{"the sender is refused for now", "mail:451", "451", retry.ClassTransient, 0},
		{"the sender is refused", "mail:550", "550", retry.ClassPermanent, 0},
		{"one recipient is refused", "rcpt:250,rcpt:550", "to ops@example.com: 550", retry.ClassPermanent, 1},
		{"one recipient is refused for now", "rcpt:550,rcpt:450", "to ops@example.com: 450", retry.ClassTransient, 0},
		{"all recipients are refused", "rcpt:550,rcpt:551", "551", retry.ClassPermanent, 0},
		{"the mail is refused for now", "data:452", "452", retry.ClassTransient, 0},
		{"the mail is refused", "data:554", "554", retry.ClassPermanent, 0},
		{"the login can't be checked now", "auth:454", "log in: 454", retry.ClassTransient, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, dir := startSMTP(t, smtpConfig{Certificate: pair, User: "me", Password: "pw-PLANTED", Script: c.script})
			n, env := load(t, emailYAML(addr, loginYAML), "P=pw-PLANTED")
			env.RootCAs = pool(t, cert)
			err := send(open(t, n, env))
			wantError(t, err, c.says, addr)
			if got := retry.OutcomeOf(err).Class; got != c.class || len(mailsIn(t, dir)) != c.mails {
				t.Errorf("%v: %v, %d mails, want %v and %d", err, got, len(mailsIn(t, dir)), c.class, c.mails)
			}
		})
	}
}

// envelopes returns the sender and the recipients of each stored mail.
func envelopes(t *testing.T, dir string) (list []string) {
	t.Helper()
	for _, m := range mailsIn(t, dir) {
		envelope, _, _ := strings.Cut(m, "\n")
		list = append(list, strings.TrimPrefix(envelope, "tide@example.com > "))
	}
	return list
}

// TestEveryRecipientGetsOneMail retries as callers do: each attempt gets the message that
// Progress of the last error returns.
func TestEveryRecipientGetsOneMail(t *testing.T) {
	const me, ops, both = "me@example.com", "ops@example.com", "me@example.com ops@example.com"
	for _, c := range []struct {
		name, script string
		outcomes     []string // outcome of each attempt
		mails        []string // recipients of each mail
		progress     []string // recipients that have the mail after the last error
	}{
		{"all at once", "", []string{""}, []string{both}, nil},
		{"the second twice not now", "rcpt:250,rcpt:450,rcpt:451,rcpt:250", []string{"450", "451", ""}, []string{me, ops}, []string{me}},
		{"the first not now", "rcpt:450,rcpt:250", []string{"450", ""}, []string{ops, me}, []string{ops}},
		{"the second never", "rcpt:250,rcpt:550", []string{"550"}, []string{me}, []string{me}},
		{"the first never, the second later", "rcpt:550,rcpt:450,rcpt:550,rcpt:250", []string{"450", "550"}, []string{ops}, []string{ops}},
		{"the mail not now, then one of them", "data:451,rcpt:450,rcpt:250", []string{"451", "450", ""}, []string{ops, me}, []string{ops}},
		{"no recipient, then both", "rcpt:450,rcpt:450", []string{"450", ""}, []string{both}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, dir := startSMTP(t, smtpConfig{Script: c.script})
			s := sender(t, emailYAML(addr, "tls: none"))
			m := message()
			var progress []string
			for i, want := range c.outcomes {
				err := s.Send(context.Background(), m)
				if want == "" {
					if err != nil {
						t.Fatalf("attempt %d: %v", i+1, err)
					}
					continue
				}
				wantError(t, err, want)
				e, ok := errors.AsType[*notify.SendError](err)
				if !ok {
					t.Fatalf("attempt %d: a %T", i+1, err)
				}
				m = stored(t, e.Progress())
				progress = m.Delivered
			}
			if got := envelopes(t, dir); !slices.Equal(got, c.mails) || !slices.Equal(progress, c.progress) {
				t.Errorf("mails to %q, progress %q, want %q and %q", got, progress, c.mails, c.progress)
			}
		})
	}
}

// stored returns the message after it is encoded as JSON and decoded.
func stored(t *testing.T, m notify.Message) (back notify.Message) {
	t.Helper()
	data, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil || !reflect.DeepEqual(back, m) {
		t.Fatalf("%+v came back as %+v, %v", m, back, err)
	}
	return back
}

func TestAMailThatAllRecipientsHaveIsNotSent(t *testing.T) {
	s := sender(t, emailYAML("127.0.0.1:1", "tls: none")) // no server listens there
	m := message()
	m.Delivered = []string{"ops@example.com", "me@example.com"}
	if err := s.Send(context.Background(), m); err != nil {
		t.Error(err)
	}
}

func TestAMailIsNotSentInDoubt(t *testing.T) {
	pair, cert := certificate(t)
	for _, c := range []struct {
		name   string
		server smtpConfig
		yaml   string
		trust  bool
		says   string
		class  retry.Class
	}{
		{"a wrong password", smtpConfig{Certificate: pair, User: "me", Password: "other"}, loginYAML, true, "log in: 535", retry.ClassPermanent},
		{"a wrong password of LOGIN", smtpConfig{Certificate: pair, User: "me", Password: "other", Mechanism: "LOGIN"}, loginYAML, true, "log in: 535", retry.ClassPermanent},
		{"an unknown certificate", smtpConfig{Certificate: pair}, "tls: starttls", false, "certificate", retry.ClassTransient},
		{"an unknown certificate at once", smtpConfig{Certificate: pair, Implicit: true}, "tls: implicit", false, "certificate", retry.ClassTransient},
		{"no STARTTLS", smtpConfig{}, loginYAML, true, "does not offer STARTTLS", retry.ClassPermanent},
		{"no mechanism", smtpConfig{Certificate: pair, User: "me", Mechanism: "X-OTHER"}, loginYAML, true, "neither AUTH PLAIN nor AUTH LOGIN", retry.ClassPermanent},
		{"a server that hangs", smtpConfig{Script: "mail:hang"}, "tls: none", true, "timed out after", retry.ClassTransient},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, dir := startSMTP(t, c.server)
			yaml := emailYAML(addr, c.yaml)
			if strings.Contains(c.name, "hangs") {
				yaml = strings.Replace(yaml, "timeout: 1h", "timeout: 50ms", 1)
			}
			n, env := load(t, yaml, "P=pw-PLANTED")
			if c.trust {
				env.RootCAs = pool(t, cert)
			}
			err := send(open(t, n, env))
			wantError(t, err, c.says)
			if got := retry.OutcomeOf(err).Class; got != c.class || len(mailsIn(t, dir)) != 0 {
				t.Errorf("%v: %v, %d mails, want %v and none", err, got, len(mailsIn(t, dir)), c.class)
			}
		})
	}
}

func TestNoMailServerIsTransient(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	err = send(sender(t, emailYAML(l.Addr().String(), loginYAML), "P=pw-PLANTED"))
	wantError(t, err, "refused")
	if retry.OutcomeOf(err).Class != retry.ClassTransient {
		t.Errorf("%v is not transient", err)
	}
}
