package sim

import (
	"bytes"
	"encoding/json"
)

// jsonNull stands for keys that vLLM writes although they hold nothing.
var jsonNull = json.RawMessage("null")

// usage counts tokens as the OpenAI API does.
type usage struct {
	PromptTokens     int           `json:"prompt_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	Details          promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

func (u *usage) addPrompt(tokens, cached int) {
	u.PromptTokens += tokens
	u.TotalTokens += tokens
	u.Details.CachedTokens += cached
}

func (u *usage) addToken() { u.addTokens(1) }

func (u *usage) addTokens(n int) {
	u.CompletionTokens += n
	u.TotalTokens += n
}

// format writes the answers of one route. Its values are ready to be encoded.
type format interface {
	// opening is the chunk before a choice's first token; nil for none.
	opening(j *job, choice int) *chunk
	// token is the chunk of one token.
	token(j *job, out output) *chunk
	// whole is the body of an answer that is not streamed.
	whole(j *job, choices []choiceText, fingerprint string) any
	// object is the object name of chunks.
	object() string
}

// chunk is one event of a stream. Choices is any so that each route has its own.
type chunk struct {
	ID             string          `json:"id"`
	Object         string          `json:"object"`
	Created        int64           `json:"created"`
	Model          string          `json:"model"`
	Choices        any             `json:"choices"`
	Usage          *usage          `json:"usage,omitempty"`
	Fingerprint    string          `json:"system_fingerprint,omitempty"`
	PromptTokenIDs json.RawMessage `json:"prompt_token_ids,omitempty"`
	PromptText     json.RawMessage `json:"prompt_text,omitempty"`
	KVTransfer     json.RawMessage `json:"kv_transfer_params,omitempty"`
}

func newChunk(f format, j *job, choices any) *chunk {
	return &chunk{ID: j.id, Object: f.object(), Created: j.created, Model: j.model, Choices: choices}
}

// choiceText is a finished choice.
type choiceText struct {
	text   string
	finish string
	stop   *string
}

// chatFormat is the form of /v1/chat/completions.
type chatFormat struct{}

type chatDelta struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

type chatChunkChoice struct {
	Index          int             `json:"index"`
	Delta          chatDelta       `json:"delta"`
	Logprobs       *struct{}       `json:"logprobs"`
	FinishReason   *string         `json:"finish_reason"`
	StopReason     json.RawMessage `json:"stop_reason,omitempty"`
	TokenIDs       json.RawMessage `json:"token_ids,omitempty"`
	WeightVersions json.RawMessage `json:"weight_versions,omitempty"`
}

func (chatFormat) object() string { return "chat.completion.chunk" }

func (f chatFormat) opening(j *job, choice int) *chunk {
	c := newChunk(f, j, []chatChunkChoice{{Index: choice, Delta: chatDelta{Role: "assistant"}}})
	c.PromptTokenIDs, c.PromptText = jsonNull, jsonNull
	return c
}

func (f chatFormat) token(j *job, out output) *chunk {
	choice := chatChunkChoice{Index: out.choice, Delta: chatDelta{Content: out.text}, TokenIDs: jsonNull}
	if out.finish != "" {
		choice.FinishReason = &out.finish
		choice.StopReason = encodeJSON(out.stop)
		choice.WeightVersions = jsonNull
	}
	c := newChunk(f, j, []chatChunkChoice{choice})
	c.KVTransfer = jsonNull
	return c
}

func (chatFormat) whole(j *job, choices []choiceText, fingerprint string) any {
	type message struct {
		Role         string    `json:"role"`
		Content      string    `json:"content"`
		Refusal      *string   `json:"refusal"`
		Annotations  *struct{} `json:"annotations"`
		Audio        *struct{} `json:"audio"`
		FunctionCall *struct{} `json:"function_call"`
		ToolCalls    []string  `json:"tool_calls"`
		Reasoning    *string   `json:"reasoning"`
	}
	type choice struct {
		Index        int       `json:"index"`
		Message      message   `json:"message"`
		Logprobs     *struct{} `json:"logprobs"`
		FinishReason string    `json:"finish_reason"`
		StopReason   *string   `json:"stop_reason"`
		TokenIDs     *struct{} `json:"token_ids"`
	}
	list := make([]choice, len(choices))
	for i, c := range choices {
		m := message{Role: "assistant", Content: c.text, ToolCalls: []string{}}
		list[i] = choice{Index: i, Message: m, FinishReason: c.finish, StopReason: c.stop}
	}
	return newWhole("chat.completion", j, list, fingerprint)
}

// textFormat is the form of /v1/completions.
type textFormat struct{}

type textChoice struct {
	Index        int       `json:"index"`
	Text         string    `json:"text"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
	StopReason   *string   `json:"stop_reason"`
}

func (textFormat) object() string { return "text_completion" }

func (textFormat) opening(*job, int) *chunk { return nil }

func (f textFormat) token(j *job, out output) *chunk {
	choice := textChoice{Index: out.choice, Text: out.text, StopReason: out.stop}
	if out.finish != "" {
		choice.FinishReason = &out.finish
	}
	return newChunk(f, j, []textChoice{choice})
}

func (textFormat) whole(j *job, choices []choiceText, fingerprint string) any {
	list := make([]textChoice, len(choices))
	for i := range choices {
		c := &choices[i]
		list[i] = textChoice{Index: i, Text: c.text, FinishReason: &c.finish, StopReason: c.stop}
	}
	return newWhole("text_completion", j, list, fingerprint)
}

// whole is the body of an answer that is not streamed.
type whole struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	Created     int64           `json:"created"`
	Model       string          `json:"model"`
	Choices     any             `json:"choices"`
	ServiceTier *string         `json:"service_tier"`
	Fingerprint string          `json:"system_fingerprint"`
	Usage       usage           `json:"usage"`
	KVTransfer  json.RawMessage `json:"kv_transfer_params"`
}

func newWhole(object string, j *job, choices any, fingerprint string) whole {
	return whole{
		ID: j.id, Object: object, Created: j.created, Model: j.model, Choices: choices,
		Fingerprint: fingerprint, Usage: j.usage, KVTransfer: jsonNull,
	}
}

// encodeJSON encodes one of this package's own values without HTML escaping and
// without the encoder's line end.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
