package retryhttp_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	secure.Config.ErrorLog = nil
	get := func(url string) (*http.Request, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := new(http.Client).Do(req)
		if err == nil {
			_ = resp.Body.Close()
			t.Fatalf("get %s succeeds", url)
		}
		return req, err
	}
	untrusted, errUntrusted := get(secure.URL)
	for name, c := range map[string]struct {
		req  *http.Request
		err  error
		want retry.Class
	}{
		"a certificate that is not trusted":  {untrusted, errUntrusted, retry.ClassPermanent},
		"an unknown host":                    {untrusted, &net.DNSError{IsNotFound: true}, retry.ClassPermanent},
		"a name server that does not answer": {untrusted, &net.DNSError{IsTimeout: true}, retry.ClassTransient},
		"a connection that ends":             {untrusted, io.ErrUnexpectedEOF, retry.ClassTransient},
		"what says so itself":                {untrusted, retry.Permanent(errors.New("x")), retry.ClassPermanent},
	} {
		if got := retryhttp.Classify(c.req, c.err).Class; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
