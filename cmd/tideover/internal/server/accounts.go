package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/quota"
	"github.com/tideover/tideover/gateway"
)

const (
	// accountsInterval is how often run reads the files of the accounts that keys of the gateway use.
	accountsInterval = time.Second

	// quotaInterval is the shortest time between two writes of the quota of an account.
	quotaInterval = 5 * time.Second

	// maxHold is the longest time that the keys of an account wait for its limit to end. A longer
	// limit counts as one with an unknown end, which does not hold keys back. Steps have the same
	// maximum.
	maxHold = 8 * 24 * time.Hour

	// minWindow is the shortest time until the reset of a quota that is recorded. A shorter window is
	// a rate limit, for which a session does not pause.
	minWindow = time.Hour
)

// keyAccounts shares the limits and the quotas of accounts between the keys of the gateway
// and the sessions and steps that use the same accounts. It implements [gateway.Accounts].
// Requests only store limits and quotas in memory; run reads and writes the files.
type keyAccounts struct {
	gateway *gateway.Gateway
	store   *account.Store
	quotas  string // folder with the files of the quotas
	log     *slog.Logger

	wakeup chan struct{} // makes run call sync now; buffer of one

	mu      sync.Mutex
	limited map[string]gateway.KeyLimit               // new limits by account: the one that ends last
	worked  map[string]int64                          // by account, the serial number of a limit that has ended
	used    map[string]map[string]gateway.QuotaWindow // new quotas by account and window

	files  sync.Mutex            // held while files are read or written; guards the fields below
	names  []string              // accounts that the keys use, sorted
	own    map[string]ownLimit   // by account
	quota  map[string]savedQuota // by account
	warned bool                  // the last write of a quota failed, which was logged
}

// ownLimit is a limit that a provider reported to a key of this process.
type ownLimit struct {
	serial int64
	gateway.KeyLimit
}

// savedQuota is the quota of an account as it was last written to its file.
type savedQuota struct {
	at      time.Time
	windows map[string]gateway.QuotaWindow
}

func newKeyAccounts(store *account.Store, quotas string, log *slog.Logger) *keyAccounts {
	return &keyAccounts{
		store: store, quotas: quotas, log: log, wakeup: make(chan struct{}, 1),
		limited: map[string]gateway.KeyLimit{}, worked: map[string]int64{}, used: map[string]map[string]gateway.QuotaWindow{},
		own: map[string]ownLimit{}, quota: map[string]savedQuota{},
	}
}

// Limited implements [gateway.Accounts].
func (a *keyAccounts) Limited(l gateway.KeyLimit) {
	a.mu.Lock()
	if known, ok := a.limited[l.Account]; !ok || known.Until.Before(l.Until) {
		a.limited[l.Account] = l
	}
	a.mu.Unlock()
	a.wake()
}

// Worked implements [gateway.Accounts].
func (a *keyAccounts) Worked(name string, serial int64) {
	a.mu.Lock()
	a.worked[name] = max(a.worked[name], serial)
	a.mu.Unlock()
	a.wake()
}

// Used implements [gateway.Accounts]. It does not wake run, which writes the quota to its file at the
// next interval.
func (a *keyAccounts) Used(name string, windows []gateway.QuotaWindow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.used[name]
	if known == nil {
		known = map[string]gateway.QuotaWindow{}
		a.used[name] = known
	}
	for _, w := range windows {
		known[w.Name] = w
	}
}

// wake makes run read and write the files now.
func (a *keyAccounts) wake() {
	select {
	case a.wakeup <- struct{}{}:
	default:
	}
}

// setProviders sets the accounts to share: those that the keys of the providers use. It passes the
// known limits of these accounts to the gateway before it returns.
func (a *keyAccounts) setProviders(specs []gateway.Spec) {
	names := map[string]bool{}
	for _, s := range specs {
		for _, k := range s.Keys {
			if k.Account != "" {
				names[k.Account] = true
			}
		}
	}
	a.files.Lock()
	defer a.files.Unlock()
	a.names = slices.Sorted(maps.Keys(names))
	a.updateGateway()
	a.wake()
}

// run writes the limits and quotas that requests report to files, and passes the limits that other
// processes have written to the gateway, until the context ends.
func (a *keyAccounts) run(ctx context.Context) {
	for {
		var next <-chan time.Time
		if a.hasAccounts() {
			next = time.After(accountsInterval)
		}
		select {
		case <-next:
		case <-a.wakeup:
		case <-ctx.Done():
			return
		}
		a.sync(false)
	}
}

// hasAccounts reports whether any key uses an account.
func (a *keyAccounts) hasAccounts() bool {
	a.files.Lock()
	defer a.files.Unlock()
	return len(a.names) > 0
}

// sync writes the new limits and quotas to the files, and passes the limits in the files to the
// gateway. If last is true, it writes all quotas, even those written less than quotaInterval ago.
func (a *keyAccounts) sync(last bool) {
	a.files.Lock()
	defer a.files.Unlock()
	a.recordLimits()
	a.updateGateway()
	a.saveQuotas(last)
}

// recordLimits records the ends of limits first and the new limits second, so that a limit that was
// reported after a success is kept.
func (a *keyAccounts) recordLimits() {
	a.mu.Lock()
	limited, worked := a.limited, a.worked
	a.limited, a.worked = map[string]gateway.KeyLimit{}, map[string]int64{}
	a.mu.Unlock()
	for name, serial := range worked {
		if g, err := a.store.Gate(name); err == nil {
			g.EndLimit(serial)
		}
	}
	for name, l := range limited {
		g, err := a.store.Gate(name)
		if err != nil {
			continue
		}
		asker := account.Asker{ID: "gateway/" + l.Provider + "/" + l.Key, Name: "key " + l.Key + " of provider " + l.Provider}
		if known, recorded := g.RecordLimit(asker, account.Reset{In: time.Until(l.Until)}, l.Why); recorded {
			a.own[name] = ownLimit{known.Serial, l}
		}
	}
}

// updateGateway passes the limits of the accounts to the gateway.
func (a *keyAccounts) updateGateway() {
	for _, name := range a.names {
		if g, err := a.store.Gate(name); err == nil {
			a.gateway.SetAccountLimit(name, a.gatewayLimit(name, g.Limit()))
		}
	}
}

// gatewayLimit converts a recorded limit for the gateway; nil means no limit.
func (a *keyAccounts) gatewayLimit(name string, known *account.Limit) *gateway.AccountLimit {
	if known == nil {
		delete(a.own, name)
		return nil
	}
	l := &gateway.AccountLimit{Serial: known.Serial, Why: "account " + known.Why}
	if known.Left > 0 && known.Left <= maxHold {
		l.Until = time.Now().Add(known.Left)
	}
	if own, ok := a.own[name]; ok && own.serial == known.Serial {
		l.Provider, l.Key, l.Route = own.Provider, own.Key, own.Route
	}
	return l
}

// saveQuotas writes the quotas that have changed to their files. It skips quotas that were written
// less than quotaInterval ago, unless last is true.
func (a *keyAccounts) saveQuotas(last bool) {
	now := time.Now()
	due := map[string]map[string]gateway.QuotaWindow{}
	a.mu.Lock()
	for name, windows := range a.used {
		if last || now.Sub(a.quota[name].at) >= quotaInterval {
			due[name] = windows
			delete(a.used, name)
		}
	}
	a.mu.Unlock()
	for name, windows := range due {
		next, changed := a.quota[name].merge(windows, now)
		if !changed {
			continue
		}
		err := a.saveQuota(name, next.windows, now)
		if a.quota[name] = next; err != nil && !a.warned {
			a.log.Warn("can't record the quota of an account: pause-at has no effect for it", "account", name, "error", err)
		}
		a.warned = err != nil
	}
}

// merge returns the quota with the windows added, and reports whether it has changed. A window that
// is not known to be long is added only if its reset is at least minWindow away, or if the quota
// already has the window with the same reset.
func (s savedQuota) merge(windows map[string]gateway.QuotaWindow, now time.Time) (next savedQuota, changed bool) {
	next = savedQuota{now, maps.Clone(s.windows)}
	if next.windows == nil {
		next.windows = map[string]gateway.QuotaWindow{}
	}
	for name, w := range windows {
		known, ok := next.windows[name]
		sameReset := ok && known.Resets.Sub(w.Resets).Abs() < time.Minute
		if !w.Long && w.Resets.Sub(now) < minWindow && !sameReset {
			continue
		}
		if sameReset && known.Used == w.Used {
			continue
		}
		next.windows[name], changed = w, true
	}
	return next, changed
}

// saveQuota writes the windows of an account to its file. It keeps windows with other names, such as
// those that a status line has recorded.
func (a *keyAccounts) saveQuota(name string, windows map[string]gateway.QuotaWindow, now time.Time) error {
	list, err := quota.Load(a.quotas, name, now)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	list = slices.DeleteFunc(list, func(w quota.Window) bool { _, ours := windows[w.Name]; return ours })
	for _, key := range slices.Sorted(maps.Keys(windows)) {
		if w := windows[key]; w.Resets.After(now) {
			list = append(list, quota.Window{Name: w.Name, Used: w.Used, Resets: w.Resets.Round(time.Second)})
		}
	}
	return quota.Save(a.quotas, name, list)
}
