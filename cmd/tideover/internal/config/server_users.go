package config

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// User is a user of the control API and the page who has a token of their own.
type User struct {
	Name     string
	Token    *template.SecretText
	ReadOnly bool // the user may not change anything
}

// reservedUsers are names that the history of a run has for callers without a name of their own.
var reservedUsers = []string{"api", "callback", "page"}

// readUsers reads the map server.users, sorted by name.
func (r serverReader) readUsers(at place) (users []User) {
	at.EachName("user", func(name string, at place) {
		u := User{Name: name}
		if slices.Contains(reservedUsers, name) {
			at.Bad("%q is the name of callers without a name of their own; choose another", name)
			return
		}
		if _, ok := strictyaml.Object(at, r.userKeys(&u)); ok && u.Token != nil {
			users = append(users, u)
		}
	})
	slices.SortFunc(users, func(a, b User) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return users
}

func (r serverReader) userKeys(u *User) []key {
	return []key{
		strictyaml.Required(strictyaml.Field(&u.Token, "token", "", referenceSchema, r.token,
			"Token of the user, as a reference: ${env:NAME} or ${file:path}.")),
		strictyaml.Bool(&u.ReadOnly, "read-only", "Whether the user may only read."),
	}
}

func (r serverReader) usersSchema() *jsonschema.Schema {
	names := strictyaml.PatternSchema(strictyaml.NamePattern)()
	names.Not = strictyaml.WordSchema(reservedUsers...)()
	return strictyaml.OrNull(&jsonschema.Schema{Type: "object", PropertyNames: names, AdditionalProperties: strictyaml.Describe(r.userKeys(new(User)))})
}

// checkUsers records a problem for each user whose token is that of another user or of the server.
func (r serverReader) checkUsers(at place, s *Server) {
	seen := map[string]string{} // name of the key, by token
	if s.Token != nil {
		if token, err := s.Token.Resolve(r.Secrets); err == nil {
			seen[token.Reveal()] = "server.token"
		}
	}
	for _, u := range s.Users {
		token, err := u.Token.Resolve(r.Secrets)
		if err != nil {
			continue // the reader of the token has recorded the problem
		}
		if other := seen[token.Reveal()]; other != "" {
			at.Bad("the token of %s is also that of %s; each must have its own", u.Name, other)
		}
		seen[token.Reveal()] = u.Name
	}
}

// minCallbackKey is the fewest characters of the key that signs callback URLs.
const minCallbackKey = 32
