package api

import (
	"context"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
)

// providersHandler handles requests about providers.
type providersHandler struct {
	providers *admin.Providers
	system    *admin.System
}

func (h providersHandler) list(context.Context) (admin.ProviderList, error) {
	list := h.providers.List()
	for i := range list {
		list[i] = withoutNull(list[i])
	}
	return admin.ProviderList{Providers: control.NotNil(list), Config: h.system.ConfigFile()}, nil
}

func (h providersHandler) show(_ context.Context, name string) (gateway.Status, error) {
	st, err := h.providers.Get(name)
	return withoutNull(st), err
}

// apply returns the handler that applies one of [gateway.Actions] to a provider.
func (h providersHandler) apply(action string) handler {
	return func(r *request) (any, error) {
		who, err := r.read()
		if err != nil {
			return nil, err
		}
		st, err := h.providers.Apply(r.id, action, who)
		return withoutNull(st), err
	}
}

// withoutNull replaces nil lists, which JSON would encode as null, by empty ones.
func withoutNull(st gateway.Status) gateway.Status {
	st.Fallback = control.NotNil(st.Fallback)
	st.Keys = control.NotNil(st.Keys)
	st.Outages = control.NotNil(st.Outages)
	st.Failovers = control.NotNil(st.Failovers)
	st.Quotas = control.NotNil(st.Quotas)
	st.Throttles = control.NotNil(st.Throttles)
	st.Budgets = control.NotNil(st.Budgets)
	if st.ByClass == nil {
		st.ByClass = map[string]int{}
	}
	return st
}
