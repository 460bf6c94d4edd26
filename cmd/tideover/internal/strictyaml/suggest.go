package strictyaml

import (
	"fmt"
	"strings"

	"github.com/tideover/tideover/internal/textfmt"
)

// hints maps words that other tools use for a setting to our key for it.
var hints = map[string]string{
	"command": "run", "cmd": "run", "exec": "run", "args": "run", "script": "run", "shell": "run",
	"depends-on": "needs", "depends_on": "needs", "after": "needs", "requires": "needs",
	"retry": "policy", "retries": "policy", "attempts": "policy", "backoff": "policy",
	"timeout": "the policy's attempt-timeout or total-timeout", "attempt-timeout": "policy", "total-timeout": "policy",
	"cron": "schedule", "every": "schedule", "name": "id", "cwd": "dir", "workdir": "dir", "working-directory": "dir",
	"environment": "env", "url": "one of get, post, put, patch, delete, head", "method": "one of get, post, put, patch, delete, head",
	"api-key": "auth", "api_key": "auth", "apikey": "auth", "key": "auth", "keys": "auth", "token": "auth",
	"address": "listen", "port": "listen", "bind": "listen", "state": "data", "on-failure": "on-give-up",
}

// UnknownKey returns the message about an unknown key. It suggests the key that is
// probably meant, or else lists the known keys.
func UnknownKey(name string, known []string) string {
	msg := fmt.Sprintf("key %q is unknown", name)
	if best := textfmt.Nearest(name, known); best != "" {
		return msg + fmt.Sprintf("; did you mean %q?", best)
	}
	if hint := hints[strings.ToLower(name)]; hint != "" {
		for _, k := range known {
			if strings.Contains(hint, k) {
				return msg + "; use " + hint
			}
		}
	}
	return msg + "; want " + strings.Join(known, ", ")
}

// UnknownName returns the message about an unknown name, such as
// `unknown step "bild"; did you mean "build"?`. The argument what names the kind of thing,
// in the singular, such as "step".
func UnknownName(what, name string, known []string) string {
	return fmt.Sprintf("unknown %s %q; %s", what, name, textfmt.SuggestName(what, name, known))
}
