package config

import (
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/oneline"
)

// Gateway is how callers reach the providers.
type Gateway struct {
	Token  *template.SecretText // callers must bring it; nil means that only this machine may ask
	Listen string               // host:port of a gateway that runs alone; serve has Server.Listen
}

// gateway reads the section with the variables and the flags over it.
func (l *loader) gateway(at strictyaml.Place, g *Gateway) {
	if at.Node.Kind == strictyaml.KindNull {
		at.Node = strictyaml.NewMap()
	}
	if at.Node.Kind == strictyaml.KindMap {
		at.Node = layers(l, at, gatewayKeys)
	}
	found, _ := strictyaml.Object(l, at, gatewayKeys, g)
	listen, said := found["listen"]
	if _, token := found["token"]; said && !token && g.Listen != "" && !loopback(g.Listen) {
		listen.Bad("%q is open to others, and there is no token; set gateway.token, or listen on 127.0.0.1", g.Listen)
	}
}

// MinToken is how many characters a token must have.
const MinToken = 16

// token reads a secret by which callers are let in.
func (l *loader) token(at strictyaml.Place) *template.SecretText {
	s := l.Secret(at)
	if s == nil {
		return nil
	}
	token, err := s.Resolve(l.Secrets)
	if err != nil {
		at.Bad("%s", oneline.Error(err))
		return nil
	}
	if n := utf8.RuneCountInString(token.Reveal()); n < MinToken {
		at.Bad("%v has %d characters, at least %d are needed", s, n, MinToken)
		return nil
	}
	return s
}

var gatewayKeys = []strictyaml.Key[*loader, Gateway]{
	{
		Name: "token", Doc: "Secret that callers present, as a reference: ${env:NAME} or ${file:path}; without one only this machine may ask.", Schema: referenceSchema,
		Set: func(l *loader, at strictyaml.Place, g *Gateway) { g.Token = l.token(at) },
	},
	{
		Name: "listen", Default: defaultListen, Doc: "Address of tideover gateway, which runs alone; that of tideover serve is server.listen. One that is not loopback needs a token.",
		Schema: listenSchema,
		Set: func(l *loader, at strictyaml.Place, g *Gateway) {
			if text, ok := at.Text(); ok && l.checkListen(at, text) {
				g.Listen = text
				at.Record(text)
			}
		},
	},
}
