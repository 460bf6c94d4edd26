// Command anthropic sends requests to a model through the gateway. Three lines
// are specific to tideover; they are marked. The gateway retries, so the SDK
// need not.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

func main() {
	if err := run(context.Background(), cmp.Or(os.Getenv("GATEWAY"), "http://127.0.0.1:7878")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, gateway string) error {
	client := anthropic.NewClient(
		option.WithBaseURL(gateway+"/p/anthropic/"), // 1
		option.WithAPIKey("the gateway has it"),     // 2
		option.WithMaxRetries(0),                    // 3
	)
	ask := anthropic.MessageNewParams{
		Model: "claude-sonnet-4-5", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	}
	answer, err := client.Messages.New(ctx, ask)
	if err != nil {
		return err
	}
	fmt.Println("answer:", answer.Content[0].Text)

	stream := client.Messages.NewStreaming(ctx, ask)
	defer func() { _ = stream.Close() }()
	fmt.Print("stream:")
	for stream.Next() {
		if delta, ok := stream.Current().AsAny().(anthropic.ContentBlockDeltaEvent); ok {
			fmt.Print(" ", delta.Delta.Text)
		}
	}
	fmt.Println()
	return stream.Err()
}
