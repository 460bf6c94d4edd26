//go:build unix

package serve_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/certtest"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

const aDay = 24 * time.Hour

// tlsServer is a server that uses TLS, with the authority of its certificate.
type tlsServer struct {
	*clitest.Server
	ca *certtest.Authority
}

// client returns a client for HTTP/1.1 or HTTP/2 that trusts the authority and follows no
// redirects. change modifies the TLS configuration.
func (s *tlsServer) client(http2 bool, change ...func(*tls.Config)) *http.Client {
	c := &tls.Config{RootCAs: s.ca.Pool(), MinVersion: tls.VersionTLS12}
	for _, f := range change {
		f(c)
	}
	tr := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: http2, MaxIdleConnsPerHost: 8}
	s.T.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// token returns the token of the server.
func (s *tlsServer) token() string {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(s.Data, "token"))
	if err != nil {
		s.T.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// get sends a request and returns the response and its body. header has pairs of name and value.
func (s *tlsServer) get(c *http.Client, method, path string, header ...string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(s.T.Context(), method, s.Address()+path, nil)
	if err != nil {
		return nil, "", err
	}
	for i := 0; i < len(header); i += 2 {
		if req.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

// shown returns the certificate that the server presents on a new connection.
func (s *tlsServer) shown() *x509.Certificate {
	s.T.Helper()
	d := tls.Dialer{Config: &tls.Config{RootCAs: s.ca.Pool(), MinVersion: tls.VersionTLS12}}
	conn, err := d.DialContext(s.T.Context(), "tcp", strings.Trim(strings.TrimPrefix(s.Address(), "https:"), "/"))
	if err != nil {
		s.T.Fatal(err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// runAt runs a command that connects to the address with the token. ca is the value of
// $TIDEOVER_CA.
func (s *tlsServer) runAt(address, ca string, args ...string) clitest.Outcome {
	s.T.Helper()
	cmd, _ := clitest.Command(s.T, append(args, "--server", address)...)
	cmd.Env = append(cmd.Env, "TIDEOVER_TOKEN="+s.token(), "TIDEOVER_CA="+ca)
	return clitest.Finish(s.T, cmd)
}

// One server with TLS: the page, both versions of HTTP, rejected requests, commands, warnings, and
// the renewal of the certificate.
func TestServeSpeaksTLS(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := &tlsServer{ca: certtest.New(t)}
	dir := clitest.ShortDir(t)
	s.ca.Issue(t, time.Now().Add(10*aDay-time.Hour), "127.0.0.1").Write(t, dir)
	s.Server = clitest.Serve(t, fmt.Sprintf(`version: 1
workflows: {hello: {steps: [{id: say, run: [echo, hello]}]}}
providers: {up: {base-url: %s, auth: none}}
server: {tls: {cert: cert.pem, key: ./key.pem}}
`, clitest.Upstream(t, &asked, 200)), dir)
	if !strings.HasPrefix(s.Address(), "https://127.0.0.1:") {
		t.Fatalf("the page is at %s", s.Address())
	}
	s.pageOverTLS()
	s.bothVersions()
	s.refusals()
	s.runCommands()
	s.endsSoon()
	s.renewal()
	s.badRenewal()
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	if t.Failed() {
		t.Log(s.Log)
	}
}

// pageOverTLS opens the link to the web page, and checks the cookie and the page.
func (s *tlsServer) pageOverTLS() {
	s.T.Helper()
	c := s.client(true)
	resp, _, err := s.get(c, "GET", "?token="+s.token(), "Accept", "text/html")
	if err != nil || resp.StatusCode != http.StatusSeeOther {
		s.T.Fatalf("the link: %+v, %v", resp, err)
	}
	cookie := resp.Header.Get("Set-Cookie")
	clitest.WantIn(s.T, "cookie", cookie, "; HttpOnly; Secure; SameSite=Strict")
	if hsts := resp.Header.Get("Strict-Transport-Security"); hsts != "" {
		s.T.Errorf("HSTS %q would be for all ports of the host", hsts)
	}
	resp, text, err := s.get(c, "GET", "health", "Accept", "text/html", "Cookie", cookie)
	if err != nil || resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		s.T.Fatalf("the page: %+v, %v", resp, err)
	}
	clitest.WantIn(s.T, "health", text, "the certificate expires in 9 days")
	post := func(origin, site string) int {
		resp, _, err := s.get(c, "POST", "api/v1/runs/none/wake", "Cookie", cookie, "Origin", origin, "Sec-Fetch-Site", site)
		if err != nil {
			s.T.Fatal(err)
		}
		return resp.StatusCode
	}
	own := strings.TrimSuffix(s.Address(), "/")
	if got := [2]int{post(own, "same-origin"), post("https://evil.example", "cross-site")}; got != [2]int{http.StatusNotFound, http.StatusForbidden} {
		s.T.Errorf("a change that our own page wants, and another's: %v", got)
	}
}

// bothVersions sends requests to the API and the gateway over HTTP/1.1 and HTTP/2.
func (s *tlsServer) bothVersions() {
	s.T.Helper()
	for version, c := range map[int]*http.Client{1: s.client(false), 2: s.client(true)} {
		for path, want := range map[string]string{
			"api/v1/status": `"uptime_s"`, "p/up/a?b=c": "/a?b=c", "metrics": "tideover_certificate_end_timestamp_seconds ", "healthz": `"ok":true`,
		} {
			resp, text, err := s.get(c, "GET", path, "Authorization", "Bearer "+s.token())
			if err != nil || resp.StatusCode != http.StatusOK || resp.ProtoMajor != version || !strings.Contains(text, want) {
				s.T.Errorf("%s over HTTP/%d: %+v, %q, %v", path, version, resp, text, err)
			}
		}
	}
}

// refusals checks that the server rejects wrong hosts, requests without a token, and connections
// with an old version of TLS or without TLS.
func (s *tlsServer) refusals() {
	s.T.Helper()
	if resp, _, err := s.get(s.client(false), "GET", "healthz", "Host", "evil.example"); err != nil || resp.StatusCode != http.StatusMisdirectedRequest {
		s.T.Errorf("another host: %+v, %v", resp, err)
	}
	if resp, _, err := s.get(s.client(true), "GET", "api/v1/status"); err != nil || resp.StatusCode != http.StatusUnauthorized {
		s.T.Errorf("without a token: %+v, %v", resp, err)
	}
	old := s.client(false, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 })
	if resp, _, err := s.get(old, "GET", "healthz"); err == nil || !strings.Contains(err.Error(), "protocol version") {
		s.T.Errorf("TLS 1.1: %+v, %v", resp, err)
	}
	resp, text := clitest.Fetch(s.T, "GET", strings.Replace(s.Address(), "https", "http", 1), "")
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "HTTPS server") {
		s.T.Errorf("without TLS: %s, %q", resp.Status, text)
	}
}

// runCommands runs commands against the server.
func (s *tlsServer) runCommands() {
	s.T.Helper()
	https := strings.TrimSuffix(s.Address(), "/")
	o := s.runAt(https, s.ca.File, "run", "hello", "--wait")
	clitest.WantCode(s.T, o, 0)
	clitest.WantIn(s.T, "output", o.Out, `"hello\n"`)
	for _, c := range []struct{ name, address, ca, want string }{
		{"an unknown authority", https, "", "set TIDEOVER_CA to a file"},
		{"no such file", https, s.Data + "/none", "TIDEOVER_CA: open"},
		{"without TLS", strings.Replace(https, "https", "http", 1), "", "the server speaks TLS: write https://"},
	} {
		o := s.runAt(c.address, c.ca, "status")
		if o.Code != cli.CodeOwn || !strings.Contains(o.Stderr, c.want) {
			s.T.Errorf("%s: exit %d, %q, want %q", c.name, o.Code, o.Stderr, c.want)
		}
	}
	clitest.WantCode(s.T, s.RunCommand("status"), 0) // over the Unix socket, which does not use TLS
}

// endsSoon checks the warnings that the certificate expires soon.
func (s *tlsServer) endsSoon() {
	s.T.Helper()
	o := clitest.Run(s.T, "doctor", "--config", s.File)
	clitest.WantCode(s.T, o, cli.CodeFailed)
	clitest.WantIn(s.T, "doctor", o.Out, "the certificate expires in 9 days")
	if n := strings.Count(s.Log.String(), "the certificate expires in 9 days"); n != 1 {
		s.T.Errorf("it is %d times in the log: %s", n, s.Log)
	}
}

// renewal replaces the certificate while requests use existing and new connections, and while a
// stream is open.
func (s *tlsServer) renewal() {
	s.T.Helper()
	before := s.shown()
	stop, stream := make(chan struct{}), s.openStream()
	var all sync.WaitGroup
	var requests, dials atomic.Int64
	kept := s.client(true)
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if !i.Reused {
			dials.Add(1)
		}
	}}
	for i := range 4 {
		c := kept
		if i == 0 {
			c = s.client(false)
			c.Transport.(*http.Transport).DisableKeepAlives = true
		}
		all.Go(func() {
			for more := true; more; requests.Add(1) {
				req, _ := http.NewRequestWithContext(s.T.Context(), "GET", s.Address()+"p/up/x", nil)
				if c == kept {
					req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
				}
				resp, err := c.Do(req)
				if err != nil {
					s.T.Errorf("while the certificate is renewed: %v", err)
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
					s.T.Errorf("while the certificate is renewed: %s, %v", resp.Status, err)
				}
				_ = resp.Body.Close()
				select {
				case <-stop:
					more = false
				case <-time.After(2 * time.Millisecond): // real clock: the pace of the load
				}
			}
		})
	}
	s.ca.Issue(s.T, time.Now().Add(60*aDay), "127.0.0.1").Write(s.T, s.Folder)
	testwait.Until(s.T, "the new certificate is shown", func() bool { return s.shown().SerialNumber.Cmp(before.SerialNumber) != 0 })
	told := requests.Load()
	testwait.Until(s.T, "requests go on", func() bool { return requests.Load() > told+20 })
	close(stop)
	all.Wait()
	if n := dials.Load(); n < 1 || n > 3 { // three clients may connect at the same time at the start
		s.T.Errorf("%d connections for callers that keep theirs", n)
	}
	clitest.WantCode(s.T, s.runAt(strings.TrimSuffix(s.Address(), "/"), s.ca.File, "run", "hello", "--wait"), 0)
	stream.sees("Started")
}

// eventStream is an open stream of events.
type eventStream struct {
	t    *testing.T
	text *clitest.SyncBuffer
	end  func()
	err  chan error
}

// openStream opens a stream of events.
func (s *tlsServer) openStream() *eventStream {
	s.T.Helper()
	ctx, cancel := context.WithCancel(s.T.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", s.Address()+"api/v1/events", nil)
	req.Header.Set("Authorization", "Bearer "+s.token())
	c := s.client(true)
	c.Timeout = 0
	resp, err := c.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	f := &eventStream{t: s.T, text: new(clitest.SyncBuffer), err: make(chan error, 1)}
	go func() {
		_, err := io.Copy(f.text, resp.Body)
		_ = resp.Body.Close()
		f.err <- err
	}()
	f.end = cancel
	return f
}

// sees waits for a text in the stream, checks that the stream is still open, and closes it.
func (f *eventStream) sees(what string) {
	f.t.Helper()
	testwait.Until(f.t, "the stream goes on", func() bool { return strings.Contains(strings.ToLower(f.text.String()), strings.ToLower(what)) })
	select {
	case err := <-f.err:
		f.t.Errorf("the stream was cut: %v", err)
	default:
		f.end()
		<-f.err
	}
}

// badRenewal writes an expired certificate, which the server does not use, and then a valid one,
// which it uses.
func (s *tlsServer) badRenewal() {
	s.T.Helper()
	before := s.shown()
	const stays = "the certificate was not reloaded"
	good := s.ca.Issue(s.T, time.Now().Add(60*aDay), "127.0.0.1")
	s.ca.Issue(s.T, time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC), "127.0.0.1").Write(s.T, s.Folder)
	testwait.Until(s.T, "the log says why", func() bool { return strings.Contains(s.Log.String(), stays) })
	if s.shown().SerialNumber.Cmp(before.SerialNumber) != 0 {
		s.T.Error("another certificate is shown")
	}
	s.Signal(syscall.SIGHUP)
	testwait.Until(s.T, "the file is read again", func() bool { return strings.Contains(s.Log.String(), "the configuration was not reloaded") })
	good.Write(s.T, s.Folder)
	testwait.Until(s.T, "the new certificate is shown", func() bool { return s.shown().SerialNumber.Cmp(before.SerialNumber) != 0 })
	for line := range strings.Lines(s.Log.String()) {
		if strings.Contains(line, stays) {
			clitest.WantIn(s.T, "log", line, "server.tls.cert: "+s.Folder+"/cert.pem: the certificate expired on 2020-02-03 04:05 UTC")
		}
	}
	if n := strings.Count(s.Log.String(), stays); n != 1 {
		s.T.Errorf("it is said %d times: %s", n, s.Log)
	}
}

// A standalone gateway uses TLS with the certificate that variables name.
func TestGatewaySpeaksTLS(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := &tlsServer{ca: certtest.New(t)}
	cert, key := s.ca.Issue(t, time.Now().Add(60*aDay), "localhost").Write(t, t.TempDir())
	s.Server = clitest.GatewayFile(t, "version: 1\nproviders: {up: {base-url: "+clitest.Upstream(t, &asked, 200)+", auth: none}}\n",
		"TIDEOVER_SERVER_TLS_CERT="+cert, "TIDEOVER_SERVER_TLS_KEY="+key)
	clitest.WantIn(t, "start", s.Log.String(), "tideover: up is at https://localhost:") // the name in the certificate
	clitest.WantIn(t, "start", s.Log.String(), "the page is at https://localhost:")
	if resp, text, err := s.get(s.client(true), "GET", "p/up/a"); err != nil || resp.StatusCode != 200 || resp.ProtoMajor != 2 || !strings.Contains(text, "/a") {
		t.Errorf("the gateway: %+v, %q, %v", resp, text, err)
	}
	before := s.shown()
	s.ca.Issue(t, time.Now().Add(61*aDay), "localhost").Write(t, filepath.Dir(cert))
	s.Signal(syscall.SIGHUP)
	testwait.Until(t, "the new certificate is shown", func() bool { return s.shown().SerialNumber.Cmp(before.SerialNumber) != 0 })
	clitest.WantCode(t, s.runAt(strings.TrimSuffix(s.Address(), "/"), s.ca.File, "providers"), 0)
}

func TestServeRefusesAWrongCertificate(t *testing.T) {
	t.Parallel()
	dir := clitest.ShortDir(t)
	a := certtest.New(t)
	cert, key := a.Issue(t, time.Now().Add(aDay), "localhost").Write(t, dir)
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "tideover.yaml")
	clitest.WriteFile(t, file, "version: 1\nserver: {data: ./data}\n")
	o := clitest.Run(t, "serve", "--config", file, "--tls-cert", cert, "--tls-key", key)
	clitest.WantCode(t, o, cli.CodeOwn)
	clitest.WantIn(t, "error", o.Stderr, "flag --tls-key: server.tls.key: \""+key+"\": other users can read it (-rw-r--r--): run chmod 600")
	o = clitest.Run(t, "config", "show", "--origin", "--config", file, "--tls-cert", cert)
	clitest.WantCode(t, o, cli.CodeOwn)
	clitest.WantIn(t, "error", o.Stderr, "flag --tls-cert: server.tls.cert: requires key")
	o = clitest.Run(t, "serve", "--demo", "--config", file, "--tls-cert", cert, "--tls-key", key)
	clitest.WantCode(t, o, cli.CodeOwn)
}

func TestTheDoctorSeesATokenInTheClear(t *testing.T) {
	t.Parallel()
	_, found := clitest.Examined(t, "version: 1\nserver: {data: "+t.TempDir()+", listen: '0.0.0.0:7878', hosts: [a.example], token: '${env:TOKEN}'}\n", "TOKEN=0123456789abcdef")
	clitest.WantIn(t, "notes", found["note"], "server.listen is 0.0.0.0:7878, which other machines can reach without TLS")
}

// The commands in docs/tls.md create a certificate that the server can load and a client can
// verify.
func TestTheCertificateOfThePageIsOne(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("there is no openssl; scripts/test-tools.sh installs it")
	}
	dir := t.TempDir()
	for _, script := range clitest.Blocks(t, "tls.md", "sh") {
		if !strings.HasPrefix(script, "openssl") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	pair, err := config.ServerTLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}.Load(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own := x509.NewCertPool()
	own.AddCert(pair.Leaf)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: own, DNSName: "tideover.example.com"}); err != nil {
		t.Error(err)
	}
}
