//go:build unix

package secrets_test

import (
	crand "crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// planted occurs twice in every secret, so that the test also finds half of a secret. No encoder
// changes its letters, except base64.
const planted = "PLANTED"

// Characters that encoders change. Each constant has those that are allowed in one place of a
// configuration.
const (
	anywhere = `k/+"<'&%\ =`
	inAPath  = `T0"0/B(1)+=/`
	inAQuery = `q"'+/=`
	asAUser  = `u'$+;=`
)

// plantedSecrets are secrets by the name of their variable or file.
type plantedSecrets map[string]string

func (p plantedSecrets) add(hard string, names ...string) {
	for _, name := range names {
		p[name] = hard + planted + strings.ToLower(crand.Text()[:8]) + planted + "z"
	}
}

// newPlantedSecrets returns a secret for every setting that can hold one.
func newPlantedSecrets(address string) plantedSecrets {
	p := plantedSecrets{}
	p.add(anywhere, "SERVER_TOKEN", "GATE_TOKEN", "KEY_A", "KEY_SPARE", "EXTRA", "STEP_HEADER", "STEP_ENV", "FLOW_ENV", "NTFY_TOKEN", "HOOK_HEADER", "HOOK_BODY", "MAIL_USER", "SCRIPT_ENV",
		"GIVE_UP_ENV", "SESSION_ENV", "TRACE_HEADER", "JOB_ENV")
	p.add(anywhere, "key-b", "mail", "step") // files
	p.add(inAPath, "STEP_PATH", "NTFY_TOPIC", "TRACE_PATH")
	p.add(inAQuery, "STEP_QUERY", "HOOK_QUERY")
	p.add(asAUser, "STEP_USER", "STEP_PASSWORD")
	p["WORD"] = "w" + planted + "x" + planted // has no digits, so a path with it looks like any other
	p.add("", "whole", "slack", "proxy")      // parts of the URLs below
	p["WHOLE_URL"] = fmt.Sprintf("http://me:pw%[2]s@%[1]s/step/in/%[2]s/x?mode=path&key=q%[2]s", address, p["whole"])
	p["AWAY_URL"] = strings.Replace(p["WHOLE_URL"], address, unusedAddress, 1)
	p["SLACK_URL"] = "http://" + address + "/told/slack/T0/" + p["slack"]
	p["HTTPS_PROXY"] = "http://me:" + p["proxy"] + "@" + unusedAddress
	p["PEM"] = "-----BEGIN KEY-----\nAAAA" + planted + crand.Text() + "\nBBBB" + planted + crand.Text() + "\n-----END KEY-----"
	key := make([]byte, 32)
	_, _ = crand.Read(key)
	p["DVM_KEY"] = hex.EncodeToString(key)
	return p
}

// unusedAddress is an address on which no process listens.
const unusedAddress = "127.0.0.1:1"

// marks returns the texts that must not appear in any output.
func (p plantedSecrets) marks(t *testing.T) []string {
	t.Helper()
	k := clitest.NostrKey(t, p["DVM_KEY"])
	marks := []string{planted, p["DVM_KEY"], k.Reveal()}
	for before := range 3 { // in base64, the letters depend on the position in a group of three bytes
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat(" ", before) + planted))
		marks = append(marks, text[(before*8+5)/6:(before+len(planted))*8/6])
	}
	return marks
}

// env returns the secrets that are variables.
func (p plantedSecrets) env() (list []string) {
	for name, value := range p {
		if strings.ToUpper(name) == name {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// allSpellings returns all secrets in all spellings, one per line.
func (p plantedSecrets) allSpellings() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		list = append(list, spellings(p[name])...)
	}
	return strings.Join(list, "\n") + "\n"
}

// oneSpelling returns each secret in one of the spellings.
func (p plantedSecrets) oneSpelling() string {
	var list []string
	for i, name := range slices.Sorted(maps.Keys(p)) {
		all := spellings(p[name])
		list = append(list, all[i%len(all)])
	}
	return strings.Join(list, "\n") + "\n"
}

// spellings returns the encodings of a secret that programs use.
func spellings(s string) (list []string) {
	j, _ := json.Marshal(s)
	text := strings.Trim(string(j), `"`)
	percent := url.QueryEscape(s)
	escaped := html.EscapeString(s)
	list = []string{
		s, text, strings.ReplaceAll(text, "/", `\/`), strings.NewReplacer(`\u003c`, "<", `\u0026`, "&").Replace(text), strings.Trim(strconv.Quote(s), `"`),
		strings.NewReplacer(`\"`, `\u0022`, `\\`, `\\`, `\u003c`, `\u003C`, "'", `\u0027`, "+", `\u002B`).Replace(text),
		percent, lowerHex(percent), url.PathEscape(s), (&url.URL{Path: s}).EscapedPath(), strings.TrimPrefix((&url.URL{User: url.User(s)}).String(), "//"),
		strings.NewReplacer("+", "%20", "%27", "'", "%28", "(", "%29", ")").Replace(percent), strings.NewReplacer("+", "%20", "%2F", "/").Replace(percent),
		escaped, strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#x27;").Replace(escaped), strings.NewReplacer("&#34;", `"`, "&#39;", "'").Replace(escaped),
	}
	for _, before := range []string{"", "u:", "us:"} {
		list = append(list, base64.StdEncoding.EncodeToString([]byte(before+s)), base64.URLEncoding.EncodeToString([]byte(before+s+"!")))
	}
	return list
}

// lowerHex writes %2F as %2f.
func lowerHex(s string) string {
	parts := strings.Split(s, "%")
	for i := range parts[1:] {
		parts[i+1] = strings.ToLower(parts[i+1][:2]) + parts[i+1][2:]
	}
	return strings.Join(parts, "%")
}
