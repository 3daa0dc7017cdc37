package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/sim"
)

// shape is the structure of a JSON value: names in order, without values.
func shape(t *testing.T, raw string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(raw))
	var b strings.Builder
	type level struct{ object, name bool }
	var stack []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return b.String()
		}
		top := len(stack) - 1
		switch v := tok.(type) {
		case json.Delim:
			b.WriteString(v.String())
			if v == '{' || v == '[' {
				stack = append(stack, level{object: v == '{', name: true})
				continue
			}
			stack = stack[:top]
			top--
		case string:
			if stack[top].object && stack[top].name {
				b.WriteString(v + " ")
				stack[top].name = false
				continue
			}
		}
		if top >= 0 {
			stack[top].name = true
		}
	}
}

// fixtureEvents are the data lines of a captured stream.
func fixtureEvents(t *testing.T, name string) []string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for line := range strings.SplitSeq(string(raw), "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			list = append(list, data)
		}
	}
	return list
}

func TestStreamedChunksHaveTheShapeOfVLLM(t *testing.T) {
	b := startEngine(t, nil)
	for _, tc := range []struct{ fixture, path, body string }{
		{"chat_stream_vllm.sse", "/v1/chat/completions", hello + `,"max_tokens":2,"stream":true,"stream_options":{"include_usage":true}}`},
		{"completion_stream_vllm.sse", "/v1/completions", `{"prompt":"hello there","max_tokens":2,"stream":true,"stream_options":{"include_usage":true}}`},
	} {
		t.Run(tc.fixture, func(t *testing.T) {
			got, err := b.stream(t.Context(), tc.path, tc.body).rest()
			if err != nil {
				t.Fatal(err)
			}
			want := fixtureEvents(t, tc.fixture)
			if len(got) != len(want) {
				t.Fatalf("%d events, want %d: %q", len(got), len(want), got)
			}
			for i := range want {
				// Ours always tells the cached tokens, and the engine's name.
				g := strings.Replace(shape(t, got[i]), "prompt_tokens_details {cached_tokens }", "", 1)
				w := shape(t, want[i])
				if !strings.Contains(w, "system_fingerprint ") {
					g = strings.Replace(g, "system_fingerprint ", "", 1)
				}
				if g != w {
					t.Errorf("event %d:\n got %s\nwant %s\nfrom %s", i, g, w, got[i])
				}
			}
		})
	}
}

func TestUnaryAndStreamedAnswerAreTheSameText(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.Name = "w7" })
	whole := b.ok("POST", "/v1/chat/completions", hello+`}`)
	text := whole["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"].(string)
	if whole["system_fingerprint"] != "sim-w7" || text == "" {
		t.Fatalf("answer %v", whole)
	}
	list, err := b.stream(t.Context(), "/v1/chat/completions", hello+`,"stream":true}`).rest()
	if err != nil {
		t.Fatal(err)
	}
	var streamed strings.Builder
	for _, data := range list[:len(list)-1] {
		var c struct {
			Fingerprint string `json:"system_fingerprint"`
			Choices     []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatal(err)
		}
		streamed.WriteString(c.Choices[0].Delta.Content)
	}
	if streamed.String() != text || list[len(list)-1] != "[DONE]" || !strings.Contains(list[len(list)-2], `"sim-w7"`) {
		t.Errorf("streamed %q, whole %q, end %q", streamed.String(), text, list[len(list)-2:])
	}
}

func TestAnswersDependOnPromptAndSeedOnly(t *testing.T) {
	ask := func(name string, seed uint64, body string) string {
		b := startEngine(t, func(c *sim.Config) { c.Name, c.Seed = name, seed })
		return completionText(b.ok("POST", "/v1/completions", body))
	}
	first := ask("a", 1, `{"prompt":"one"}`)
	if got := ask("b", 1, `{"prompt":"one"}`); got != first {
		t.Errorf("the engine's name changed the text: %q, %q", first, got)
	}
	if ask("a", 2, `{"prompt":"one"}`) == first || ask("a", 1, `{"prompt":"two"}`) == first || ask("a", 1, `{"prompt":"one","seed":5}`) == first {
		t.Error("another seed or prompt gave the same text")
	}
}

func completionText(v map[string]any) string {
	return v["choices"].([]any)[0].(map[string]any)["text"].(string)
}

func usageOf(v map[string]any) [3]int {
	u := v["usage"].(map[string]any)
	return [3]int{
		int(u["prompt_tokens"].(float64)), int(u["completion_tokens"].(float64)),
		int(u["prompt_tokens_details"].(map[string]any)["cached_tokens"].(float64)),
	}
}

func TestPromptFormsAndUsage(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.BlockSize = 4 })
	for _, tc := range []struct {
		name, body string
		choices    int
		usage      [3]int // prompt, completion, cached
	}{
		{"text", `{"prompt":"a b c","max_tokens":3}`, 1, [3]int{5, 3, 0}},
		{"ids", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":2}`, 1, [3]int{9, 2, 0}},
		{"ids again", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":2}`, 1, [3]int{9, 2, 8}},
		{"all cached but the last token", `{"prompt":[1,2,3,4,5,6,7,8],"max_tokens":2}`, 1, [3]int{8, 2, 4}},
		{"batch of texts", `{"prompt":["x y","z"],"max_tokens":2}`, 2, [3]int{4, 4, 0}},
		{"batch of ids", `{"prompt":[[11],[12,13]],"max_tokens":2}`, 2, [3]int{3, 4, 0}},
		{"n", `{"prompt":"q","n":3,"max_tokens":2}`, 3, [3]int{1, 6, 0}},
		{"default length", `{"prompt":"r","ignore_eos":true}`, 1, [3]int{1, 16, 0}},
		{"stop token by itself", `{"prompt":"r","max_tokens":4000}`, 1, [3]int{1, 28, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := b.ok("POST", "/v1/completions", tc.body)
			got := usageOf(v)
			if tc.name == "stop token by itself" {
				if got[1] < 16 || got[1] > 47 {
					t.Fatalf("natural length %d, want 16 to 47", got[1])
				}
				return
			}
			if got != tc.usage || len(v["choices"].([]any)) != tc.choices {
				t.Errorf("usage %v, want %v; choices %v", got, tc.usage, v["choices"])
			}
		})
	}
}

func TestConversationFindsItsOwnEarlierTurnsCached(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.BlockSize = 4 })
	first := b.ok("POST", "/v1/chat/completions", hello+`}`)
	answer := first["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"].(string)
	second := b.ok("POST", "/v1/chat/completions", fmt.Sprintf(
		`{"messages":[{"role":"user","content":"hello there"},{"role":"assistant","content":%q},{"role":"user","content":"and?"}]}`, answer))
	u := usageOf(first)
	want := (u[0] + u[1] - 1) / 4 * 4 // the last token's entry was never computed
	if got := usageOf(second)[2]; got != want {
		t.Errorf("cached %d tokens, want %d after %v", got, want, u)
	}
}

func TestStopStringsEndTheAnswer(t *testing.T) {
	b := startEngine(t, nil)
	full := completionText(b.ok("POST", "/v1/completions", `{"prompt":"stop","max_tokens":12,"ignore_eos":true}`))
	words := strings.Fields(full)
	stop := words[1] + " " + words[2][:2]
	body := func(extra string) string {
		return fmt.Sprintf(`{"prompt":"stop","max_tokens":12,"ignore_eos":true,"stop":%s%s}`, extra, "")
	}
	for _, tc := range []struct{ name, stop, want string }{
		{"one text", fmt.Sprintf("%q", stop), words[0] + " "},
		{"the first of a list", fmt.Sprintf(`["zzz",%q]`, stop), words[0] + " "},
		{"kept on request", fmt.Sprintf(`[%q],"include_stop_str_in_output":true`, stop), words[0] + " " + stop},
		{"never met", `["zzz"]`, full},
		{"null", `null`, full},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := b.ok("POST", "/v1/completions", body(tc.stop))
			choice := v["choices"].([]any)[0].(map[string]any)
			if choice["text"] != tc.want {
				t.Errorf("text %q, want %q of %q", choice["text"], tc.want, full)
			}
			wantReason, wantStop := "stop", any(stop)
			if tc.want == full {
				wantReason, wantStop = "length", nil
			}
			if choice["finish_reason"] != wantReason || choice["stop_reason"] != wantStop {
				t.Errorf("finish %v %v, want %v %v", choice["finish_reason"], choice["stop_reason"], wantReason, wantStop)
			}
		})
	}
	list, err := b.stream(t.Context(), "/v1/completions", body(fmt.Sprintf("%q", stop)+`,"stream":true`)).rest()
	if err != nil || len(list) != 4 { // word, space, finish, [DONE]
		t.Errorf("streamed with a stop: %v, %q", err, list)
	}
}

func TestUsageInStreams(t *testing.T) {
	b := startEngine(t, nil)
	list, err := b.stream(t.Context(), "/v1/completions",
		`{"prompt":"u","max_tokens":3,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`).rest()
	if err != nil || len(list) != 5 {
		t.Fatalf("%v, %q", err, list)
	}
	for i, want := range []int{1, 2, 3, 3} {
		var c struct {
			Choices []any
			Usage   struct {
				CompletionTokens int `json:"completion_tokens"`
				TotalTokens      int `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(list[i]), &c); err != nil {
			t.Fatal(err)
		}
		if c.Usage.CompletionTokens != want || c.Usage.TotalTokens != want+1 || (len(c.Choices) == 0) != (i == 3) {
			t.Errorf("event %d: %s", i, list[i])
		}
	}
}

func TestBadRequestsAreRefusedInVLLMsForm(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.Ranks, c.MaxModelLen = 2, 50 })
	chat, text := "/v1/chat/completions", "/v1/completions"
	for _, tc := range []struct {
		name, path, body string
		status           int
		param            any
	}{
		{"unknown model", chat, `{"model":"nope","messages":[{"role":"user","content":"x"}]}`, 404, "model"},
		{"not JSON", chat, `{"model":`, 400, nil},
		{"no messages", chat, `{"model":"sim-model"}`, 400, "messages"},
		{"no role", chat, `{"messages":[{"content":"x"}]}`, 400, "messages"},
		{"content of a wrong type", chat, `{"messages":[{"role":"user","content":3}]}`, 400, "messages"},
		{"n of a wrong type", text, `{"prompt":"x","n":"2"}`, 400, "n"},
		{"n 0", text, `{"prompt":"x","n":0}`, 400, "n"},
		{"max_tokens 0", text, `{"prompt":"x","max_tokens":0}`, 400, "max_tokens"},
		{"min_tokens above max_tokens", text, `{"prompt":"x","min_tokens":20}`, 400, "min_tokens"},
		{"temperature", text, `{"prompt":"x","temperature":-1}`, 400, "temperature"},
		{"top_p", text, `{"prompt":"x","top_p":2}`, 400, "top_p"},
		{"stop of a wrong type", text, `{"prompt":"x","stop":[1]}`, 400, "stop"},
		{"empty stop", text, `{"prompt":"x","stop":""}`, 400, "stop"},
		{"no prompt", text, `{}`, 400, "prompt"},
		{"empty prompt", text, `{"prompt":""}`, 400, "prompt"},
		{"empty list", text, `{"prompt":[]}`, 400, "prompt"},
		{"negative id", text, `{"prompt":[-1]}`, 400, "prompt"},
		{"mixed list", text, `{"prompt":["x",1]}`, 400, "prompt"},
		{"suffix", text, `{"prompt":"x","suffix":"y"}`, 400, "suffix"},
		{"stream options without stream", text, `{"prompt":"x","stream_options":{}}`, 400, "stream_options"},
		{"context too long", text, `{"prompt":"` + strings.Repeat("x ", 40) + `"}`, 400, "input_tokens"},
		{"context too long with the answer", text, `{"prompt":"x","max_tokens":50}`, 400, "input_tokens"},
		{"both generation prompt and continue", chat, `{"messages":[{"role":"user","content":"x"}],"add_generation_prompt":true,"continue_final_message":true}`, 400, "continue_final_message"},
		{"tokenize both", "/tokenize", `{"prompt":"x","messages":[]}`, 400, "prompt"},
		{"tokenize none", "/tokenize", `{}`, 400, "messages"},
		{"tokenize unknown model", "/tokenize", `{"model":"nope","prompt":"x"}`, 404, "model"},
		{"detokenize", "/detokenize", `{"tokens":"x"}`, 400, "tokens"},
		{"unknown path", "/v1/nope", `{}`, 404, nil},
		{"wrong method", "/v1/models", `{}`, 405, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, raw := b.do("POST", tc.path, tc.body)
			var v struct {
				Error map[string]any `json:"error"`
			}
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatalf("%v in %s", err, raw)
			}
			if status != tc.status || v.Error["code"] != float64(tc.status) || v.Error["param"] != tc.param || v.Error["message"] == "" || v.Error["type"] == "" {
				t.Errorf("status %d: %s", status, raw)
			}
		})
	}
}

func TestErrorBodyEqualsVLLMs(t *testing.T) {
	raw, err := os.ReadFile("testdata/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Engine, Request string
		Status          int
		Body            json.RawMessage
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	b := startEngine(t, func(c *sim.Config) { c.Model = "base-model" })
	status, got := b.do("POST", "/v1/chat/completions", `{"model":"nope","messages":[{"role":"user","content":"x"}]}`)
	if status != list[0].Status || !bytes.Equal(got, list[0].Body) {
		t.Errorf("status %d %s\nwant %d %s", status, got, list[0].Status, list[0].Body)
	}
}

func TestRankHeaderPinsAndIsChecked(t *testing.T) {
	b := startEngine(t, func(c *sim.Config) { c.Ranks = 3 })
	b.ok("POST", "/v1/completions", `{"prompt":"x"}`, "X-data-parallel-rank", "2")
	var got []int
	for _, r := range b.stats().Ranks {
		got = append(got, r.Requests)
	}
	if diff := cmp.Diff([]int{0, 0, 1}, got); diff != "" {
		t.Errorf("requests by rank (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"3", "-1", "one", ""} {
		if status, raw := b.do("POST", "/v1/completions", `{"prompt":"x"}`, "X-data-parallel-rank", bad); status != 400 {
			t.Errorf("rank %q: status %d %s", bad, status, raw)
		}
	}
}
