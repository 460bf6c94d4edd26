package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/tideover/tideover/gateway"
)

// Providers returns where the providers of the gateway are, in the order of the
// configuration, and what became of its file.
func (c *Client) Providers(ctx context.Context) (list ProviderList, err error) {
	err = c.call(ctx, http.MethodGet, "providers", nil, nil, &list)
	return list, err
}

// Provider returns where a provider is.
func (c *Client) Provider(ctx context.Context, name string) (st gateway.Status, err error) {
	err = c.call(ctx, http.MethodGet, "providers/"+url.PathEscape(name), nil, nil, &st)
	return st, err
}

// TellProvider tells a provider one of [gateway.Actions], and returns where it is
// then.
func (c *Client) TellProvider(ctx context.Context, name, action string) (st gateway.Status, err error) {
	err = c.call(ctx, http.MethodPost, "providers/"+url.PathEscape(name)+"/"+url.PathEscape(action), nil, nil, &st)
	return st, err
}
