package examples_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"

	"github.com/tideover/tideover/internal/testwait"
)

// TestACutAnswerIsNotRepeated runs the SDKs with their own retries behind a
// gateway. A provider may have billed an answer that it began, so it must get
// each request once.
func TestACutAnswerIsNotRepeated(t *testing.T) {
	var answer atomic.Value // what the provider writes before it closes the connection
	var requests atomic.Int32
	provider := listen(t, func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		requests.Add(1)
		_, _ = io.WriteString(c, answer.Load().(string))
	})
	gateway := startGateway(t, command(t), fmt.Sprintf(`version: 1
providers:
  openai: {base-url: "http://%[1]s", auth: "${env:KEY}", breaker: {consecutive: 1000, failures: 100%%}}
  anthropic: {base-url: "http://%[1]s", auth: "${env:KEY}", breaker: {consecutive: 1000, failures: 100%%}}
`, provider))
	ctx := testwait.Context(t)
	openaiClient := openai.NewClient(openaioption.WithBaseURL(gateway+"/p/openai/v1"), openaioption.WithAPIKey("none"))
	anthropicClient := anthropic.NewClient(anthropicoption.WithBaseURL(gateway+"/p/anthropic/"), anthropicoption.WithAPIKey("none"))
	chat := openai.ChatCompletionNewParams{
		Model:    openai.ChatModelGPT4o,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
	}
	message := anthropic.MessageNewParams{
		Model: "claude-sonnet-4-5", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	}
	whole := map[string]func() error{
		"openai":    func() error { _, err := openaiClient.Chat.Completions.New(ctx, chat); return err },
		"anthropic": func() error { _, err := anthropicClient.Messages.New(ctx, message); return err },
	}
	streamed := map[string]func() error{
		"openai": func() error {
			stream := openaiClient.Chat.Completions.NewStreaming(ctx, chat)
			defer func() { _ = stream.Close() }()
			for stream.Next() {
			}
			return stream.Err()
		},
		"anthropic": func() error {
			stream := anthropicClient.Messages.NewStreaming(ctx, message)
			defer func() { _ = stream.Close() }()
			for stream.Next() {
			}
			return stream.Err()
		},
	}
	const (
		sized  = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
		stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
		start  = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n"
	)
	for _, tt := range []struct {
		name, answer string
		calls        map[string]func() error
	}{
		{"half of a body", sized + strings.Repeat(" ", 500), whole},
		{"a head without a body", sized, whole},
		{"no answer", "", whole},
		{"a stream without events", stream, streamed},
		{"a stream before its first content", stream + fmt.Sprintf("%x\r\n%s\r\n", len(start), start), streamed},
	} {
		for sdk, call := range tt.calls {
			answer.Store(tt.answer)
			requests.Store(0)
			if err := call(); err == nil || requests.Load() != 1 {
				t.Errorf("%s, %s: the provider saw %d requests, want 1; the SDK returned %v", tt.name, sdk, requests.Load(), err)
			}
		}
	}
}

// listen accepts connections until the test ends, closes each when handle
// returns, and returns its address.
func listen(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				handle(c)
			}()
		}
	}()
	return l.Addr().String()
}
