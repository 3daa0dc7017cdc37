package adapters

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
	"unicode"

	"github.com/routerd/routerd/catalog/engine"
	"github.com/routerd/routerd/fleet"
)

const (
	dialTimeout  = 2 * time.Second
	keepIdle     = 30 * time.Second
	listTimeout  = 3 * time.Second
	callTimeout  = 5 * time.Minute // an adapter may have to be downloaded
	maxListBytes = 8 << 20
	maxSaidBytes = 64 << 10 // of an answer to a load or an unload
	maxReason    = 200      // bytes of an engine's message that are kept
	vllm         = "vllm"
	sglang       = "sglang"
)

// loads tells whether adapters can be loaded on such an engine while it runs.
func loads(kind string) bool { return kind == vllm || kind == sglang }

// engines speaks the engines' adapter API. Safe for concurrent use.
type engines struct{ http *http.Client }

func newEngines() engines { return engines{engine.NewClient(dialTimeout, keepIdle)} }

// statusError is an engine's refusal.
type statusError struct {
	status  int
	message string
}

// Error has the status and the engine's words.
func (e *statusError) Error() string {
	if e.message == "" {
		return fmt.Sprintf("the engine answered %d", e.status)
	}
	return fmt.Sprintf("the engine answered %d: %s", e.status, e.message)
}

// list names the adapters that the engine has loaded.
func (c engines) list(ctx context.Context, r fleet.Record) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, err := c.call(ctx, http.MethodGet, r.URL+"/v1/models", nil, maxListBytes)
	if err != nil {
		return nil, fmt.Errorf("list adapters: %w", err)
	}
	names, err := engine.Adapters(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("list adapters: %w", err)
	}
	loaded := make(map[string]bool, len(names))
	for _, name := range names {
		loaded[name] = true
	}
	return loaded, nil
}

// load has the engine load the adapter and waits for it.
func (c engines) load(ctx context.Context, r fleet.Record, a Adapter) error {
	err := c.order(ctx, r, "load_lora_adapter", map[string]any{"lora_name": a.Name, "lora_path": a.Path})
	if err != nil {
		return fmt.Errorf("load adapter: %w", err)
	}
	return nil
}

// unload has the engine unload the adapter; one that it does not know is
// unloaded.
func (c engines) unload(ctx context.Context, r fleet.Record, name string) error {
	err := c.order(ctx, r, "unload_lora_adapter", map[string]any{"lora_name": name})
	var refused *statusError
	if err == nil || r.Engine == vllm && errors.As(err, &refused) && refused.status == http.StatusNotFound && refused.message != "Not Found" {
		return nil
	}
	return fmt.Errorf("unload adapter: %w", err)
}

func (c engines) order(ctx context.Context, r fleet.Record, route string, body map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode order: %w", err)
	}
	url := r.URL + "/" + route
	if r.Engine == vllm {
		url = r.URL + "/v1/" + route
	}
	said, err := c.call(ctx, http.MethodPost, url, raw, maxSaidBytes)
	if err != nil || r.Engine != sglang {
		return err
	}
	var answer struct {
		Success bool `json:"success"`
	}
	if json.Unmarshal(said, &answer) != nil || !answer.Success {
		return &statusError{http.StatusOK, message(said)}
	}
	return nil
}

// call makes a request and returns the body of a 200; all else is an error.
func (c engines) call(ctx context.Context, method, url string, body []byte, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost when closing a read body fails
	said, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, &statusError{resp.StatusCode, message(said)}
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(said)) > most:
		return nil, fmt.Errorf("the answer has more than %d bytes", most)
	}
	return said, nil
}

// message finds the engine's words in an error's body, as vLLM, SGLang and
// FastAPI put them, and cuts them to a line of at most maxReason bytes.
func message(body []byte) string {
	var known struct {
		Error  struct{ Message string } `json:"error"`
		SGLang string                   `json:"error_message"`
		Plain  string                   `json:"message"`
		Detail string                   `json:"detail"`
	}
	text := string(body)
	if json.Unmarshal(body, &known) == nil {
		for _, s := range []string{known.Error.Message, known.SGLang, known.Plain, known.Detail} {
			if s != "" {
				text = s
				break
			}
		}
	}
	if len(text) > maxReason {
		text = text[:maxReason] + "…"
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.TrimSpace(text)
}
