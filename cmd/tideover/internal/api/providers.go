package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/tideover/tideover/gateway"
)

// Providers is the gateway as the API sees it.
type Providers interface {
	// Status returns where all providers are.
	Status() []gateway.Status

	// Control tells a provider one of gateway.Actions. The error wraps
	// gateway.ErrUnknownProvider or gateway.ErrUnknownAction if there is none such.
	Control(name, action string) error
}

// ProviderMeaning says in words what the state of a provider means for requests.
func ProviderMeaning(st *gateway.Status) string {
	switch st.State {
	case gateway.Up:
		if st.Held {
			return "it counts as up whatever happens, until it is reset"
		}
		return "everybody passes"
	case gateway.Refused:
		return cmp.Or(st.Why, "its keys were refused") + ": they are tried only where nobody else takes a request"
	case gateway.Throttled:
		return cmp.Or(st.Why, "its keys were told to wait")
	case gateway.Recovering:
		return "those who waited are let through one after the other"
	case gateway.Probing:
		return "one request finds out for all whether it is back"
	case gateway.Down:
		if st.Recovery != nil && st.Recovery.Due {
			return "the next request looks whether it is back"
		}
		return "nobody passes until the next probe"
	case gateway.Opened:
		return "nobody passes until it is closed or reset"
	case gateway.Draining:
		return "requests under way are finished, new ones go elsewhere or are refused"
	}
	return ""
}

// ProviderList is all providers, and what became of the file that they are in.
type ProviderList struct {
	Providers []gateway.Status `json:"providers"`
	Config    ConfigFile       `json:"config"`
}

// noProviders is a gateway that is not there.
type noProviders struct{}

func (noProviders) Status() []gateway.Status { return nil }

func (noProviders) Control(name, _ string) error { return unknownProvider(name, nil) }

// ListProviders returns where the providers are, in the order of the
// configuration. p may be nil.
func ListProviders(p Providers) []gateway.Status {
	return slices.Clone(cmp.Or[Providers](p, noProviders{}).Status())
}

// FindProvider returns where a provider is. The error is a [*Problem] that names
// those that there are.
func FindProvider(p Providers, name string) (gateway.Status, error) {
	list := ListProviders(p)
	for _, st := range list {
		if st.Name == name {
			return st, nil
		}
	}
	return gateway.Status{}, unknownProvider(name, list)
}

func unknownProvider(name string, known []gateway.Status) *Problem {
	p := &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Message: fmt.Sprintf("no such provider: %q", excerpt(name)), Hint: "there are none"}
	if len(known) > 0 {
		names := make([]string, len(known))
		for i := range known {
			names[i] = known[i].Name
		}
		p.Hint = "there are " + strings.Join(names, ", ")
	}
	return p
}

// TellProvider tells a provider something and returns where it is then. That it
// was told, and by whom, is in the log: a provider has no history of its own. The
// error of one that is not there is a [*Problem].
func TellProvider(p Providers, log *slog.Logger, name, action, by string) (gateway.Status, error) {
	before, err := FindProvider(p, name)
	if err != nil {
		return before, err
	}
	if err := p.Control(name, action); err != nil {
		if errors.Is(err, gateway.ErrUnknownProvider) || errors.Is(err, gateway.ErrUnknownAction) {
			err = &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Message: err.Error()}
		}
		return before, err
	}
	after, err := FindProvider(p, name)
	log.Info("provider was told", "provider", name, "action", action, "by", by, "was", before.State, "is", after.State)
	return after, err
}

func (s *server) listProviders(w http.ResponseWriter, r *http.Request, _ string) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	list := ListProviders(s.providers)
	for i := range list {
		list[i] = withoutNull(list[i])
	}
	if list == nil {
		list = []gateway.Status{}
	}
	return answer(w, http.StatusOK, ProviderList{list, s.config()})
}

func (s *server) showProvider(w http.ResponseWriter, r *http.Request, name string) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	st, err := FindProvider(s.providers, name)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, withoutNull(st))
}

// tellProvider returns the handler for one of the actions.
func tellProvider(action string) handler {
	return func(s *server, w http.ResponseWriter, r *http.Request, name string) error {
		who, o, err := asked(r)
		if err != nil {
			return err
		}
		if err := o.rest(); err != nil {
			return err
		}
		st, err := TellProvider(s.providers, s.logger, name, action, who)
		if err != nil {
			return err
		}
		return answer(w, http.StatusOK, withoutNull(st))
	}
}

// withoutNull makes empty lists of those that are nil: for many languages, null is
// not a list without anything in it.
func withoutNull(st gateway.Status) gateway.Status {
	st.Fallback = notNil(st.Fallback)
	st.Keys = notNil(st.Keys)
	st.Outages = notNil(st.Outages)
	st.Failovers = notNil(st.Failovers)
	st.Quotas = notNil(st.Quotas)
	st.Throttles = notNil(st.Throttles)
	st.Budgets = notNil(st.Budgets)
	if st.ByClass == nil {
		st.ByClass = map[string]int{}
	}
	return st
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
