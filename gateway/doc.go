// Package gateway is a reliability proxy in front of HTTP and LLM APIs, as an
// [http.Handler] for your own server. Clients in any language set their base URL to
// /p/<provider>/ and get retries, several keys, rate limits and fallbacks without a change
// of their code.
//
//	g, err := gateway.New([]gateway.Spec{
//		{Name: "main", Preset: gateway.OpenAI, Keys: []gateway.Key{{Name: "key-1", Value: gateway.NewSecret(key)}}, Fallback: []string{"spare"}},
//		{Name: "spare", Preset: gateway.OpenAI, BaseURL: other, Keyless: true},
//	}, gateway.Options{})
//	http.Handle("/p/", g)
//
// For each attempt the gateway picks a provider and a key. It respects the limits that
// providers state, probes a provider that is down with one request at a time, and moves to
// a fallback of the same wire format. The retry loop is that of package retry.
// [Gateway.RoundTripper] gives clients in the same process the same providers.
//
// [Gateway.Status] and [Gateway.Stats] return the state and the counts of all providers,
// [Gateway.Control] overrides the state of one, [Gateway.Reload] replaces all of them while
// requests are in progress.
//
// It is not a general reverse proxy: it has no routing by host or path, no cache, and no
// load balancing over servers of your own. It does not translate between the APIs of
// providers. It keeps no body after the end of the request. It sends the credentials of a
// caller to no provider but the one that the caller asked for. The proxy with configuration
// file, metrics and web page is the command tideover serve.
package gateway
