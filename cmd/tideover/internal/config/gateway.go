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
	if at.Empty() {
		at.Node = strictyaml.NewMap()
	}
	if at.Node.Kind == strictyaml.KindMap {
		at.Node = layers(r, at, gatewayKeys)
	}
	found, _ := strictyaml.Object(r, at, gatewayKeys, g)
	listen, said := found["listen"]
	if _, token := found["token"]; said && !token && g.Listen != "" && !loopback(g.Listen) {
		listen.Bad("%q is reachable from other machines and no token is set; set gateway.token, or listen on 127.0.0.1", g.Listen)
	}
}

var gatewayKeys = []key[*sharedReader, Gateway]{
	{
		Name: "token", Doc: "Token that clients must send, as a reference: ${env:NAME} or ${file:path}. Without a token only clients on this machine can connect.", Schema: referenceSchema,
		Set: func(r *sharedReader, at place, g *Gateway) { g.Token = r.token(at) },
	},
	{
		Name: "listen", Default: defaultListen, Doc: "Address that tideover gateway listens on; tideover serve uses server.listen. An address that is not loopback requires a token.",
		Schema: listenSchema,
		Set: func(_ *sharedReader, at place, g *Gateway) {
			if text, ok := at.Text(); ok && checkListen(at, text) {
				g.Listen = text
				at.Record(text)
			}
		},
	},
}
