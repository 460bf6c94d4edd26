package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// sessionAge is how long a browser needs no new link.
const sessionAge = 30 * 24 * time.Hour

// cookieName differs from server to server: browsers show a cookie to all ports
// of a host.
func (g *guard) cookieName() string { return "tideover-" + g.mac("cookie")[:8] }

// session returns the cookie of a session that begins now. It is made from the
// token, and is not the token: who reads it can't ask as a program, nor after its
// time.
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
