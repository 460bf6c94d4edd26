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
	// lookAtAccountsEvery is how often the files of the accounts are read that keys name.
	lookAtAccountsEvery = time.Second

	// saveQuotaEvery is how often the quota of an account is recorded, at most.
	saveQuotaEvery = 5 * time.Second

	// longestHold is the farthest end of a limit that keys wait for, as steps do.
	longestHold = 8 * 24 * time.Hour

	// longWindow is the least time until the reset of a quota that is recorded: shorter
	// ones are rates, and not what a session would pause for.
	longWindow = time.Hour
)

// keyAccounts shares the limits and the quotas of accounts between the keys of the gateway
// and the sessions and steps that use the same accounts. It implements [gateway.Accounts].
// Requests leave what they learn here, and a goroutine of its own reads and writes files.
type keyAccounts struct {
	gateway *gateway.Gateway
	store   *account.Store
	quotas  string // folder
	log     *slog.Logger

	news chan struct{} // something was left

	mu      sync.Mutex
	limited map[string]gateway.KeyLimit               // by account, the latest end
	worked  map[string]int64                          // serials of limits that are over
	used    map[string]map[string]gateway.QuotaWindow // by account and name

	files  sync.Mutex // held while files are read or written; guards what follows
	names  []string   // of the accounts that keys name
	own    map[string]ownLimit
	quota  map[string]savedQuota
	warned bool
}

// ownLimit is a limit that a key of this process was told.
type ownLimit struct {
	serial int64
	gateway.KeyLimit
}

// savedQuota is what was recorded of an account.
type savedQuota struct {
	at      time.Time
	windows map[string]gateway.QuotaWindow
}

func newKeyAccounts(store *account.Store, quotas string, log *slog.Logger) *keyAccounts {
	return &keyAccounts{
		store: store, quotas: quotas, log: log, news: make(chan struct{}, 1),
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

// Used implements [gateway.Accounts]. Nobody is woken for it: the next look records it.
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

func (a *keyAccounts) wake() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// follow looks after the accounts that the keys of the providers name, and tells the
// gateway at once what is known of them.
func (a *keyAccounts) follow(specs []gateway.Spec) {
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
	a.look()
	a.wake()
}

// run records what requests leave, and tells the gateway what others have recorded, until
// the context ends.
func (a *keyAccounts) run(ctx context.Context) {
	for {
		var next <-chan time.Time
		if a.follows() {
			next = time.After(lookAtAccountsEvery)
		}
		select {
		case <-next:
		case <-a.news:
		case <-ctx.Done():
			return
		}
		a.turn(false)
	}
}

// follows reports whether any key names an account.
func (a *keyAccounts) follows() bool {
	a.files.Lock()
	defer a.files.Unlock()
	return len(a.names) > 0
}

// turn records what was left, and looks at the files.
func (a *keyAccounts) turn(last bool) {
	a.files.Lock()
	defer a.files.Unlock()
	a.recordLimits()
	a.look()
	a.saveQuotas(last)
}

// recordLimits writes down limits that are over, and then those that began: one that was
// stated after a success counts.
func (a *keyAccounts) recordLimits() {
	a.mu.Lock()
	limited, worked := a.limited, a.worked
	if len(limited) > 0 {
		a.limited = map[string]gateway.KeyLimit{}
	}
	if len(worked) > 0 {
		a.worked = map[string]int64{}
	}
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

// look tells the gateway what is known of the accounts.
func (a *keyAccounts) look() {
	for _, name := range a.names {
		g, err := a.store.Gate(name)
		if err != nil {
			continue
		}
		a.gateway.SetAccountLimit(name, a.limitOf(name, g.Limit()))
	}
}

// limitOf returns a limit as the gateway wants to know it.
func (a *keyAccounts) limitOf(name string, known *account.Limit) *gateway.AccountLimit {
	if known == nil {
		delete(a.own, name)
		return nil
	}
	l := &gateway.AccountLimit{Serial: known.Serial, Why: "account " + known.Why}
	if known.Left > 0 && known.Left <= longestHold {
		l.Until = time.Now().Add(known.Left)
	}
	if own, ok := a.own[name]; ok && own.serial == known.Serial {
		l.Provider, l.Key, l.Route = own.Provider, own.Key, own.Route
	}
	return l
}

// saveQuotas records how much of the quotas is used, as far as that has changed.
func (a *keyAccounts) saveQuotas(last bool) {
	now := time.Now()
	due := map[string]map[string]gateway.QuotaWindow{}
	a.mu.Lock()
	for name, windows := range a.used {
		if last || now.Sub(a.quota[name].at) >= saveQuotaEvery {
			due[name] = windows
			delete(a.used, name)
		}
	}
	a.mu.Unlock()
	for name, windows := range due {
		next, changed := a.quota[name].with(windows, now)
		if !changed {
			continue
		}
		err := a.saveQuota(name, next.windows, now)
		if a.quota[name] = next; err != nil && !a.warned {
			a.log.Warn("the quota of an account is not recorded: pause-at has no effect for it", "account", name, "error", err)
		}
		a.warned = err != nil
	}
}

// with returns what is recorded after the windows were seen, and whether that is new. Of
// those whose length is not known it has the long ones: a window that was long remains so
// until its reset.
func (s savedQuota) with(windows map[string]gateway.QuotaWindow, now time.Time) (next savedQuota, changed bool) {
	next = savedQuota{now, maps.Clone(s.windows)}
	if next.windows == nil {
		next.windows = map[string]gateway.QuotaWindow{}
	}
	for name, w := range windows {
		known, ok := next.windows[name]
		sameReset := ok && known.Resets.Sub(w.Resets).Abs() < time.Minute
		if !w.Long && w.Resets.Sub(now) < longWindow && !sameReset {
			continue
		}
		if sameReset && known.Used == w.Used {
			continue
		}
		next.windows[name], changed = w, true
	}
	return next, changed
}

// saveQuota records windows of an account beside those that others have recorded, such as
// a status line.
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
