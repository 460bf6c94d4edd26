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
		listen.Bad("%q is open to others, and there is no token; set gateway.token, or listen on 127.0.0.1", g.Listen)
	}
}

var gatewayKeys = []key[*sharedReader, Gateway]{
	{
		Name: "token", Doc: "Secret that callers present, as a reference: ${env:NAME} or ${file:path}; without one only this machine may ask.", Schema: referenceSchema,
		Set: func(r *sharedReader, at place, g *Gateway) { g.Token = r.token(at) },
	},
	{
		Name: "listen", Default: defaultListen, Doc: "Address of tideover gateway, which runs alone; that of tideover serve is server.listen. One that is not loopback needs a token.",
		Schema: listenSchema,
		Set: func(_ *sharedReader, at place, g *Gateway) {
			if text, ok := at.Text(); ok && checkListen(at, text) {
				g.Listen = text
				at.Record(text)
			}
		},
	},
}
