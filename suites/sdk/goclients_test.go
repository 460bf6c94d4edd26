package sdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"
)

// errNoToolCall is what a client returns if the model does not call the tool.
var errNoToolCall = errors.New("the answer has no call of the tool weather for Oslo")

// callGoSDK makes the call of the test case with the SDK for Go. It returns what the model
// said, or the size that an uploaded file has.
func callGoSDK(ctx context.Context, gateway string, c testCase) (string, error) {
	switch c.API {
	case "openai":
		return callOpenAI(ctx, gateway, c)
	case "anthropic":
		return callAnthropic(ctx, gateway, c)
	}
	return callGoogle(ctx, gateway, c)
}

func callOpenAI(ctx context.Context, gateway string, c testCase) (string, error) {
	client := openai.NewClient(openaioption.WithBaseURL(gateway+"/p/openai/v1"), openaioption.WithAPIKey("none"), openaioption.WithHeader(caseHeader, c.ID()))
	ask := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("How warm is it?")}}
	switch c.Call {
	case "upload":
		file, err := client.Files.New(ctx, openai.FileNewParams{File: openai.File(bytes.NewReader(uploadedFile), "a.txt", "text/plain"), Purpose: openai.FilePurposeBatch})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(file.Bytes), nil
	case "responses":
		answer, err := client.Responses.New(ctx, responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("How warm is it?")}})
		if err != nil {
			return "", err
		}
		return answer.OutputText(), nil
	case "stream":
		stream := client.Chat.Completions.NewStreaming(ctx, ask)
		defer func() { _ = stream.Close() }()
		text := ""
		for stream.Next() {
			for _, choice := range stream.Current().Choices {
				text += choice.Delta.Content
			}
		}
		return text, stream.Err()
	case "tools":
		ask.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name: "weather", Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}},
		})}
	}
	answer, err := client.Chat.Completions.New(ctx, ask)
	if err == nil && c.Call == "tools" {
		message := answer.Choices[0].Message
		if len(message.ToolCalls) != 1 || message.ToolCalls[0].Function.Name != "weather" || !strings.Contains(message.ToolCalls[0].Function.Arguments, "Oslo") {
			return "", errNoToolCall
		}
		ask.Messages = append(ask.Messages, message.ToParam(), openai.ToolMessage(toolResult, message.ToolCalls[0].ID))
		answer, err = client.Chat.Completions.New(ctx, ask)
	}
	if err != nil {
		return "", err
	}
	return answer.Choices[0].Message.Content, nil
}

func callAnthropic(ctx context.Context, gateway string, c testCase) (string, error) {
	client := anthropic.NewClient(anthropicoption.WithBaseURL(gateway+"/p/anthropic/"), anthropicoption.WithAPIKey("none"), anthropicoption.WithHeader(caseHeader, c.ID()))
	ask := anthropic.MessageNewParams{Model: "m", MaxTokens: 100, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("How warm is it?"))}}
	switch c.Call {
	case "upload":
		file, err := client.Beta.Files.Upload(ctx, anthropic.BetaFileUploadParams{File: anthropic.File(bytes.NewReader(uploadedFile), "a.txt", "text/plain")})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(file.SizeBytes), nil
	case "stream":
		stream := client.Messages.NewStreaming(ctx, ask)
		defer func() { _ = stream.Close() }()
		text := ""
		for stream.Next() {
			if delta, ok := stream.Current().AsAny().(anthropic.ContentBlockDeltaEvent); ok {
				text += delta.Delta.Text
			}
		}
		return text, stream.Err()
	case "tools":
		ask.Tools = []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: map[string]any{"city": map[string]any{"type": "string"}}}, "weather")}
	}
	answer, err := client.Messages.New(ctx, ask)
	if err == nil && c.Call == "tools" {
		use, ok := answer.Content[0].AsAny().(anthropic.ToolUseBlock)
		if !ok || use.Name != "weather" || !bytes.Contains(use.Input, []byte("Oslo")) {
			return "", errNoToolCall
		}
		ask.Messages = append(ask.Messages, answer.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(use.ID, toolResult, false)))
		answer, err = client.Messages.New(ctx, ask)
	}
	if err != nil {
		return "", err
	}
	return answer.Content[0].Text, nil
}

func callGoogle(ctx context.Context, gateway string, c testCase) (string, error) {
	client, err := genai.NewClient(ctx, &genai.ClientConfig{
		APIKey: "none", Backend: genai.BackendGeminiAPI,
		HTTPOptions: genai.HTTPOptions{BaseURL: gateway + "/p/gemini/", Headers: http.Header{caseHeader: {c.ID()}}},
	})
	if err != nil {
		return "", err
	}
	var config *genai.GenerateContentConfig
	ask := genai.Text("How warm is it?")
	switch c.Call {
	case "upload":
		file, err := client.Files.Upload(ctx, bytes.NewReader(uploadedFile), &genai.UploadFileConfig{MIMEType: "text/plain"})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(*file.SizeBytes), nil
	case "stream":
		text := ""
		for part, err := range client.Models.GenerateContentStream(ctx, "m", ask, nil) {
			if err != nil {
				return text, err
			}
			text += part.Text()
		}
		return text, nil
	case "tools":
		config = &genai.GenerateContentConfig{Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
			Name: "weather", Parameters: &genai.Schema{Type: genai.TypeObject, Properties: map[string]*genai.Schema{"city": {Type: genai.TypeString}}},
		}}}}}
	}
	answer, err := client.Models.GenerateContent(ctx, "m", ask, config)
	if err == nil && c.Call == "tools" {
		calls := answer.FunctionCalls()
		args, _ := json.Marshal(calls)
		if len(calls) != 1 || calls[0].Name != "weather" || !bytes.Contains(args, []byte("Oslo")) {
			return "", errNoToolCall
		}
		ask = append(ask, answer.Candidates[0].Content, genai.NewContentFromFunctionResponse("weather", map[string]any{"output": toolResult}, genai.RoleUser))
		answer, err = client.Models.GenerateContent(ctx, "m", ask, config)
	}
	if err != nil {
		return "", err
	}
	return answer.Text(), nil
}
