package gateway

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
)

func TestAdmission(t *testing.T) {
	withToken := func(o *Options) {
		o.Token = NewSecret("the-token")
		o.Hosts = []string{"Gateway.example:7878", "named.example"}
	}
	plain := func(o *Options) { o.Hosts = []string{"Gateway.example:7878"} }
	for _, tt := range []struct {
		name    string
		options func(*Options)
		host    string // "" means the address of the server
		remote  string // "" means a loopback address
		method  string
		headers []string
		code    int
		word    string
	}{
		{name: "from this machine", options: plain, code: 200},
		{name: "by name", options: plain, host: "localhost:7878", code: 200},
		{name: "by an address of the loopback net", options: plain, host: "127.1.2.3", code: 200},
		{name: "by the address of IPv6", options: plain, host: "[::1]:7878", code: 200},
		{name: "by a name of its own", options: plain, host: "gateway.example.:7878", code: 200},
		{name: "by that name and another port", options: plain, host: "gateway.example:1", code: 421, word: codeHost},
		{name: "by a name without a port", options: withToken, host: "named.example:99", headers: []string{"X-Api-Key", "the-token"}, code: 200},
		{name: "by a name that was made to lead here", options: plain, host: "evil.example", code: 421, word: codeHost},
		{name: "by a name that looks like one of ours", options: plain, host: "localhost.evil.example", code: 421, word: codeHost},
		{name: "from another machine", options: plain, remote: "192.0.2.7:1234", code: 401, word: codeToken},
		{name: "from another machine with the token", options: withToken, remote: "192.0.2.7:1234", headers: []string{"Authorization", "Bearer the-token"}, code: 200},
		{name: "without the token", options: withToken, code: 401, word: codeToken},
		{name: "with a wrong token", options: withToken, headers: []string{"Authorization", "Bearer the-tokem", "X-Api-Key", ""}, code: 401, word: codeToken},
		{name: "with the token as a password", options: withToken, headers: []string{"Authorization", "Basic the-token"}, code: 401, word: codeToken},
		{name: "from a page of another site", options: plain, headers: []string{"Sec-Fetch-Site", "cross-site"}, code: 403, word: codeCrossSite},
		{name: "from a page of a neighbour", options: plain, headers: []string{"Sec-Fetch-Site", "same-site"}, code: 403, word: codeCrossSite},
		{name: "posted from a page of another site", method: http.MethodPost, options: plain, headers: []string{"Origin", "https://evil.example"}, code: 403, word: codeCrossSite},
		{name: "from a page without an origin", options: plain, headers: []string{"Origin", "null"}, code: 403, word: codeCrossSite},
		{name: "from a page of another site, with the token", options: withToken, headers: []string{"Origin", "https://evil.example", "X-Api-Key", "the-token"}, code: 403, word: codeCrossSite},
		{name: "from the address bar", options: plain, headers: []string{"Sec-Fetch-Site", "none"}, code: 200},
		{name: "from a page of its own", options: plain, host: "localhost:7878", headers: []string{"Origin", "http://localhost:7878"}, code: 200},
		{name: "with a priority that there is not", options: plain, headers: []string{"X-Tideover-Priority", "urgent"}, code: 400, word: codePriority},
		{name: "with a priority", options: plain, headers: []string{"X-Tideover-Priority", "highest"}, code: 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newTestServer(t, says("ok"))
				r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)}, tt.options)
				method := tt.method
				if method == "" {
					method = http.MethodGet
				}
				req := httptest.NewRequest(method, "/p/it/x", nil)
				req.Host, req.RemoteAddr = "127.0.0.1:7878", "127.0.0.1:5555"
				if tt.host != "" {
					req.Host = tt.host
				}
				if tt.remote != "" {
					req.RemoteAddr = tt.remote
				}
				for i := 0; i < len(tt.headers); i += 2 {
					req.Header.Set(tt.headers[i], tt.headers[i+1])
				}
				w := httptest.NewRecorder()
				r.ServeHTTP(w, req)
				if w.Code != tt.code {
					t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.code)
				}
				if sent := u.count(); (sent == 1) != (tt.code == 200) {
					t.Errorf("sent %d times", sent)
				}
				if tt.word != "" {
					if got := (reply{body: w.Body.String()}).errorCode(t); got != tt.word {
						t.Errorf("the answer has the code %q, want %q", got, tt.word)
					}
				}
			})
		})
	}
}

// A client that can open the socket needs no token and may send any Host.
func TestASocketNeedsNoToken(t *testing.T) {
	u := newTestServer(t, says("ok"))
	r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)}, func(o *Options) { o.Token = NewSecret("the-token") })
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: r.Gateway}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://any-host/p/it/x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("got %s", resp.Status)
	}
}

func TestPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, says("ok"))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL+"/base%2Fx/"), spec(t, "root", Generic, u.URL)})
		for _, tt := range []struct {
			path string
			code int
			sent string
		}{
			{"/p/it/v1/x", 200, "/base%2Fx/v1/x"},
			{"/p/it/", 200, "/base%2Fx/"},
			{"/p/it", 200, "/base%2Fx/"},
			{"/p/root", 200, "/"},
			{"/p/it/a%2Fb//c%20d", 200, "/base%2Fx/a%2Fb//c%20d"},
			{"/p/it/models/gemini-2.5-pro:generateContent", 200, "/base%2Fx/models/gemini-2.5-pro:generateContent"},
			{"/p/it/...", 200, "/base%2Fx/..."},
			{"/p/it/../secret", 400, ""},
			{"/p/it/a/%2e%2E/secret", 400, ""},
			{"/p/it/a%2f..%2fsecret", 400, ""},
			{`/p/it/a%5c..%5csecret`, 400, ""},
			{"/p/it/.", 400, ""},
			{"/p/it/..;x=1/secret", 400, ""},
			{"/p/other/x", 404, ""},
			{"/p//x", 404, ""},
			{"/x", 404, ""},
		} {
			before := u.count()
			req := httptest.NewRequest(http.MethodGet, tt.path, nil)
			req.Host, req.RemoteAddr = "localhost", "127.0.0.1:1"
			w := httptest.NewRecorder()
			r.ServeHTTP(w, req)
			if w.Code != tt.code {
				t.Errorf("%s: got %d %s, want %d", tt.path, w.Code, w.Body, tt.code)
			}
			list := u.requests()[before:]
			if tt.sent == "" && len(list) > 0 {
				t.Errorf("%s was sent to %s", tt.path, list[0].path)
			} else if tt.sent != "" && (len(list) != 1 || list[0].path != tt.sent) {
				t.Errorf("%s was sent to %+v, want %s", tt.path, list, tt.sent)
			}
		}
	})
}
