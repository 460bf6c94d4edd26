package httpserver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// sessionAge is how long a browser session lasts.
const sessionAge = 30 * 24 * time.Hour

// cookieName returns a name that differs between servers: browsers send a cookie to all ports
// of a host.
func (g *guard) cookieName() string { return "tideover-" + g.mac("cookie")[:8] }

// session returns the cookie of a session that starts now. It is derived from the token and
// does not contain it: a copied cookie is no bearer token, and expires.
func (g *guard) session(now time.Time, secure bool) *http.Cookie {
	until := strconv.FormatInt(now.Add(sessionAge).Unix(), 10)
	return &http.Cookie{
		Name: g.cookieName(), Value: until + "." + g.mac("session "+until), Path: "/", MaxAge: int(sessionAge / time.Second),
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

func (g *guard) validSession(value string, now time.Time) bool {
	until, mac, ok := strings.Cut(value, ".")
	if !ok || g.token.IsZero() || !hmac.Equal([]byte(mac), []byte(g.mac("session "+until))) {
		return false
	}
	end, err := strconv.ParseInt(until, 10, 64)
	return err == nil && now.Unix() < end
}

func (g *guard) mac(what string) string {
	m := hmac.New(sha256.New, []byte(g.token.Reveal()))
	m.Write([]byte("tideover " + what))
	return hex.EncodeToString(m.Sum(nil))
}
