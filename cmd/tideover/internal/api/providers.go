package api

import (
	"context"
	"net/http"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/gateway"
)

// providersHandler answers requests about providers.
type providersHandler struct {
	providers *control.Providers
	system    *control.System
}

func (h providersHandler) list(context.Context, string) (any, error) {
	list := h.providers.List()
	for i := range list {
		list[i] = withoutNull(list[i])
	}
	return control.ProviderList{Providers: notNil(list), Config: h.system.ConfigFile()}, nil
}

func (h providersHandler) show(_ context.Context, name string) (any, error) {
	st, err := h.providers.Get(name)
	return withoutNull(st), err
}

// apply returns the handler of an action.
func (h providersHandler) apply(action string) handler {
	return func(w http.ResponseWriter, r *http.Request, name string) error {
		who, o, err := readChange(r)
		if err != nil {
			return err
		}
		if err := o.rejectUnknown(); err != nil {
			return err
		}
		st, err := h.providers.Apply(name, action, who)
		if err != nil {
			return err
		}
		return answer(w, http.StatusOK, withoutNull(st))
	}
}

// withoutNull replaces nil lists, which JSON would encode as null, by empty ones.
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
