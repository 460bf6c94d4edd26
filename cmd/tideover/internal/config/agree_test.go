package config_test

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// TestLoaderAndSchemaAgree puts values at the mark § of a file. The loader and the schema
// must both accept the good values and both refuse the bad ones.
func TestLoaderAndSchemaAgree(t *testing.T) {
	_, resolved := schema(t)
	for where, values := range map[string]struct{ good, bad []string }{
		"sessions: {s: {start: [x], windows: §}}": {
			[]string{"3", `"3"`, `"+3"`, `"003"`, "2147483647"}, []string{"0", `"0"`, "-1", `"-1"`, `""`, "3.5", "many", "null", "[]", "2147483648"},
		},
		"sessions: {s: {start: [x], on: {unknown: {do: resume, attempts: §}}}}": {[]string{"1", `"2"`}, []string{"0", `"0"`, "-2"}},
		"sessions: {s: {start: [x], notify: §}}":                                {[]string{"[]", "[n]"}, []string{"null", "n", "[n, n]", "[N]"}},
		"sessions: {s: {start: [x], deadline: §}}": {
			[]string{"1h", ".5h", "5.h", "1d12h", "1.5d", "1m30s", "0h1s", "500µs", "500μs"},
			[]string{"0s", "0d", "0h0m", "0.0s", "1", `"5"`, "1h1d", "h", ".h", ".", `""`, "-1h", "1 h", "1w", "null"},
		},
		"sessions: {s: {start: §}}":                                {[]string{"[x]", "[x, 5, true, '']", "[5]"}, []string{"[]", `[""]`, "x", "null", "[[x]]"}},
		"sessions: {s: {start: [x], resume-any: true, resume: §}}": {[]string{"[x]"}, []string{"[]", `["", x]`}},
		"sessions: {s: {start: [x], dir: §}}":                      {[]string{"/x", "2026"}, []string{"null", "[]"}},
		"sessions: {s: {start: [x], env: §}}":                      {[]string{"{A: 1, _b: x}", "{}"}, []string{"{a b: x}", "{1A: x}", "{A-B: x}", "null", "[]"}},
		"sessions: {§: {start: [x]}}": {
			[]string{"a", "on-give-up", "a.on-give-up.b"}, []string{"a.on-give-up", ".on-give-up", "A", "a b"},
		},
		"workflows: {§: {steps: [{id: a, run: [x]}]}}": {
			[]string{"a", "sessions"}, []string{"a.on-give-up", "session.a", "notify.a", "nip90.a"},
		},
		"workflows: {w: {concurrency: §, steps: [{id: a, run: [x]}]}}":                     {[]string{"0", "5", `"0"`, `"5"`}, []string{"-1", `"-1"`, "x"}},
		"workflows: {w: {timeout: §, steps: [{id: a, run: [x]}]}}":                         {[]string{"1s"}, []string{"0s", "0m"}},
		"workflows: {w: {steps: [{id: §, run: [x]}]}}":                                     {[]string{"a", "5", "2026", "true"}, []string{"null", "A", "-5"}},
		"workflows: {w: {steps: [{id: a, run: [x], when: §}]}}":                            {[]string{"'{{ .input }}'"}, []string{"null", "[]", "{}"}},
		"workflows: {w: {steps: [{id: a, run: [x], for-each: §}]}}":                        {[]string{"'{{ .input }}'", "[1, {a: b}]"}, []string{"null", "[]", "{}", "5"}},
		"workflows: {w: {steps: [{id: a, run: [x], for-each: [1], parallel: §}]}}":         {[]string{"1", "1000", `"5"`}, []string{"0", "1001", "x", "null"}},
		"workflows: {w: {steps: [{id: a, sleep: §}]}}":                                     {[]string{"5m", "'{{ .input }}'"}, []string{"null", "[]"}},
		"workflows: {w: {steps: [{id: a, wait-for: §}]}}":                                  {[]string{"paid", "Paid_2", "{event: a}", "{event: a, timeout: 1h, on-timeout: fail}"}, []string{"null", "[]", "{}", "a b", "''", "{event: a, timeout: 0s}", "{event: a, timeout: 1h, on-timeout: stop}"}},
		"workflows: {w: {steps: [{id: a, approve: §}]}}":                                   {[]string{"Go?", "{question: Go?}", "{question: Go?, choices: [a, b], who: ['cli:a b'], timeout: 1h, default: a}"}, []string{"null", "[]", "{}", "{question: Go?, choices: []}", "{question: Go?, choices: [a]}", "{question: Go?, choices: [a, a]}", "{question: Go?, who: []}", "{question: Go?, who: [A]}", "{question: Go?, on-reject: stop}"}},
		"workflows: {w: {steps: [{id: a, run: [x], undo: §}]}}":                            {[]string{"{run: [x]}", "{http: {get: 'https://a.example'}, policy: task}"}, []string{"null", "{}", "{run: []}", "{sleep: 5m}", "{run: [x], http: {get: 'https://a.example'}}", "{run: [x], undo: {run: [x]}}"}},
		"workflows: {v: {steps: [{id: a, run: [x]}]}, w: {steps: [{id: a, workflow: §}]}}": {[]string{"v"}, []string{"null", "V", "[]"}},
		"workflows: {w: {steps: [{id: a, run: §}]}}":                                       {[]string{"[x]", "[x, '']"}, []string{"[]", `[""]`}},
		"workflows: {w: {steps: [{id: a, run: [x]}], on-give-up: {notify: §}}}":            {[]string{"[n]"}, []string{"[]", "[n, n]", "n"}},
		"workflows: {w: {steps: [{id: a, http: {get: 'https://a.example', headers: §}}]}}": {
			[]string{"{A: x, x-b: 5}"}, []string{"{a b: x}", "{'': x}", "{content-length: 5}", "{Connection: x}", "{TRANSFER-encoding: x}", "null"},
		},
		"engine: §":                              {[]string{"null", "{}", "{nats: a.example}", "{nats: [a.example, 'tls://b.example:1']}"}, []string{"[]", "5", "{nats: []}", "{nats: ''}", "{nats: null}", "{nats: [[]]}"}},
		"engine: {nats: a.example, shards: §}":   {[]string{"1", "512", `"+32"`, "099"}, []string{"0", "513", `"0"`, `"600"`, "x", "null"}},
		"engine: {nats: a.example, replicas: §}": {[]string{"1", "5", `"3"`}, []string{"0", "6", `"6"`, "-1"}},
		"engine: {nats: a.example, name: §}":     {[]string{"a", "a-1", "5", "true"}, []string{"A", "''", "a.b", "a_b", "null"}},
		"engine: {nats: a.example, member: §}":   {[]string{"a", "'A host, 5'", "5"}, []string{"''", "null", "[]"}},
		"engine: {nats: a.example, token: §}":    {[]string{"'${env:HOOK}'"}, []string{"x", "null", "5"}},
		"engine: {nats: a.example, tls: §}":      {[]string{"null", "{}"}, []string{"x", "[]", "{a: b}"}},
		"alarm: §":                               {[]string{"null", "{}", "{for: 1m}", "{min-attempts: 1}"}, []string{"[]", "5", "{for: 0s}", "{min-attempts: 0}", "{on: 1}"}},
		"tracing: §":                             {[]string{"{endpoint: 'http://127.0.0.1:4318'}", "{endpoint: 'https://a.example/x', headers: {A: x}}"}, []string{"null", "{}", "[]", "{endpoint: null}", "{endpoint: 'http://a.example', headers: {a b: x}}", "{endpoint: 'http://a.example', sampling: 1}"}},
		"alarm: {amplification: §}":              {[]string{"2", "1.1", "3.5", "1000000"}, []string{"1", "0", "-2", "'2'", "null", "1000001", "many"}},
		"gateway: §":                             {[]string{"null", "{}", "{token: '${env:PROVIDER_KEY}'}"}, []string{"[]", "5", "{token: 5}", "{token: x}", "{token: null}", "{hosts: []}"}},
		"gateway: {listen: §}":                   {[]string{"localhost:80", "'[::1]:0'"}, []string{"localhost", "localhost:65536", "'::1:80'", "null"}},
		"providers: §":                           {[]string{"null", "{}", "{openai: }", "{openai: {}}"}, []string{"[]", "5", "{openai: []}", "{Openai: {}}", "{openai: 5}"}},
		"providers: {openai: {preset: §}}": {
			[]string{"openai", "anthropic", "gemini"}, []string{"null", "other", "OpenAI", "5"},
		},
		"providers: {g: {base-url: 'https://a.example', format: §}}": {[]string{"mine", "a.b", "5"}, []string{"Mine", "''", "null", "a b"}},
		"providers: {openai: {auth: §}}": {
			[]string{"none", "'${env:HOOK}'", "['${env:HOOK}', '${env:SPARE_KEY}']", "[{name: a, key: '${env:HOOK}'}]", "[{key: '${env:HOOK}'}]"},
			[]string{"null", "[]", "x", "5", "true", "'Bearer ${env:HOOK}'", "'${env:HOOK}x'", "'${env:}'", "'${HOOK}'", "[none]", "[x]", "[[]]", "[null]", "[{}]", "[{name: a}]",
				"[{name: A, key: '${env:HOOK}'}]", "[{name: a, key: x}]", "{key: '${env:HOOK}'}", "[{key: '${env:HOOK}', more: 1}]"},
		},
		"providers: {g: {base-url: 'https://a.example', auth: '${env:HOOK}', auth-header: §}}": {
			[]string{"X-Key", "authorization"}, []string{"X Key", "''", "null", "Connection", "content-LENGTH", "HOST", "[]"},
		},
		"providers: {g: {base-url: 'https://a.example', auth: '${env:HOOK}', auth-header: X-Key, auth-scheme: §}}": {
			[]string{"Token", "Bearer"}, []string{"a b", "''", "null"},
		},
		"providers: {openai: {retry-posts: §}}": {[]string{"never", "answered", "unanswered"}, []string{"null", "always", "true"}},
		"providers: {openai: {repeatable: §}}": {
			[]string{"[POST /a]", "[POST /, PATCH /a/b/]"}, []string{"null", "POST /a", "[POST a]", "[post /a]", "[/a]", "[POST  /a]", "[POST /a, POST /a]", "['POST /a?b']", "['POST /a b']", "[POST]", "[5]"},
		},
		"providers: {openai: {plain-http: §}}":                       {[]string{"true", "false"}, []string{"null", "yes", "1", "'true'"}},
		"providers: {a: {base-url: 'http://a', h2c: §, auth: none}}": {[]string{"true", "false"}, []string{"null", "yes", "1", "'true'"}},
		"providers: {openai: {idempotency-keys: §}}":                 {[]string{"true", "false"}, []string{"null", "yes", "1", "'true'"}},
		"providers: {openai: {headers: §}}":                          {[]string{"{}", "{A: x, b: 5}"}, []string{"null", "[]", "{a b: x}", "{Content-Length: 5}", "{host: x}", "{Trailer: x}", "{A: null}", "{A: []}"}},
		"providers: {openai: {rate: §}}":                             {[]string{"{}", "{concurrent: 1}", "{queue: '5'}", "{adaptive: false}"}, []string{"null", "50/min", "{concurrent: 0}", "{queue: 0}", "{adaptive: 1}", "{rps: 1}"}},
		"providers: {openai: {rate: {requests: §}}}":                 {[]string{"50/min", "1/s", "007/h", "5/d", "5/2d", "1/1.5s", "2/1h30m"}, []string{"0/s", "00/min", "5", "/s", "5/", "-1/s", "5/w", "5/0d", "5/1d12h", "1.5/s", "null", "5/m"}},
		"providers: {openai: {rate: {requests: 1/s, burst: §}}}":     {[]string{"1", `"5"`}, []string{"0", "-1", "many", "null"}},
		"providers: {openai: {priority: §}}":                         {[]string{"lowest", "low", "normal", "high", "highest"}, []string{"null", "0", "urgent", "Normal"}},
		"providers: {openai: {breaker: §}}": {
			[]string{"{}", "{consecutive: 0}", "{of-last: 5}", "{window: 5s, of-last: 5}", "{open-for: 1m}", "{slow: 5s}", "{slow: 5s, slow-rate: 1%}"},
			[]string{"null", "off", "{consecutive: -1}", "{of-last: 0}", "{window: 0s}", "{open-for: 5}", "{slow: 0s}", "{slow: 5s, slow-rate: 0%}", "{other: 1}"},
		},
		"providers: {openai: {breaker: {failures: §}}}": {
			[]string{"50%", "100%", "0.5%", ".5%", "5.%", "007%", "100.00%", "99.99%"}, []string{"0%", "0.0%", "50", "0.5", "101%", "100.1%", "1000%", "-5%", "'%'", "'50 %'", "null", "'.%'"},
		},
		"providers: {openai: {forward-headers: §}}":                                                    {[]string{"[]", "[X-Run, x-trace]"}, []string{"null", "X-Run", "[a b]", "['']", "[X-Run, X-Run]", "[[]]"}},
		"providers: {openai: {forward-query: §}}":                                                      {[]string{"[]", "[q, 'filter[a]', page_token]"}, []string{"null", "q", "['a=b']", "['']", "[q, q]", "[[]]", "['a b']", "['_']"}},
		"providers: {openai: {fallback: §}}":                                                           {[]string{"[]"}, []string{"null", "openai", "[[]]", "[Up]"}},
		"providers: {openai: {fallback: [b], fallback-after: §}, b: {preset: openai, auth: none}}":     {[]string{"1", `"2"`}, []string{"0", "-1", "null", "x"}},
		"providers: {openai: {stream: §}}":                                                             {[]string{"{}", "{hold: 1s}", "{idle: 5m}", "{hold: none, idle: none}"}, []string{"null", "{hold: 0s}", "{hold: None}", "{idle: [none]}", "{idle: 5}", "{wait: 1s}", "[]"}},
		"providers: {openai: {max-body: §}}":                                                           {[]string{"1", "64MiB", `"5"`, "none"}, []string{"0", "0KiB", "-1", "x", "null", "nonesuch"}},
		"providers: {openai: }\nworkflows: {w: {steps: [{id: a, http: {get: /v1, provider: §}}]}}":     {[]string{"openai"}, []string{"null", "[]", "OpenAI"}},
		"providers: {openai: }\nworkflows: {w: {steps: [{id: a, http: {provider: openai, post: §}}]}}": {[]string{"/v1", "/", "'/{{ .run.id }}?a=b'", "'/v1?key=${env:HOOK}'"}, []string{"null", "[]"}},
		"nip90: {key: §, relays: ['wss://a.example'], kinds: {5900: {run: [x]}}}":                      {[]string{"'${env:NOSTR_KEY}'"}, []string{"null", "x", "5", "[]", "'a${env:NOSTR_KEY}'", "'${NOSTR_KEY}'"}},
		"nip90: {key: '${env:NOSTR_KEY}', relays: §, kinds: {5900: {run: [x]}}}": {
			[]string{"['wss://a.example']", "['ws://a.example/b/c', 'WSS://[::1]:5']"}, []string{"null", "[]", "'wss://a.example'", "['https://a.example']", "[a.example]", "['wss://a@b.example']", "['wss://a.example?b']", "['wss://a.example/#']", "['wss:///b']", "[5]", "[null]", "['wss://a.example', 'wss://a.example']"},
		},
		"nip90: {key: '${env:NOSTR_KEY}', relays: ['wss://a.example'], kinds: §}": {
			[]string{"{5000: {run: [x]}}", "{5999: {run: [x]}, '5900': {http: {get: 'https://a.example'}}}"}, []string{"null", "{}", "[]", "{4999: {run: [x]}}", "{6000: {run: [x]}}", "{59000: {run: [x]}}", "{a: {run: [x]}}", "{5900: {}}", "{5900: null}", "{5900: {run: [x], http: {get: 'https://a.example'}}}", "{5900: {run: [x], id: a}}", "{5900: {workflow: w, run: [x]}}"},
		},
		"nip90: {key: '${env:NOSTR_KEY}', relays: ['wss://a.example'], kinds: {5900: {run: [x]}}, customers: §}": {
			[]string{"['" + customer + "']", "['" + npub + "']", "['" + strings.ToUpper(npub) + "']"}, []string{"null", "[]", "['']", "[5]", "['" + customer[1:] + "']", "['" + npub[1:] + "']", "['" + customer + "', '" + customer + "']", "'" + npub + "'"},
		},
		"nip90: {key: '${env:NOSTR_KEY}', relays: ['wss://a.example'], kinds: {5900: {run: [x]}}, open: §}":          {[]string{"true", "false"}, []string{"null", "1", "'true'"}},
		"nip90: {key: '${env:NOSTR_KEY}', relays: ['wss://a.example'], kinds: {5900: {run: [x]}}, limits: §}":        {[]string{"{}", "{per-minute: 1000, burst: '1', workers: 1000, queue: 10000, max-age: 24h}", "{queue: '+099'}"}, []string{"null", "[]", "{per-minute: 0}", "{burst: 1001}", "{workers: '1001'}", "{queue: 10001}", "{max-age: 0s}", "{max-age: 5}", "{rate: 1}"}},
		"nip90: {key: '${env:NOSTR_KEY}', relays: ['wss://a.example'], kinds: {5900: {run: [x], timeout: §}}}":       {[]string{"1s", "2m", "1m1s"}, []string{"0s", "30", "null", "-1s"}},
		"nip90: {key: '${env:NOSTR_KEY}', relays: ['wss://a.example'], kinds: {5900: {run: [x], timeout-scope: §}}}": {[]string{"attempt", "total"}, []string{"null", "job", "true"}},
		"nip90: {key: '${env:NOSTR_KEY}', relays: ['wss://a.example'], kinds: {5900: {run: [x], max-total: §}}}":     {[]string{"1h", "2d"}, []string{"0s", "none", "5", "null"}},
		"audit: §":                 {[]string{"null", "{}", "{keep: 5}", `{keep: "5"}`, "{keep: 0}", "{file: 5}"}, []string{"[]", "{keep: -1}", `{keep: "-1"}`, "5"}},
		"server: §":                {[]string{"null", "{}", `{concurrency: "5"}`}, []string{"[]", "{concurrency: 0}", `{concurrency: "0"}`}},
		"server: {listen: §}":      {[]string{"localhost:80", "127.0.0.1:0", "'[::1]:80'", "localhost:00080"}, []string{"localhost", "'::1:80'", "localhost:65536", "'localhost:'", "localhost:x"}},
		"server: {env-inherit: §}": {[]string{"all", "[]", "[A]", `[SSH_AUTH_SOCK, "AWS_*"]`}, []string{"some", "A", "[A, A]", `["A B"]`, `["*"]`, `["1A"]`, "null", "{}", "[[]]"}},
		"workflows: {w: {env-inherit: §, steps: [{id: a, run: [x]}]}}": {[]string{"all", "[A]"}, []string{"none", "[a-b]"}},
		"workflows: {w: {steps: [{id: a, run: [x], env-inherit: §}]}}": {[]string{"all", "[A]"}, []string{"none", "[a-b]"}},
		"notify: {n: {run: [x], env-inherit: §}}":                      {[]string{"all", "[A]"}, []string{"none", "[a-b]"}},
		"server: {max-connections: §}":                                 {[]string{"1", "5000", `"5"`}, []string{"0", "-1", "x", "1.5", "null"}},
		"server: {max-connections-per-address: §}":                     {[]string{"1", "5000"}, []string{"0", "-1", "x"}},
		"server: {max-body: §}":                                        {[]string{"1", "1KiB", `"5"`}, []string{"0", `"0"`, "0KiB", "-1"}},
		"detect: {d: {§}}": {
			[]string{"rules: []", "rules: null", "messages: null", "exit-codes: null", "exit-codes: {}", "description: null", "extends: null", "extends: generic"},
			[]string{"rules: {}", "messages: {}", "exit-codes: []", "extends: other", "extends: []"},
		},
		"notify: {n: {run: [x], on: §}}": {
			[]string{"[gave-up]", "[' gave-up']", "['gave-up ', waiting>.5h]", "['waiting > 30m']", "[' waiting>1d ']"},
			[]string{"[]", "[gaveup]", "[waiting>0s]", "[waiting>]", "[resumed>1m]", "[waiting>5]", "null", "gave-up"},
		},
		"notify: {n: {run: [x], at-most: §}}": {[]string{"5/h", "1000/s", "007/d", "1/m"}, []string{"0/h", "1001/h", "5/w", "5", "00/h", "9999/h", "-1/h"}},
		"notify: {n: {run: [x], dedupe: §}}":  {[]string{"0", `"0"`, "0s", "0m", "0d", "0h0m", "10m"}, []string{"5", `"5"`, "-1s", "null", `""`}},
		"notify: {n: {run: [x], timeout: §}}": {[]string{"1s"}, []string{"0s", "0", "1"}},
		"notify: {n: {run: §}}":               {[]string{"[x]", "[x, '']"}, []string{"[]", `[""]`, `["", x]`}},
		"notify: {n: {webhook: 'https://a.example', headers: §}}": {
			[]string{"{A: x}"}, []string{"{a b: x}", "{'a:': x}", "{Content-Length: 5}"},
		},
		"notify: {n: {email: {to: [a@b.example], from: a@b.example, server: §}}}": {
			[]string{"b.example:587", "'[::1]:25'", "b.example:0025"},
			[]string{"b.example", "':25'", "b.example:0", "b.example:65536", "b.example:smtp", "'b.example:'", "'::1:25'", "'[]:25'"},
		},
	} {
		for i, list := range [][]string{values.good, values.bad} {
			for _, v := range list {
				text := "version: 1\n" + strings.Replace(where, "§", v, 1) + "\n"
				if !strings.HasPrefix(where, "notify:") {
					text += "notify: {n: {run: [x]}}\n"
				}
				_, loaded := config.Load(config.Source{Path: "/etc/tideover.yaml", Data: []byte(text), Environ: environ})
				valid := resolved.Validate(decoded(t, []byte(text)))
				if good := i == 0; (loaded == nil) != good || (valid == nil) != good {
					t.Errorf("%s\nwant good: %v; the loader says %v, the schema %v", text, good, loaded, valid)
				}
			}
		}
	}
}
