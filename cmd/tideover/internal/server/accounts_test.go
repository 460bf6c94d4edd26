package server

import (
	"context"
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/quota"
	"github.com/tideover/tideover/gateway"
)

// newTestAccounts returns the accounts of a gateway with two keys, which use the account "a", and the
// gate by which another process uses that account.
func newTestAccounts(t *testing.T, dir string) (*keyAccounts, *account.Gate) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	specs := []gateway.Spec{gateway.Spec{
		Name: "it", Preset: gateway.Generic, BaseURL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"},
		Keys: []gateway.Key{{Name: "one", Value: gateway.NewSecret("the-first-key"), Account: "a"}, {Name: "two", Value: gateway.NewSecret("the-second-key"), Account: "a"}},
	}.Fill()}
	clock := func() (time.Duration, string) { return 0, "" }
	a := newKeyAccounts(&account.Store{Dir: dir + "/accounts", Uptime: clock}, dir+"/quota", log)
	g, err := gateway.New(specs, gateway.Options{Accounts: a, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	a.gateway = g
	a.setProviders(specs)
	gate, err := (&account.Store{Dir: dir + "/accounts", Uptime: clock}).Gate("a")
	if err != nil {
		t.Fatal(err)
	}
	return a, gate
}

// held returns the names of the throttled keys.
func (a *keyAccounts) held() (keys string) {
	for _, x := range a.gateway.Status()[0].Throttles {
		keys += x.Key + " "
	}
	return keys
}

// After a limit of one key, the other keys of its account wait, too. After a limit that another process
// records, all keys wait within a second.
func TestKeysShareTheLimitsOfTheirAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a, gate := newTestAccounts(t, dir)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { a.run(ctx); close(done) }()

		a.Limited(gateway.KeyLimit{Account: "a", Provider: "it", Key: "one", Until: time.Now().Add(2 * time.Hour), Why: "429"})
		time.Sleep(accountsInterval + time.Millisecond)
		l := gate.Limit()
		if l == nil || a.held() != "two " {
			t.Fatalf("recorded %+v, held %q", l, a.held())
		}
		a.Worked("a", l.Serial)
		time.Sleep(accountsInterval + time.Millisecond)
		if l := gate.Limit(); l != nil || a.held() != "" {
			t.Errorf("after a success: %+v, held %q", l, a.held())
		}
		pass, _ := gate.Enter(account.Asker{ID: "s", Name: "session s"})
		pass.Limited(account.Reset{In: time.Hour}, "limit", 0)
		time.Sleep(accountsInterval + time.Millisecond)
		if a.held() != "one two " {
			t.Errorf("after a limit of another process: held %q", a.held())
		}
		pass.Limited(account.Reset{In: 30 * 24 * time.Hour}, "limit", 0)
		time.Sleep(accountsInterval + time.Millisecond)
		if a.held() != "" {
			t.Errorf("a limit longer than maxHold holds %q", a.held())
		}
		stop()
		<-done

		// After a restart, the key that reported the limit waits like the others.
		gate.EndLimit(1 << 50)
		a.Limited(gateway.KeyLimit{Account: "a", Provider: "it", Key: "one", Until: time.Now().Add(2 * time.Hour), Why: "429"})
		a.sync(true)
		next, _ := newTestAccounts(t, dir)
		if next.held() != "one two " {
			t.Errorf("after a restart: held %q", next.held())
		}
	})
}

// Quotas are written in the background, and windows that other programs have written are kept.
func TestQuotasOfKeysAreRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _ := newTestAccounts(t, t.TempDir())
		began := time.Now()
		if err := quota.Save(a.quotas, "a", []quota.Window{{Name: "5-hour", Used: 10, Resets: began.Add(4 * time.Hour)}, {Name: "weekly", Used: 20, Resets: began.Add(90 * time.Hour)}}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { a.run(ctx); close(done) }()
		want := func(when string, want map[string]float64) {
			t.Helper()
			list, err := quota.Load(a.quotas, "a", time.Now())
			got := map[string]float64{}
			for _, w := range list {
				got[w.Name] = w.Used
			}
			if err != nil || len(got) != len(want) {
				t.Errorf("%s: %v, %v, want %v", when, got, err, want)
				return
			}
			for name, used := range want {
				if got[name] != used {
					t.Errorf("%s: %v, want %v", when, got, want)
				}
			}
		}
		reset := began.Add(3 * time.Hour)
		a.Used("a", []gateway.QuotaWindow{
			{Name: "5-hour", Used: 91, Resets: reset, Long: true}, {Name: "requests", Used: 5, Resets: began.Add(2 * time.Hour)}, {Name: "tokens", Used: 99, Resets: began.Add(time.Minute)},
		})
		time.Sleep(accountsInterval + time.Millisecond)
		all := map[string]float64{"5-hour": 91, "weekly": 20, "requests": 5}
		want("the first record", all)
		a.Used("a", []gateway.QuotaWindow{{Name: "5-hour", Used: 93, Resets: reset, Long: true}})
		time.Sleep(accountsInterval + time.Millisecond)
		want("before the interval has passed", all)
		time.Sleep(quotaInterval)
		all["5-hour"] = 93
		want("after the interval", all)
		time.Sleep(90 * time.Minute)
		a.Used("a", []gateway.QuotaWindow{{Name: "requests", Used: 96, Resets: began.Add(2 * time.Hour)}})
		time.Sleep(accountsInterval + time.Millisecond)
		all["requests"] = 96
		want("a long window shortly before its reset", all)
		stop()
		<-done
		a.Used("a", []gateway.QuotaWindow{{Name: "5-hour", Used: 97, Resets: reset, Long: true}})
		a.sync(true)
		all["5-hour"] = 97
		want("after the last call", all)
	})
}
