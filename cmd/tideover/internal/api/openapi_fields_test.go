package api

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
)

// schemaTypes maps the names of schemas to the types whose JSON they describe.
var schemaTypes = map[string]reflect.Type{
	"Status": reflect.TypeFor[admin.Status](), "Storm": reflect.TypeFor[storm.Storm](), "ConfigFile": reflect.TypeFor[admin.ConfigFile](), "WorkflowCounts": reflect.TypeFor[admin.WorkflowCounts](), "Totals": reflect.TypeFor[admin.Totals](),
	"Workflow": reflect.TypeFor[control.Workflow](), "Workflows": reflect.TypeFor[control.Workflows](), "Step": reflect.TypeFor[control.Step](),
	"Started": reflect.TypeFor[control.Started](), "Outcome": reflect.TypeFor[control.Outcome](), "Done": reflect.TypeFor[control.Done](), "Failed": reflect.TypeFor[control.Failed](),
	"Dead": reflect.TypeFor[control.Dead](), "Group": reflect.TypeFor[control.Group](), "Health": reflect.TypeFor[admin.Health](), "Missed": reflect.TypeFor[control.Missed](),
	"Backup": reflect.TypeFor[admin.Backup](), "Problem": reflect.TypeFor[control.Error](), "Cluster": reflect.TypeFor[admin.Cluster](),
	"Diagnosis": reflect.TypeFor[admin.Diagnosis](), "Finding": reflect.TypeFor[doctor.Finding](),
	"Start": reflect.TypeFor[control.Start](), "Bulk": reflect.TypeFor[control.Bulk](), "Latest": reflect.TypeFor[control.Latest](), "Pause": reflect.TypeFor[admin.SessionPause](),
	"Provider": reflect.TypeFor[gateway.Status](), "ProviderTotals": reflect.TypeFor[gateway.Totals](), "ProviderLimits": reflect.TypeFor[gateway.Limits](),
	"ProviderKey": reflect.TypeFor[gateway.KeyInfo](), "ProviderRecovery": reflect.TypeFor[gateway.Recovery](), "ProviderOutage": reflect.TypeFor[gateway.Outage](),
	"ProviderFailover": reflect.TypeFor[gateway.Failover](), "ProviderQuota": reflect.TypeFor[gateway.Quota](), "ProviderBudget": reflect.TypeFor[gateway.Budget](),
	"Chart": reflect.TypeFor[admin.Chart](), "ChartPoint": reflect.TypeFor[admin.ChartPoint](), "Percentiles": reflect.TypeFor[admin.Percentiles](),
	"Requests": reflect.TypeFor[admin.RequestList](), "Request": reflect.TypeFor[gateway.RequestInfo](), "RequestStep": reflect.TypeFor[gateway.RequestStep](),
	"Session": reflect.TypeFor[session.Status](), "SessionStop": reflect.TypeFor[session.Stop](),
	"SessionHandover": reflect.TypeFor[session.HandoverStatus](), "SessionTurn": reflect.TypeFor[session.Turn](),
	"Run": reflect.TypeFor[engine.Info](), "RunStep": reflect.TypeFor[engine.StepInfo](), "RunAttempt": reflect.TypeFor[engine.AttemptInfo](),
	"RunOperations": reflect.TypeFor[engine.OpCounts](), "RunWait": reflect.TypeFor[engine.WaitInfo](), "RunNote": reflect.TypeFor[engine.Note](), "RetryAccount": reflect.TypeFor[engine.RetryInfo](),
	"RunPage": reflect.TypeFor[engine.Page](), "Trouble": reflect.TypeFor[engine.Trouble](), "Schedule": reflect.TypeFor[engine.Schedule](), "RefusedStart": reflect.TypeFor[engine.RefusedStart](),
	"Reply": reflect.TypeFor[control.Reply](), "Signaled": reflect.TypeFor[control.Signaled](), "Callback": reflect.TypeFor[admin.Callback](), "RunQuestion": reflect.TypeFor[engine.Question](),
	"Output": reflect.TypeFor[admin.Output](), "OutputStream": reflect.TypeFor[admin.OutputStream](),
	"LeftOut": reflect.TypeFor[move.LeftOut](), "Member": reflect.TypeFor[journal.Member](), "Shard": reflect.TypeFor[engine.ShardInfo](),
}

// fieldsOf returns the names of the JSON fields of a struct, and of those that are never omitted.
func fieldsOf(typ reflect.Type) (all, always []string) {
	for _, f := range reflect.VisibleFields(typ) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" || name == "" {
			continue
		}
		all = append(all, name)
		if !strings.Contains(options, "omit") {
			always = append(always, name)
		}
	}
	slices.Sort(all)
	slices.Sort(always)
	return all, always
}

func TestTheDescriptionHasEveryField(t *testing.T) {
	t.Parallel()
	d := document(t)
	for name, typ := range schemaTypes {
		all, always := fieldsOf(typ)
		if got := d.properties(name); !slices.Equal(got, all) {
			t.Errorf("openapi.yaml, %s: has the properties\n%v, and the type has\n%v", name, got, all)
		}
		if got := d.required(name); !slices.Equal(got, always) {
			t.Errorf("openapi.yaml, %s: requires\n%v, and always there are\n%v", name, got, always)
		}
	}
}
