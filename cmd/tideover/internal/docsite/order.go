package docsite

import (
	"path"
	"strings"
)

// group is a part of the table of contents.
type group struct {
	title string
	files []entry
}

// entry is a page of the table of contents.
type entry struct {
	file  string // path in the repository
	label string // in the table of contents
}

// decisions is the folder of the architecture decisions. Its pages follow the last group, in the
// order of their numbers.
const decisions = "docs/adr/"

// promises is the page with the tests of the guarantees.
const promises = "docs/promises.md"

// isSeldomAnswer reports whether the sections of the page count half in a search: a decision, the list
// of tests, or that of all keys has the words of many tasks, but does not explain how to do them. The
// list of the decisions is an ordinary page.
func (p *page) isSeldomAnswer() bool {
	return p.File == promises || p.File == "docs/keys.md" || strings.HasPrefix(p.File, decisions) && p.File != decisions+"README.md"
}

// order is the reading order of the pages.
var order = []group{
	{"Start", []entry{
		{"README.md", "Overview"},
		{"docs/README.md", "Pages by task"},
		{"docs/install.md", "Install"},
		{"docs/exec.md", "Commands: exec"},
		{"docs/sessions.md", "Sessions: watch"},
		{"docs/sessions-howto.md", "Sessions: how to"},
		{"docs/detect.md", "Messages: detect"},
		{"docs/faq.md", "Questions"},
	}},
	{"Library", []entry{
		{"docs/library.md", "Retrying in Go"},
		{"docs/http.md", "HTTP requests"},
		{"docs/health.md", "Choosing destinations"},
		{"docs/contend.md", "Writers that collide"},
	}},
	{"Policies", []entry{
		{"docs/policy.md", "Policies: plan"},
		{"docs/advise.md", "Finding a policy: advise"},
		{"docs/sim.md", "Simulating failures: sim"},
		{"docs/chaos.md", "Failing on purpose: chaos"},
		{"docs/chaos-reference.md", "Rules of chaos"},
	}},
	{"Workflows", []entry{
		{"docs/engine.md", "Engine"},
		{"docs/workflows.md", "Workflows as code: first flow"},
		{"docs/workflows-howto.md", "Workflows as code: how to"},
		{"docs/workflows-reference.md", "Workflows as code: reference"},
		{"docs/serve.md", "Server: serve"},
		{"docs/serve-file.md", "Configuration file"},
		{"docs/commands.md", "Commands of a server"},
		{"docs/page.md", "Web page"},
		{"docs/yaml-recipes.md", "Recipes for steps"},
		{"docs/recipes.md", "Recipes"},
		{"docs/notify.md", "Notifications"},
		{"docs/nip90.md", "Tasks over Nostr"},
	}},
	{"Gateway", []entry{
		{"docs/gateway.md", "Gateway"},
		{"docs/gateway-howto.md", "Gateway: how to"},
		{"docs/gateway-reference.md", "Gateway: reference"},
		{"docs/gateway-go.md", "In a Go program"},
	}},
	{"Cluster and operation", []entry{
		{"docs/cluster.md", "Several servers: first cluster"},
		{"docs/cluster-howto.md", "Several servers: how to"},
		{"docs/cluster-reference.md", "Several servers: behaviour"},
		{"docs/operations.md", "Operating a server"},
		{"docs/tls.md", "TLS and remote access"},
		{"docs/metrics.md", "Metrics and traces"},
		{"docs/security.md", "Security"},
	}},
	{"Reference", []entry{
		{"docs/api.md", "API"},
		{"docs/keys.md", "All keys of the file"},
		{"docs/templates.md", "Templates"},
		{"docs/guarantees.md", "Guarantees"},
		{promises, "Tests of the guarantees"},
		{"docs/stability.md", "What may change"},
		{"docs/glossary.md", "Glossary"},
	}},
	{"Measurements", []entry{
		{"docs/measurements.md", "Measurements"},
		{"docs/comparison.md", "Comparison"},
		{"docs/benchmarks.md", "Benchmarks of the library"},
		{"docs/durable-benchmarks.md", "Benchmarks of the engine"},
		{"docs/gateway-benchmarks.md", "Benchmarks of the gateway"},
		{"docs/science.md", "Science of backoff"},
	}},
	{"Background", []entry{
		{decisions + "README.md", "Decisions"},
	}},
}

// otherWords has words that users have for the subject of a page, and that its title does not have. A
// search treats them like the title.
var otherWords = map[string]string{
	"docs/install.md":       "download update version linux macos windows docker",
	"docs/sessions.md":      "claude codex assistant usage limit resume continue",
	"docs/http.md":          "429 503 rate limit client",
	"docs/serve.md":         "schedule cron daily day nightly start",
	"docs/notify.md":        "email mail slack webhook alert message",
	"docs/gateway-howto.md": "limit rate rotate keys openai anthropic",
	"docs/cluster.md":       "multiple machines nodes workers",
	"docs/operations.md":    "retention kept keep delete upgrade downtime disk backup",
	"docs/tls.md":           "https certificate ssl port address listen",
	"docs/metrics.md":       "prometheus grafana opentelemetry alerts",
	"docs/security.md":      "secrets permissions access token",
	"docs/api.md":           "http rest curl json",
	"docs/guarantees.md":    "crash kill power exactly once twice",
	"docs/glossary.md":      "meaning term definition",
}

// pagePath returns the path of a page below /docs, or "" for the first page. The file is a path in
// the repository.
func pagePath(file string) string {
	switch name := strings.TrimSuffix(strings.TrimPrefix(file, "docs/"), ".md"); {
	case file == "README.md":
		return ""
	case file == "docs/README.md":
		return "tasks"
	case path.Base(name) == "README":
		return path.Dir(name)
	default:
		return name
	}
}
