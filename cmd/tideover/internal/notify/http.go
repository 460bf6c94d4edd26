package notify

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

const (
	maxAnswer  = 64 << 10 // most bytes of a response that are read
	maxExcerpt = 200      // most characters of a response that an error quotes
	userAgent  = "tideover"
)

// newClient returns an HTTP client. It follows no redirects, which could send the token or
// the message to another host. It keeps no idle connections, because messages are rare.
func newClient(roots *x509.CertPool) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: retryhttp.OneTry(&http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig(roots, ""), ForceAttemptHTTP2: true, DisableKeepAlives: true,
			MaxResponseHeaderBytes: maxAnswer,
		}),
	}
}

// ntfy publishes the message to a topic. The text is the body; title, priority, tags and
// link are headers.
func (s *Sender) ntfy(ctx context.Context, m Message, k *mask) error {
	token, err := s.resolve(s.notifier.Token)
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	for name, value := range map[string]string{
		"Title": m.Title, "Priority": s.notifier.Priority, "Tags": strings.Join(s.notifier.Tags, ","), "Click": m.URL,
	} {
		if value != "" {
			header.Set(name, headerText(value))
		}
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return s.post(ctx, http.MethodPost, header, m, m.Text, k)
}

// slack posts the message to an incoming webhook. It escapes the characters &, < and >.
func (s *Sender) slack(ctx context.Context, m Message, k *mask) error {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	text := lines("*"+escape.Replace(m.Title)+"*", escape.Replace(m.Text), escape.Replace(m.URL))
	body, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return retry.Permanent(err)
	}
	return s.post(ctx, http.MethodPost, http.Header{"Content-Type": {"application/json"}}, m, string(body), k)
}

// webhook sends the message as JSON, or the notifier's body template rendered with it.
func (s *Sender) webhook(ctx context.Context, m Message, k *mask) error {
	body, err := s.body(m, k)
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {m.ID}}
	if !json.Valid([]byte(body)) {
		header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	for _, h := range s.notifier.Headers {
		value, err := s.resolve(h.Value)
		if err != nil {
			return err
		}
		header.Set(h.Name, value)
	}
	return s.post(ctx, s.notifier.Method, header, m, body, k)
}

// body returns the body of a webhook. If the template can't be rendered, the body is the
// message as JSON, with a note about the error.
func (s *Sender) body(m Message, k *mask) (string, error) {
	body, ok, err := s.notifier.Body(m.Fields(), s.env.Secrets)
	switch {
	case errors.Is(err, secret.ErrUnavailable):
		return "", err // the secret may be available at the next attempt
	case err != nil:
		m.Note = maskedText(err, k)
	case ok:
		return body.Reveal(), nil
	}
	data, err := json.Marshal(m)
	return string(data), retry.Permanent(err)
}

// maskedText returns the text of Message.Note for an error of a template.
func maskedText(err error, k *mask) string { return plainly(k.text(err.Error())) }

// post sends the body to the notifier's URL.
func (s *Sender) post(ctx context.Context, method string, header http.Header, m Message, body string, k *mask) error {
	target, err := s.target(k)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), strings.NewReader(body))
	if err != nil {
		return retry.Permanent(errors.New("the request can't be made")) // the cause quotes the URL
	}
	req.Header = header
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	header.Set("User-Agent", userAgent)
	header.Set("X-Tideover-Message", m.ID)
	where := fmt.Sprintf("%s %s://%s", method, target.Scheme, target.Host)
	resp, err := s.client.Do(req)
	if err != nil {
		return classified(req, fmt.Errorf("%s: %w", where, withoutURL(err)))
	}
	defer resp.Body.Close()
	if err := s.answer(resp, k); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

// target returns the notifier's URL, and makes k mask it in errors.
func (s *Sender) target(k *mask) (*url.URL, error) {
	text, err := s.resolve(s.notifier.URL)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, retry.Permanent(fmt.Errorf("the value of %v is not a URL that starts with http:// or https://", s.notifier.URL))
	}
	k.hideURL(u)
	return u, nil
}

// answer returns nil if the response is a success, else an error that is marked as
// permanent, throttled or transient.
func (s *Sender) answer(resp *http.Response, k *mask) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // a part of the response is enough for an error
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return nil
	}
	said := prefixed(": ", clippedLine(k.text(string(text)), maxExcerpt))
	if resp.StatusCode == http.StatusNetworkAuthenticationRequired {
		return fmt.Errorf("status %s%s", resp.Status, said) // transient: from a captive portal, where the user may log in
	}
	if err := retryhttp.Check(resp); err != nil {
		return fmt.Errorf("%w%s", err, said)
	}
	if to, err := resp.Location(); err == nil {
		return retry.Permanent(fmt.Errorf("status %s to %s://%s: redirects are not followed", resp.Status, to.Scheme, to.Host))
	}
	return retry.Permanent(fmt.Errorf("status %s%s", resp.Status, said))
}

// withoutURL returns the cause of an error of net/http, whose own text has the URL.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// headerText returns a text as the value of a header: on one line, and encoded by RFC 2047
// if it is not ASCII; ntfy and mail clients decode that. It breaks up "=?", so that a part
// of the text is not decoded as an encoded word.
func headerText(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "=?", "= ?")
	return mime.BEncoding.Encode("utf-8", s)
}
