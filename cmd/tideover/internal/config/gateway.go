package config

import (
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// Gateway is how callers reach the providers.
type Gateway struct {
	Token  *template.SecretText // callers must bring it; nil means that only this machine may ask
	Listen string               // host:port of a gateway that runs alone; serve has Server.Listen
}

// readGateway reads the section with the variables and the flags over it.
func readGateway(r *sharedReader, at place, g *Gateway) {
	found := r.layered(at, r.gatewayKeys(g))
	listen, said := found["listen"]
	if _, token := found["token"]; said && !token && g.Listen != "" && !loopback(g.Listen) {
		listen.Bad("%q is reachable from other machines and no token is set; set gateway.token, or listen on 127.0.0.1", g.Listen)
	}
}

func (r *sharedReader) gatewayKeys(g *Gateway) []key {
	return []key{
		strictyaml.Field(&g.Token, "token", "", referenceSchema, r.token,
			"Token that clients must send, as a reference: ${env:NAME} or ${file:path}. Without a token only clients on this machine can connect."),
		strictyaml.Field(&g.Listen, "listen", defaultListen, listenSchema, readListen,
			"Address that tideover gateway listens on; tideover serve uses server.listen. An address that is not loopback requires a token."),
	}
}
