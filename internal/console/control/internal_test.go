package control

import "testing"

func TestInternal(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"session.todo": true, "notify.hook": true, "x.on-give-up": true, "session.x.on-give-up": true, "order": false, "sessions": false,
		"my.session.x": false, "on-give-up": false, "": false,
	} {
		if got := Internal(name); got != want || (Startable(name) != nil) != want {
			t.Errorf("Internal(%q) = %t, Startable: %v", name, got, Startable(name))
		}
	}
}
