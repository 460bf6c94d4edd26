package gateway

import (
	"net/http"
	"net/url"
	"strings"
)

// uploadURLHeaders name the headers in which Google answers with the URL for the content
// of an upload.
var uploadURLHeaders = []string{"X-Goog-Upload-Url", "X-Goog-Upload-Control-Url"}

// rewriteUploadURLs points the URLs for an upload's content at the gateway. The SDKs of
// Google replace the host of that URL by the host of their base URL, and keep its path:
// the path has to lead to the provider that answered.
func (t *trip) rewriteUploadURLs(h http.Header, p *provider) {
	for _, name := range uploadURLHeaders {
		if v := h[name]; len(v) == 1 {
			if through, ok := gatewayURL(v[0], p.spec.BaseURL, t.origin(), p.spec.Name); ok {
				h[name] = []string{through}
			}
		}
	}
}

// origin returns the address at which the caller reached the gateway.
func (t *trip) origin() string {
	if t.secure {
		return "https://" + t.host
	}
	return "http://" + t.host
}

// gatewayURL returns the address, by way of the gateway, of a URL below the base URL of
// the provider. It reports false for every other URL.
func gatewayURL(address string, base *url.URL, origin, provider string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != base.Scheme || !strings.EqualFold(u.Host, base.Host) || hasDots(u.EscapedPath()) {
		return "", false
	}
	rest, ok := strings.CutPrefix(u.EscapedPath(), strings.TrimSuffix(base.EscapedPath(), "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	through := origin + prefix + provider + rest
	if u.RawQuery != "" {
		through += "?" + u.RawQuery
	}
	return through, true
}
