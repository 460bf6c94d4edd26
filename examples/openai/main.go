// Command openai sends requests to a model through the gateway. Three lines are
// specific to tideover; they are marked. The gateway retries, so the SDK need
// not.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() {
	if err := run(context.Background(), cmp.Or(os.Getenv("GATEWAY"), "http://127.0.0.1:7878")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, gateway string) error {
	client := openai.NewClient(
		option.WithBaseURL(gateway+"/p/openai/v1"), // 1
		option.WithAPIKey("the gateway has it"),    // 2
		option.WithMaxRetries(0),                   // 3
	)
	ask := openai.ChatCompletionNewParams{
		Model:    openai.ChatModelGPT4o,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
	}
	answer, err := client.Chat.Completions.New(ctx, ask)
	if err != nil {
		return err
	}
	fmt.Println("answer:", answer.Choices[0].Message.Content)

	stream := client.Chat.Completions.NewStreaming(ctx, ask)
	defer func() { _ = stream.Close() }()
	fmt.Print("stream:")
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			fmt.Print(" ", c.Delta.Content)
		}
	}
	fmt.Println()
	return stream.Err()
}
