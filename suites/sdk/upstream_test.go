package sdk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// caseHeader names the test case in every request, so that cases can run at the same time.
const caseHeader = "X-Test-Case"

// gatewayKey is the key that the gateway has and no client.
const gatewayKey = "the-key-that-only-the-gateway-has"

// answerText is what the model says, in the pieces that a stream sends.
var (
	answerPieces = []string{"It is ", "7 degrees ", "in Oslo."}
	answerText   = strings.Join(answerPieces, "")
)

// toolResult is what the client's tool returns.
const toolResult = "7 degrees"

// uploadedFile is what the clients upload.
var uploadedFile = bytes.Repeat([]byte("0123456789abcde\n"), 8<<10)

// upstream is a server that speaks the three APIs, fails as a test case says, and counts.
type upstream struct {
	url string

	mu    sync.Mutex
	cases map[string]*caseRecord
}

// caseRecord is what the upstream has seen of one test case.
type caseRecord struct {
	hits     int      // requests that arrived
	answered int      // requests that were answered as the API says
	problems []string // what was wrong with a request
}

func startUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{cases: map[string]*caseRecord{}}
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	u.url = server.URL
	return u
}

// record returns what the upstream has seen of the test case.
func (u *upstream) record(id string) caseRecord {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c := u.cases[id]; c != nil {
		return *c
	}
	return caseRecord{}
}

// ServeHTTP implements [http.Handler]. The first request of a test case meets its fault.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	id := r.Header.Get(caseHeader)
	tc := parseCase(id)

	u.mu.Lock()
	c := u.cases[id]
	if c == nil {
		c = &caseRecord{}
		u.cases[id] = c
	}
	c.hits++
	faulty := c.hits == 1 && tc.Fault != "none"
	if !faulty {
		c.answered++
	}
	if err != nil {
		c.problems = append(c.problems, fmt.Sprintf("the body is not complete: %v", err))
	}
	if key := r.Header.Get(keyHeader[tc.API]); !strings.HasSuffix(key, gatewayKey) {
		c.problems = append(c.problems, fmt.Sprintf("%s is %q, want the key of the gateway", keyHeader[tc.API], key))
	}
	turn := c.answered
	u.mu.Unlock()

	if faulty {
		u.fail(w, tc)
		return
	}
	if err := u.answer(w, r, tc, turn, body); err != nil {
		u.mu.Lock()
		c.problems = append(c.problems, err.Error())
		u.mu.Unlock()
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// keyHeader is the header that carries the key.
var keyHeader = map[string]string{"openai": "Authorization", "anthropic": "X-Api-Key", "google": "X-Goog-Api-Key"}

// fail answers with the fault of the test case.
func (u *upstream) fail(w http.ResponseWriter, tc testCase) {
	switch tc.Fault {
	case "busy":
		tooBusy(w, http.StatusServiceUnavailable)
	case "throttled":
		tooBusy(w, http.StatusTooManyRequests)
	case "reset":
		hijack(w, "", true)
	case "cut":
		hijack(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"a\":\""+strings.Repeat("x", 494), false)
	case "cut-stream":
		events := streamEvents(tc.API)
		head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
		begun := strings.Join(events[:len(events)/2], "")
		hijack(w, head+fmt.Sprintf("%x\r\n%s\r\n", len(begun), begun), false)
	}
}

// tooBusy refuses with a Retry-After, and with the header for less than a second.
func tooBusy(w http.ResponseWriter, status int) {
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Retry-After-Ms", "20")
	http.Error(w, `{"error":{"message":"try again later"}}`, status)
}

// hijack writes the text on the connection and closes it, with a RST if reset.
func hijack(w http.ResponseWriter, text string, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

// answer answers as the API does. turn is 1 for the first request that is answered.
func (u *upstream) answer(w http.ResponseWriter, r *http.Request, tc testCase, turn int, body []byte) error {
	if tc.Call == "upload" {
		return u.answerUpload(w, r, tc, body)
	}
	path, ok := map[string]string{
		"openai plain": "/v1/chat/completions", "openai stream": "/v1/chat/completions", "openai tools": "/v1/chat/completions",
		"openai responses": "/v1/responses",
		"anthropic plain":  "/v1/messages", "anthropic stream": "/v1/messages", "anthropic tools": "/v1/messages",
		"google plain": "/v1beta/models/m:generateContent", "google stream": "/v1beta/models/m:streamGenerateContent", "google tools": "/v1beta/models/m:generateContent",
	}[tc.API+" "+tc.Call]
	if !ok || r.URL.Path != path || r.Method != http.MethodPost {
		return fmt.Errorf("got %s %s, want POST %s", r.Method, r.URL.Path, path)
	}
	if !json.Valid(body) {
		return fmt.Errorf("the body is not JSON: %.200q", body)
	}
	switch {
	case tc.Call == "stream":
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range streamEvents(tc.API) {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
		return nil
	case tc.Call == "tools" && turn == 1:
		return writeJSON(w, toolCall[tc.API])
	case tc.Call == "tools" && !bytes.Contains(body, []byte(toolResult)):
		return fmt.Errorf("the second request has no result of the tool: %.500q", body)
	case tc.Call == "responses":
		return writeJSON(w, fmt.Sprintf(`{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"m","parallel_tool_calls":true,"tool_choice":"auto","tools":[],
			"output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":%q,"annotations":[]}]}]}`, answerText))
	}
	return writeJSON(w, fmt.Sprintf(plainAnswer[tc.API], answerText))
}

func writeJSON(w http.ResponseWriter, text string) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := io.WriteString(w, text)
	return err
}

// plainAnswer is an answer with one text, toolCall one that calls the tool.
var (
	plainAnswer = map[string]string{
		"openai":    `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%q}}]}`,
		"anthropic": `{"id":"msg_1","type":"message","role":"assistant","model":"m","stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1},"content":[{"type":"text","text":%q}]}`,
		"google":    `{"candidates":[{"index":0,"finishReason":"STOP","content":{"role":"model","parts":[{"text":%q}]}}]}`,
	}
	toolCall = map[string]string{
		"openai": `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,
			"tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]}}]}`,
		"anthropic": `{"id":"msg_1","type":"message","role":"assistant","model":"m","stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":1},
			"content":[{"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Oslo"}}]}`,
		"google": `{"candidates":[{"index":0,"finishReason":"STOP","content":{"role":"model","parts":[{"functionCall":{"name":"weather","args":{"city":"Oslo"}}}]}}]}`,
	}
)

// streamEvents returns the events of a stream with the answer. The first half has content.
func streamEvents(api string) (events []string) {
	add := func(name, format string, args ...any) {
		event := "data: " + fmt.Sprintf(format, args...) + "\n\n"
		if name != "" {
			event = "event: " + name + "\n" + event
		}
		events = append(events, event)
	}
	switch api {
	case "openai":
		for _, piece := range answerPieces {
			add("", `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":%q}}]}`, piece)
		}
		add("", `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
		add("", "[DONE]")
	case "anthropic":
		add("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`)
		add("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
		for _, piece := range answerPieces {
			add("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, piece)
		}
		add("content_block_stop", `{"type":"content_block_stop","index":0}`)
		add("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}`)
		add("message_stop", `{"type":"message_stop"}`)
	case "google":
		for _, piece := range answerPieces {
			add("", `{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":%q}]}}]}`, piece)
		}
		add("", `{"candidates":[{"index":0,"finishReason":"STOP","content":{"role":"model","parts":[{"text":""}]}}]}`)
	}
	return events
}

// answerUpload takes a file: as a form, or the way of Google, in two requests.
func (u *upstream) answerUpload(w http.ResponseWriter, r *http.Request, tc testCase, body []byte) error {
	if tc.API == "google" {
		return u.answerResumableUpload(w, r, body)
	}
	if r.URL.Path != "/v1/files" {
		return fmt.Errorf("got %s %s, want POST /v1/files", r.Method, r.URL.Path)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	file, header, err := r.FormFile("file")
	if err != nil {
		return fmt.Errorf("the form has no file: %w", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(file)
	if err != nil || !bytes.Equal(content, uploadedFile) {
		return fmt.Errorf("the file has %d bytes, want the %d that were sent: %v", len(content), len(uploadedFile), err)
	}
	if tc.API == "openai" {
		return writeJSON(w, fmt.Sprintf(`{"id":"file-1","object":"file","bytes":%d,"created_at":1,"filename":%q,"purpose":"batch","status":"processed"}`, len(content), header.Filename))
	}
	return writeJSON(w, fmt.Sprintf(`{"id":"file_1","type":"file","size_bytes":%d,"created_at":"2026-01-01T00:00:00Z","filename":%q,"mime_type":"text/plain","downloadable":false}`, len(content), header.Filename))
}

// answerResumableUpload answers the request that begins an upload with the URL for the
// content, as an absolute URL of this server, and takes the content there.
func (u *upstream) answerResumableUpload(w http.ResponseWriter, r *http.Request, body []byte) error {
	if r.URL.Path != "/upload/v1beta/files" {
		return fmt.Errorf("got %s %s, want POST /upload/v1beta/files", r.Method, r.URL.Path)
	}
	switch command := r.Header.Get("X-Goog-Upload-Command"); command {
	case "start":
		w.Header().Set("X-Goog-Upload-Status", "active")
		w.Header().Set("X-Goog-Upload-Url", u.url+"/upload/v1beta/files?upload_id=1&upload_protocol=resumable")
		return writeJSON(w, "{}")
	case "upload, finalize":
		if r.URL.Query().Get("upload_id") != "1" {
			return fmt.Errorf("the query is %q, want upload_id=1", r.URL.RawQuery)
		}
		if !bytes.Equal(body, uploadedFile) {
			return fmt.Errorf("the file has %d bytes, want the %d that were sent", len(body), len(uploadedFile))
		}
		w.Header().Set("X-Goog-Upload-Status", "final")
		return writeJSON(w, fmt.Sprintf(`{"file":{"name":"files/1","mimeType":"text/plain","sizeBytes":"%d"}}`, len(body)))
	default:
		return fmt.Errorf("X-Goog-Upload-Command is %q, want start or upload, finalize", command)
	}
}
