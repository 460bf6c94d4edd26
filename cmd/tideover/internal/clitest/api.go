//go:build unix

package clitest

import (
	"log/slog"
	"net/http"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/internal/secret"
)

// TestToken is the token of the API of [NewTestAPI].
const TestToken = "the-token-of-these-tests"

// NewTestAPI returns the API of a [admin.Service] with this configuration, and with the token
// testToken.
func NewTestAPI(c admin.Config) http.Handler {
	c.Logger = slog.New(slog.DiscardHandler)
	return api.New(api.Options{Control: admin.New(c), Guard: httpserver.GuardOptions{
		Token: secret.New(TestToken), Users: []httpserver.User{{Name: "ada", Token: secret.New(TestToken + "-of-ada")}},
	}, Logger: c.Logger})
}
