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

// The headers that are between a caller and us.
const (
	headerToken    = "X-Tideover-Token"
	headerPriority = "X-Tideover-Priority"
	headerProvider = "X-Tideover-Provider" // of an answer: whose it is
)

// tokenHeaders are those in which clients of the providers send a key, which is
// the token for us.
var tokenHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", headerToken}

// admission says who may ask at all.
type admission struct {
	token secret.String
	hosts hosts.Set
}

// admit returns why the request is refused, or nil. It takes out the token, which
// is nobody's business but ours.
func (a *admission) admit(r *http.Request) *problem {
	local := overSocket(r)
	if !local && !a.hosts.Has(r.Host) {
		return &problem{status: http.StatusMisdirectedRequest, code: codeHost, message: "this gateway does not go by that host; use its address, or localhost"}
	}
	if a.foreign(r) {
		return &problem{status: http.StatusForbidden, code: codeCrossSite, message: "the request comes from the page of another site"}
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

// overSocket reports whether the request came over a unix socket, whose file mode
// says who may ask.
func overSocket(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr.Network() == "unix"
}

func fromLoopback(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// takeToken removes the token wherever it stands, and reports whether it was there.
func (a *admission) takeToken(h http.Header) (found bool) {
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

// foreign reports whether a browser sent the request on behalf of another site's
// page. Unlike for a site of one's own this matters for every method: any request
// may cost money.
func (a *admission) foreign(r *http.Request) bool {
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
