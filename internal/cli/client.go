package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	callPatience = 3 * time.Minute // longer than the API gives a change
	maxAnswer    = 256 << 20       // bytes
)

// Client calls the admin API of a router. Safe for concurrent use.
type Client struct {
	base, token string
	tokenFrom   string // a file or a name of the environment; empty for unknown
	http        *http.Client
}

// NewClient makes a client for a base URL such as http://127.0.0.1:8081.
func NewClient(url, token string) *Client {
	// Each call has its own connection: a command makes few, and none is left
	// behind.
	transport := &http.Transport{DisableKeepAlives: true, Proxy: nil}
	return &Client{base: strings.TrimRight(url, "/"), token: token, http: &http.Client{
		Transport: transport, Timeout: callPatience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// APIError is an error that the API answered with.
type APIError struct {
	Status  int
	Code    string
	Message string
	Details Details
}

// Details place an APIError; empty fields are unknown.
type Details struct {
	Step    string `json:"step"`
	Item    string `json:"item"`
	Allowed string `json:"allowed"`
}

// Error is one line: code, message, and of the details what is not said yet. An
// item or an allowance may be a list, whose parts the message has apart.
func (e *APIError) Error() string {
	s := e.Message
	if !strings.Contains(s, e.Code+": ") {
		s = e.Code + ": " + s
	}
	for _, d := range []struct{ word, value, between string }{
		{"step", e.Details.Step, ""}, {"item", e.Details.Item, ", "}, {"allowed", e.Details.Allowed, "; "},
	} {
		if d.value != "" && !says(s, d.value, d.between) {
			s += "; " + d.word + ": " + d.value
		}
	}
	return strings.Join(strings.Fields(s), " ")
}

// says tells whether a text has a value, or all parts of one that is a list.
func says(text, value, between string) bool {
	if between == "" || strings.Contains(text, value) {
		return strings.Contains(text, value)
	}
	for part := range strings.SplitSeq(value, between) {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// Do calls the API. in is nil for no body, []byte for one that is sent as it
// is, else a value that is sent as JSON; out is nil or a pointer that the JSON
// answer is read into. The error is an *APIError when the API refused.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	body, kind, err := encode(in)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if in != nil {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("reach the admin API: %w", err)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return c.refusal(resp.StatusCode, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	return nil
}

func encode(in any) (body io.Reader, kind string, err error) {
	switch v := in.(type) {
	case nil:
		return http.NoBody, "", nil
	case []byte:
		return bytes.NewReader(v), "application/octet-stream", nil
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return nil, "", fmt.Errorf("encode body: %w", err)
		}
		return bytes.NewReader(b), "application/json", nil
	}
}

// refusal is the error of an answer. Of a wrong token it says where that was
// from, since the command line looks in several places.
func (c *Client) refusal(status int, answer []byte) error {
	var got struct {
		Error struct {
			Code    string  `json:"code"`
			Message string  `json:"message"`
			Details Details `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &got) != nil || got.Error.Code == "" {
		return &APIError{Status: status, Code: "unknown", Message: fmt.Sprintf("status %d without an error of the admin API", status)}
	}
	message := got.Error.Message
	if status == http.StatusUnauthorized && c.tokenFrom != "" {
		message += fmt.Sprintf("; the token of %s is not this router's: give its --data-dir or --token-file, or set %s", c.tokenFrom, envToken)
	}
	return &APIError{Status: status, Code: got.Error.Code, Message: message, Details: got.Error.Details}
}
