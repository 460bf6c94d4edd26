package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/audit"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// reloader has the configuration in effect, and replaces it when its file changes.
type reloader struct {
	options   Options
	started   *config.Config    // the configuration at the start
	fixed     map[string]string // its values by path, to find changes that need a restart
	addresses *addresses
	observer  *observer
	parts     *parts

	current atomic.Pointer[config.Config] // the configuration in effect
	last    atomic.Pointer[admin.Reload]  // the last reload; nil before the first
}

// newReloader returns a reloader whose configuration in effect is cfg. Its parts must be set
// before watch is called.
func newReloader(o Options, cfg *config.Config, a *addresses, b *observer) *reloader {
	r := &reloader{options: o, started: cfg, fixed: map[string]string{}, addresses: a, observer: b}
	r.current.Store(cfg)
	for _, v := range cfg.Values() {
		r.fixed[v.Path] = v.Text
	}
	return r
}

// watch reloads the configuration when its file changes, until the context ends.
func (r *reloader) watch(ctx context.Context) error {
	var w *config.Watcher // nil without a file
	if r.options.Source.Path != "" {
		w = config.NewWatcher(r.options.Source, r.started)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-r.options.Reload:
				r.addresses.reloadCertificate()
				if w != nil {
					w.Reload()
				}
			case <-stop:
				return
			}
		}
	}()
	if w == nil {
		<-ctx.Done()
		return nil
	}
	err := w.Run(ctx, func(cfg *config.Config, err error) error {
		old := r.current.Load()
		if err == nil {
			err = r.reload(ctx, cfg)
		}
		before := r.result().Err
		switch {
		case err == nil:
			r.observer.audit.Record(audit.Entry{Kind: audit.ConfigLoaded, Note: "reload", Digest: cfg.Digest(), Changed: cfg.ChangedSince(old)})
		case before == nil || before.Error() != err.Error():
			r.logError(err)
			first, _ := strictyaml.Brief(err)
			r.observer.audit.Record(audit.Entry{Kind: audit.ConfigRefused, Note: first})
		}
		r.setResult(err)
		return err
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// setResult stores the result of a reload.
func (r *reloader) setResult(err error) { r.last.Store(&admin.Reload{At: time.Now(), Err: err}) }

// result returns the time and the error of the last reload.
func (r *reloader) result() admin.Reload { return *cmp.Or(r.last.Load(), new(admin.Reload)) }

// settings returns the parts of the configuration in effect that the pages show.
func (r *reloader) settings() admin.Settings {
	cfg := r.current.Load()
	out := admin.Settings{Policies: cfg.Policies, Notifiers: map[string]admin.NotifierSettings{}, Reload: r.result()}
	for name, n := range cfg.Notifiers {
		on := make([]string, len(n.On))
		for i, t := range n.On {
			on[i] = t.String()
		}
		out.Notifiers[name] = admin.NotifierSettings{Kind: n.Kind, On: on}
	}
	return out
}

// file returns the result of the last reload, for the API.
func (r *reloader) file() admin.ConfigFile {
	last := r.result()
	f := admin.ConfigFile{Read: last.At}
	if last.Err != nil {
		first, more := strictyaml.Brief(last.Err)
		f.Problem, f.More = r.options.Source.Redactor.String(first), more
	}
	return f
}

// partialError is the error of a reload that changed the gateway but failed in the engine.
type partialError struct{ err error }

// Error implements [error].
func (e *partialError) Error() string {
	return "applied in part, retrying: " + e.err.Error()
}

// Unwrap returns the error of the engine.
func (e *partialError) Unwrap() error { return e.err }

// logError logs in one line why a reload failed.
func (r *reloader) logError(err error) {
	first, more := strictyaml.Brief(err)
	if _, ok := errors.AsType[*partialError](err); ok {
		r.options.Log.Error("the configuration was reloaded in part", "error", first)
		return
	}
	attrs := []any{"error", first}
	if more > 0 {
		attrs = append(attrs, "more", more)
	}
	if _, ok := errors.AsType[*noProvidersError](err); !ok { // config check accepts a file without providers
		attrs = append(attrs, "hint", "tideover config check "+r.options.Source.Path)
	}
	r.options.Log.Error("the configuration was not reloaded", attrs...)
}

// reload replaces the configuration. An error in the file changes nothing; if the engine fails to
// apply a valid one, the error is a [*partialError]. Runs in progress keep their definition.
func (r *reloader) reload(ctx context.Context, cfg *config.Config) error {
	if err := requireProviders(r.options, cfg); err != nil {
		return err
	}
	c, err := r.parts.prepare(cfg)
	if err != nil {
		return err
	}
	// The providers come before the workflows: a run of a new workflow may start at once.
	if err := r.parts.applyToGateway(c); err != nil {
		return err
	}
	r.setCurrent(cfg)
	if err := r.parts.applyToEngine(ctx, c.plan); err != nil {
		return &partialError{err}
	}
	attrs := []any{"workflows", len(cfg.Workflows), "sessions", len(cfg.Sessions), "providers", len(c.providers)}
	if later := r.restartOnly(cfg); len(later) > 0 {
		attrs = append(attrs, "except", strings.Join(later, ", "))
	}
	r.options.Log.Info("configuration loaded", attrs...)
	logWarnings(r.options.Log, cfg, r.options.Gateway)
	return nil
}

// setCurrent makes the configuration the one in effect.
func (r *reloader) setCurrent(cfg *config.Config) {
	r.current.Store(cfg)
	r.observer.alarm.Become(cfg.Alarm)
}

// fixedSections are the sections of the configuration whose changes need a restart.
var fixedSections = []string{"engine", "server", "audit", "gateway", "tracing"}

// reloadedKey is the only key of these sections whose change needs no restart.
const reloadedKey = "server.allow-hosts"

// restartOnly logs and returns the keys that have changed since the start and need a restart.
func (r *reloader) restartOnly(cfg *config.Config) (later []string) {
	now := map[string]string{}
	for _, v := range cfg.Values() {
		now[v.Path] = v.Text
	}
	all := maps.Clone(r.fixed)
	maps.Copy(all, now)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		section, _, _ := strings.Cut(path, ".")
		if slices.Contains(fixedSections, section) && path != reloadedKey && r.fixed[path] != now[path] {
			r.options.Log.Warn("this takes effect when the server is started again", "key", path, "value", cmp.Or(now[path], "none"))
			later = append(later, path)
		}
	}
	return later
}
