package sim

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
)

// mostChoices is OpenAI's own limit for n.
const mostChoices = 128

// sampling is what decides length and number of the answers.
type sampling struct {
	n         int
	maxTokens int
	minTokens int
	ignoreEOS bool
	stops     []string
	keepStop  bool
	seed      uint64
}

// generationFields are the fields that both generation routes share. Fields that
// the simulator has no use for are accepted and ignored, as vLLM does.
type generationFields struct {
	Model         string        `json:"model"`
	N             *int          `json:"n"`
	MaxTokens     *int          `json:"max_tokens"`
	MinTokens     int           `json:"min_tokens"`
	Stream        bool          `json:"stream"`
	StreamOptions *streamFields `json:"stream_options"`
	Stop          stopList      `json:"stop"`
	KeepStop      bool          `json:"include_stop_str_in_output"`
	IgnoreEOS     bool          `json:"ignore_eos"`
	Seed          *int64        `json:"seed"`
	Temperature   *float64      `json:"temperature"`
	TopP          *float64      `json:"top_p"`
}

type streamFields struct {
	IncludeUsage    bool `json:"include_usage"`
	ContinuousUsage bool `json:"continuous_usage_stats"`
}

type chatRequest struct {
	generationFields
	conversation
	MaxCompletionTokens *int `json:"max_completion_tokens"`
}

// conversation is the part of a chat request that the template needs.
type conversation struct {
	Messages            []chatMessage `json:"messages"`
	AddGenerationPrompt *bool         `json:"add_generation_prompt"`
	ContinueFinal       bool          `json:"continue_final_message"`
}

type chatMessage struct {
	Role    string      `json:"role"`
	Content contentText `json:"content"`
}

type textRequest struct {
	generationFields
	Prompt json.RawMessage `json:"prompt"`
	Echo   bool            `json:"echo"`
	Suffix *string         `json:"suffix"`
}

// stopList accepts null, one text or a list of texts.
type stopList []string

// UnmarshalJSON reads the three forms.
func (s *stopList) UnmarshalJSON(raw []byte) error {
	switch kindOf(raw) {
	case 'n':
		return nil
	case '"':
		*s = make(stopList, 1)
		return json.Unmarshal(raw, &(*s)[0])
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return badRequest("stop", "Field \"stop\": allowed: a text or a list of texts.")
	}
	*s = list
	return nil
}

// contentText accepts null, a text, or a list of parts whose texts are joined.
type contentText string

// UnmarshalJSON reads the three forms.
func (c *contentText) UnmarshalJSON(raw []byte) error {
	switch kindOf(raw) {
	case 'n':
		return nil
	case '"':
		return json.Unmarshal(raw, (*string)(c))
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return badRequest("messages", "Field \"content\": allowed: null, a text or a list of parts.")
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	*c = contentText(b.String())
	return nil
}

// kindOf is the first significant byte of a JSON value, 0 for none.
func kindOf(raw []byte) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

// render applies the chat template.
func (c conversation) render() (string, error) {
	if len(c.Messages) == 0 {
		return "", badRequest("messages", "Field \"messages\": allowed: a list of at least one message.")
	}
	generation := c.AddGenerationPrompt == nil || *c.AddGenerationPrompt
	if c.ContinueFinal {
		if generation && c.AddGenerationPrompt != nil {
			return "", badRequest("continue_final_message", "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
		}
		generation = false
	}
	messages := make([]Message, len(c.Messages))
	for i, m := range c.Messages {
		if m.Role == "" {
			return "", badRequest("messages", "Message %d: field \"role\" is missing.", i)
		}
		messages[i] = Message{Role: m.Role, Text: string(m.Content)}
	}
	return RenderChat(messages, generation), nil
}

// readPrompts reads the four forms of a text completion's prompt: a text, a list
// of ids, a list of texts, a list of lists of ids.
func readPrompts(raw json.RawMessage) (texts []string, ids [][]uint32, err error) {
	bad := badRequest("prompt", "Field \"prompt\": allowed: a text, a list of token ids, or a list of one of these.")
	switch kindOf(raw) {
	case '"':
		texts = make([]string, 1)
		return texts, nil, json.Unmarshal(raw, &texts[0])
	case '[':
	default:
		return nil, nil, bad
	}
	switch kindOf(raw[bytes.IndexByte(raw, '[')+1:]) {
	case '"':
		err = json.Unmarshal(raw, &texts)
	case '[':
		err = json.Unmarshal(raw, &ids)
	default:
		ids = make([][]uint32, 1)
		err = json.Unmarshal(raw, &ids[0])
	}
	if err != nil {
		return nil, nil, bad
	}
	return texts, ids, nil
}

// read checks the fields and fills in what only depends on the request; room is
// what the context length leaves for an answer.
func (f *generationFields) read(maxTokens *int, unlimited, room int) (sampling, error) {
	s := sampling{n: 1, maxTokens: min(unlimited, room), minTokens: f.MinTokens, ignoreEOS: f.IgnoreEOS, stops: f.Stop, keepStop: f.KeepStop}
	if f.N != nil {
		s.n = *f.N
	}
	if f.Seed != nil {
		s.seed = uint64(*f.Seed)
	}
	if maxTokens != nil {
		s.maxTokens = *maxTokens
	}
	switch {
	case s.n < 1 || s.n > mostChoices:
		return s, badRequest("n", "n must be at least 1 and at most %d, got %d.", mostChoices, s.n)
	case s.maxTokens < 1:
		return s, badRequest("max_tokens", "max_tokens must be at least 1, got %d.", s.maxTokens)
	case s.minTokens < 0 || s.minTokens > s.maxTokens:
		return s, badRequest("min_tokens", "min_tokens must be at least 0 and at most max_tokens=%d, got %d.", s.maxTokens, s.minTokens)
	case f.Temperature != nil && *f.Temperature < 0:
		return s, badRequest("temperature", "temperature must be non-negative, got %v.", *f.Temperature)
	case f.TopP != nil && (*f.TopP <= 0 || *f.TopP > 1):
		return s, badRequest("top_p", "top_p must be in (0, 1], got %v.", *f.TopP)
	case f.StreamOptions != nil && !f.Stream:
		return s, badRequest("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	for _, stop := range s.stops {
		if stop == "" {
			return s, badRequest("stop", "stop cannot contain an empty string.")
		}
	}
	return s, nil
}

// checkLength refuses what does not fit the context.
func checkLength(promptTokens int, maxTokens *int, most int) error {
	asked := 0
	if maxTokens != nil && *maxTokens > 0 {
		asked = min(*maxTokens, math.MaxInt32)
	}
	if promptTokens == 0 {
		return badRequest("prompt", "The decoder prompt cannot be empty")
	}
	if promptTokens+asked > most || promptTokens >= most {
		return badRequest("input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens. Please reduce the length of the input prompt or the number of requested output tokens.", most, asked, promptTokens)
	}
	return nil
}
