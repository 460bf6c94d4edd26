package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/httpheader"
	"github.com/tideover/tideover/internal/secret"
)

// The headers between a caller and the gateway.
const (
	headerToken    = "X-Tideover-Token"
	headerPriority = "X-Tideover-Priority"
	headerProvider = "X-Tideover-Provider" // of a response: the provider that it is from
)

// tokenHeaders are the headers in which clients of the providers send a key. Clients of
// the gateway send its token there.
var tokenHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", headerToken}

// authorizer decides which callers may use the gateway.
type authorizer struct {
	token secret.String
	hosts hosts.Set
}

// authorize returns why the request is rejected, or nil. It removes the token, so that no
// provider gets it.
func (a *authorizer) authorize(r *http.Request) *problem {
	local := overSocket(r)
	if !local && !a.hosts.Has(r.Host) {
		return &problem{status: http.StatusMisdirectedRequest, code: codeHost, message: "unknown Host: use the address of the gateway or localhost, or add the name to server.hosts"}
	}
	if a.isCrossSite(r) {
		return &problem{status: http.StatusForbidden, code: codeCrossSite, message: "cross-site request: a page of another site sent it"}
	}
	if !a.token.IsZero() {
		if !a.takeToken(r.Header) && !local {
			return unauthorized("send the gateway's token as Authorization: Bearer, X-Api-Key, X-Goog-Api-Key or " + headerToken)
		}
		return nil
	}
	delete(r.Header, headerToken)
	if !local && !fromLoopback(r.RemoteAddr) {
		return unauthorized("without a token the gateway serves this machine only; set gateway.token to let others in")
	}
	return nil
}

func unauthorized(hint string) *problem {
	return &problem{status: http.StatusUnauthorized, code: codeToken, message: "the request has no valid token: " + hint}
}

// overSocket reports whether the request came over a Unix socket. The mode of its file
// decides who may use it.
func overSocket(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr.Network() == "unix"
}

func fromLoopback(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// takeToken removes the token from all headers, and reports whether it was in one.
func (a *authorizer) takeToken(h http.Header) (found bool) {
	for _, name := range tokenHeaders {
		v := httpheader.First(h, name)
		if name == "Authorization" {
			scheme, token, ok := strings.Cut(v, " ")
			if !ok || !strings.EqualFold(scheme, "Bearer") {
				continue
			}
			v = strings.TrimSpace(token)
		}
		if v != "" && a.token.Equal(v) {
			found = true
			delete(h, name)
		}
	}
	delete(h, headerToken) // a wrong one is not for others either
	return found
}

// isCrossSite reports whether a browser sent the request for the page of another web
// site. It applies to all methods, because any request may cost money.
func (a *authorizer) isCrossSite(r *http.Request) bool {
	switch httpheader.First(r.Header, "Sec-Fetch-Site") {
	case "":
	case "same-origin", "none":
		return false
	default:
		return true
	}
	origin := httpheader.First(r.Header, "Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || !hosts.Same(u.Host, r.Host) && !a.hosts.Names(u.Host)
}
