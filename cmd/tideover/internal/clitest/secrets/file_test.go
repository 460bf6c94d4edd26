//go:build unix

package secrets_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// file returns the configuration, with a secret in every setting that can hold one.
func (v *fullServer) file() string {
	at := func(path string) string { return v.world.URL + path }
	var flows strings.Builder
	steps := v.workflows()
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		fmt.Fprintf(&flows, "  %s: {env: {FLOW: '${env:FLOW_ENV}'}, steps: [{id: a, %s, policy: fixed(1ms) attempts=2}]}\n", name, steps[name])
	}
	flows.WriteString("  tells: {steps: [{id: a, run: [sh, -c, 'cat said >&2; exit 4'], policy: fixed(1ms) attempts=1}], on-give-up: {notify: [ntfy, script]}}\n")
	flows.WriteString("  alarmed: {steps: [{id: a, run: [sh, -c, 'cat said; exit 4'], policy: fixed(1ms) attempts=1}], " +
		"on-give-up: {run: [sh, -c, 'cat said; cat said >&2; exit 5'], env: {S: '${env:GIVE_UP_ENV}'}, stdin: '{{ .run.error }}', policy: fixed(1ms) attempts=2}}\n")
	const told = "on: [gave-up, breaker-open], dedupe: 0, at-most: 3/m, policy: fixed(10ms) attempts=3"
	return fmt.Sprintf(`version: 1
server: {token: '${env:SERVER_TOKEN}'}
gateway: {token: '${env:GATE_TOKEN}'}
providers:
  up: {base-url: %[1]s, auth: ['${env:KEY_A}', {name: two, key: '${file:./key-b}'}], headers: {X-Extra: 'x ${env:EXTRA}'}, policy: fixed(1ms) attempts=3, repeatable: [POST /], fallback: [spare], format: own, breaker: {consecutive: 1000, of-last: 1000}}
  spare: {base-url: %[2]s, auth: '${env:KEY_SPARE}', policy: fixed(1ms) attempts=2, format: own, breaker: {consecutive: 4}}
  open: {base-url: %[3]s, policy: fixed(1ms) attempts=2, repeatable: [POST /], breaker: {consecutive: 1000, of-last: 1000}}
  gone: {base-url: "http://%[4]s", auth: '${env:KEY_A}', policy: fixed(1ms) attempts=2}
notify:
  ntfy: {ntfy: '%[5]s/${env:NTFY_TOPIC}', token: '${env:NTFY_TOKEN}', %[6]s}
  slack: {slack: '${env:SLACK_URL}', %[6]s}
  hook: {webhook: '%[7]s?key=${env:HOOK_QUERY}', headers: {X-Auth: '${env:HOOK_HEADER}'}, body: '{{ .title }} {{ .text }} {{ .line }} ${env:HOOK_BODY}', %[6]s}
  lost: {webhook: '%[8]s', %[6]s}
  mail: {email: {to: [me@example.com], from: it@example.com, server: "%[9]s", username: '${env:MAIL_USER}', password: '${file:./mail}', tls: none}, %[10]s}
  script: {run: [sh, -c, 'cat >> $DIR/told; echo >> $DIR/told; cat said >&2; cat said; test -e $DIR/once || { touch $DIR/once; exit 75; }'], env: {S: '${env:SCRIPT_ENV}'}, %[10]s}
sessions:
  kept: {start: [sh, -c, 'cat said; cat said >&2; printf "%%.20s" "$S"; sleep 0.1; printf "%%s" "${S#????????????????????}"; exit 7'], env: {S: '${env:SESSION_ENV}'}, policy: fixed(10ms) attempts=2, notify: [ntfy, slack, hook, lost, mail, script]}
tracing: {endpoint: '%[11]s/${env:TRACE_PATH}', headers: {Authorization: 'Bearer ${env:TRACE_HEADER}'}}
nip90:
  key: ${env:DVM_KEY}
  relays: ["%[12]s"]
  kinds: {5900: {run: [sh, -c, 'cat said; cat said >&2; test $TIDEOVER_ATTEMPT -ge 2'], env: {S: '${env:JOB_ENV}'}, policy: fixed(10ms) attempts=3}}
workflows:
%[13]s`, at("/up"), at("/spare"), v.world.open+"/own", unusedAddress, at("/told/ntfy"), told, at("/told/hook"), at("/told/lost"),
		v.world.mail, strings.Replace(told, "policy", "timeout: 5s, policy", 1), at("/spans"), v.relay.URL(), flows.String())
}

// workflows returns a step of each type. They print secrets and mostly fail.
func (v *fullServer) workflows() map[string]string {
	all := map[string]string{
		"prints":  `run: [sh, -c, 'cat spilled; cat said >&2; env; cat step'], env: {S: '${env:STEP_ENV}', F: '${file:./step}', P: '${env:PEM}'}, output-limit: 192KiB`,
		"fails":   `run: [sh, -c, 'cat said; cat said >&2; echo "$S" >&2; exit 3'], env: {S: '${env:STEP_ENV}'}`,
		"splits":  `run: [sh, -c, 'for i in 1 2; do printf "%.20s" "$S"; printf "%.15s" "$S" >&2; sleep 0.1; printf "%s\n" "${S#????????????????????}"; printf "%s\n" "${S#???????????????}" >&2; done; exit 3'], env: {S: '${env:STEP_ENV}'}`,
		"cuts":    `run: [sh, -c, 'printf "%1000s%s" x "$S"; printf "%1000s%s" x "$S" >&2'], env: {S: '${env:STEP_ENV}'}, output-limit: 1KiB`,
		"user":    `http: {get: 'http://${env:STEP_USER}@` + unusedAddress + `/x?key=${env:STEP_QUERY}'}`,
		"pass":    `http: {get: 'http://me:${env:STEP_PASSWORD}@` + unusedAddress + `/${env:STEP_PATH}?key=${env:STEP_QUERY}'}`,
		"whole":   `http: {post: '${env:WHOLE_URL}', body: x}`,
		"away":    `http: {post: '${env:AWAY_URL}', body: x}`,
		"proxied": `http: {get: 'https://tideover.invalid/${env:STEP_PATH}'}`,
	}
	for _, mode := range modes {
		all["step-"+mode] = `http: {post: '` + v.world.URL + `/step/${env:STEP_PATH}?mode=` + mode + `&key=${env:STEP_QUERY}', headers: {Authorization: 'Bearer ${env:STEP_HEADER}'}, body: x}, output-limit: 1KiB`
	}
	for _, mode := range []string{"ok", "refuse", "quota", "nonsense", "border", "path", "stream"} {
		all["up-"+mode] = `http: {provider: up, post: '/v1/${env:WORD}?mode=` + mode + `', body: x}, output-limit: 1KiB`
	}
	return all
}
