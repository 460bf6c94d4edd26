// Command reverseproxy is httputil.ReverseProxy with nothing around it: what the suites
// compare the gateway with. It serves an upstream below /p/up/, and prints its address.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

func main() {
	upstream := flag.String("upstream", "", "URL of the upstream")
	cert := flag.String("tls-cert", "", "certificate, for TLS")
	key := flag.String("tls-key", "", "key of the certificate")
	flag.Parse()
	target, err := url.Parse(*upstream)
	if err != nil {
		log.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Protocols = protocols
	transport.DisableCompression = true
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/p/up")
			r.SetURL(target)
		},
		Transport: transport,
	}
	server := &http.Server{Handler: proxy, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("reverseproxy: up is at http://%s/p/up/\n", listener.Addr())
	if *cert != "" {
		log.Fatal(server.ServeTLS(listener, *cert, *key))
	}
	log.Fatal(server.Serve(listener))
}
