package frontend_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/prompt"
)

func TestB1_BodiesPassByteForByte(t *testing.T) {
	w := start(t)
	wk, got := recording(t)
	w.join(t, "w1", wk.url)
	for _, body := range []string{
		"{ \"x\":1e400,\n\t\"messages\" : [ {\"role\":\"user\", \"content\":\"\\u00e9 next to é\"} ],\"seed\":9007199254740993 ,\"temperature\":1.0, \"nested\":{\"unknown\":[null,{\"a\":-0.0}]},\"model\":\"m\"}\r\n",
		`{"m\u006fdel":"\u006d","messages":[]}`,
		`{"model":"m","messages":[{"role":"user","content":"` + "\xff\xfe" + `"}]}`,
	} {
		if a := w.do(t, "POST", chatPath, body); a.status != 200 {
			t.Errorf("%+v", a)
			continue
		}
		r := wait(t, "request", got)
		if sha256.Sum256(r.body) != sha256.Sum256([]byte(body)) {
			t.Errorf("sent %q, worker got %q", body, r.body)
		}
	}
	a := w.rawAnswer(t, "POST "+chatPath+"?a=%2F&b HTTP/1.1\r\nHost: r\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(chatBody[:10])+chunk(chatBody[10:])+lastChunk)
	r := wait(t, "request", got)
	if a.status != 200 || string(r.body) != chatBody || r.line != "POST "+chatPath+"?a=%2F&b HTTP/1.1" {
		t.Errorf("%d %q %q", a.status, r.line, r.body)
	}
}

// inputs is a tokenizer that notes what it was asked.
type inputs struct {
	mu   sync.Mutex
	seen []string
}

func (n *inputs) answer(_ context.Context, in prompt.Input) ([]uint32, prompt.Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := in.Model
	for _, f := range in.Fields {
		s += " " + f.Name + "=" + string(f.Value)
	}
	n.seen = append(n.seen, s)
	return make([]uint32, 40), prompt.Fresh
}

// lastDecision is the newest record.
func (w *world) lastDecision(t testing.TB) core.DecisionRecord {
	t.Helper()
	list := w.core.Decisions().List(core.DecisionFilter{Limit: 1})
	if len(list) != 1 {
		t.Fatalf("%d records", len(list))
	}
	return list[0]
}

func TestB2_PromptsOfEveryForm(t *testing.T) {
	ids := make([]string, 64)
	for i := range ids {
		ids[i] = fmt.Sprint(i * 1000)
	}
	for _, c := range []struct {
		prompt         string
		asked          []string
		tokens, blocks int
	}{
		{`"hi"`, []string{`m prompt="hi"`}, 40, 2},
		{`["a","b"]`, []string{`m prompt="a"`}, 40, 2},
		{`["a", "` + strings.Repeat("b", 398) + `"]`, []string{`m prompt="a"`}, 140, 8},
		{`[1,2,3]`, nil, 3, 0},
		{`[ [1,2] , [3,4] ]`, nil, 4, 0},
		{`[` + strings.Join(ids, ",") + `]`, nil, 64, 4},
		{`[4294967296]`, []string{`m prompt=[4294967296]`}, 40, 2},
		{`[1.0]`, []string{`m prompt=[1.0]`}, 40, 2},
		{`[]`, []string{`m prompt=[]`}, 40, 2},
		{`null`, []string{`m prompt=null`}, 40, 2},
		{`{"a":1}`, []string{`m prompt={"a":1}`}, 40, 2},
	} {
		t.Run(clip(c.prompt), func(t *testing.T) {
			asked := &inputs{}
			w := start(t, func(s *setup) { s.tokens.answer = asked.answer })
			wk, got := recording(t)
			w.join(t, "w1", wk.url)
			body := `{"model":"m","prompt":` + c.prompt + `}`
			if a := w.do(t, "POST", textPath, body); a.status != 200 {
				t.Fatalf("%+v", a)
			}
			if r := wait(t, "request", got); string(r.body) != body {
				t.Errorf("the worker got %q", r.body)
			}
			if diff := cmp.Diff(c.asked, asked.seen); diff != "" {
				t.Error(diff)
			}
			if d := w.lastDecision(t); d.Request.Tokens != c.tokens || d.Request.Blocks != c.blocks {
				t.Errorf("%d tokens, %d blocks; want %d, %d", d.Request.Tokens, d.Request.Blocks, c.tokens, c.blocks)
			}
		})
	}
}

func clip(s string) string { return s[:min(len(s), 20)] }

func TestB3_ChatMessagesOfEveryForm(t *testing.T) {
	asked := &inputs{}
	w := start(t, func(s *setup) { s.tokens.answer = asked.answer })
	wk, got := recording(t)
	w.join(t, "w1", wk.url)
	messages := `[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":"data:x"}}]},{"role":"assistant","content":null,"tool_calls":[{}]},{"role":"assistant"},{"role":"tool","tool_call_id":"1","content":"c"}]`
	body := `{"tools":[{"type":"function"}],"prompt":"ignored","messages":` + messages + `,"model":"m","add_generation_prompt":true}`
	if a := w.do(t, "POST", chatPath, body); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	if r := wait(t, "request", got); string(r.body) != body {
		t.Errorf("the worker got %q", r.body)
	}
	if diff := cmp.Diff([]string{`m messages=` + messages + ` tools=[{"type":"function"}] add_generation_prompt=true`}, asked.seen); diff != "" {
		t.Error(diff)
	}
}

func TestWithoutTokensTheLengthIsEstimated(t *testing.T) {
	w := start(t)
	w.join(t, "w1", answering(t, plain("{}")).url)
	w.do(t, "POST", textPath, `{"model":"m","prompt":"`+strings.Repeat("x", 398)+`"}`)
	if d := w.lastDecision(t); d.Request.Tokens != 100 {
		t.Errorf("%d tokens", d.Request.Tokens)
	}
}

func TestB5_DuplicateRoutingKeysAreRefused(t *testing.T) {
	w := start(t)
	wk := answering(t, plain("{}"))
	w.join(t, "w1", wk.url)
	bodies := map[string]string{
		"model":    `{"model":"m","model":"m","messages":[]}`,
		"stream":   `{"model":"m","stream":false,"str\u0065am":true,"messages":[]}`,
		"messages": `{"model":"m","messages":[],"messages":[]}`,
		"tools":    `{"model":"m","messages":[],"tools":[],"tools":null}`,
	}
	for _, key := range slices.Concat(prompt.Fields(), []string{"cache_salt", "max_tokens", "max_completion_tokens", "temperature"}) {
		if bodies[key] == "" {
			bodies[key] = `{"model":"m","` + key + `":null,"messages":[],"` + escaped(key) + `":"x"}`
		}
	}
	for key, body := range bodies {
		got := w.do(t, "POST", chatPath, body)
		checkError(t, got, 400, "invalid_request")
		if !strings.Contains(got.body, `"param":"`+key+`"`) {
			t.Errorf("%s: %s", key, got.body)
		}
	}
	if a := w.do(t, "POST", chatPath, `{"x":1,"x":2,"model":"m","messages":[{"model":"a","model":"b"}]}`); a.status != 200 {
		t.Errorf("keys that do not route: %+v", a)
	}
	if n := wk.seen.Load(); n != 1 {
		t.Errorf("the worker saw %d requests", n)
	}
}

// escaped spells a key in another way.
func escaped(key string) string { return fmt.Sprintf("\\u%04x%s", key[0], key[1:]) }

func TestB6_ModelsThatNameNothing(t *testing.T) {
	w := start(t)
	w.join(t, "w1", answering(t, plain("{}")).url)
	w.do(t, "POST", chatPath, `{"model":null}`)
	w.do(t, "POST", chatPath, `{"model":"nope"}`)
	before := w.series(t)
	for _, model := range []string{`{}`, `{"model":null}`, `{"model":""}`, `{"model":123}`, `{"model":["m"]}`, `{"model":{"a":1}}`, `{"model":true}`} {
		got := w.do(t, "POST", chatPath, model)
		checkError(t, got, 400, "invalid_request")
		if !strings.Contains(got.body, `"param":"model"`) {
			t.Errorf("%s: %s", model, got.body)
		}
	}
	for _, name := range []string{strings.Repeat("x", 10<<10), strings.Repeat(`\u0000`, 2000), strings.Repeat("\xff", 3000)} {
		got := w.do(t, "POST", chatPath, `{"model":"`+name+`"}`)
		checkError(t, got, 404, "model_not_found")
	}
	if n := w.series(t); n != before {
		t.Errorf("%d series became %d", before, n)
	}
}

func TestB7_LargeBodiesPass(t *testing.T) {
	w := start(t)
	wk, got := recording(t)
	w.join(t, "w1", wk.url)
	c := client(t)
	for _, size := range []int{100 << 10, 200 << 10, 1 << 20, 8 << 20} {
		body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word \\n", size/7) + `"}]}`
		begun := time.Now()
		if a, err := w.try(t, c, "POST", chatPath, body); err != nil || a.status != 200 {
			t.Fatalf("%d bytes: %v %+v", size, err, a)
		}
		took := time.Since(begun)
		t.Logf("%d bytes: %v through client, router and worker", size, took)
		if took > 2500*time.Millisecond {
			t.Errorf("%d bytes took %v", size, took)
		}
		if r := wait(t, "request", got); string(r.body) != body {
			t.Errorf("%d bytes changed on the way", size)
		}
	}
}

func TestB8_TheWorkersAnswerDecidesHowItIsRelayed(t *testing.T) {
	w := start(t)
	w.join(t, "plain", answering(t, plain("{}")).url)
	w.join(t, "events", answering(t, sse+event("1")+event("[DONE]")+lastChunk).url)
	for _, stream := range []string{`"true"`, `1`, `null`, `true`, `{}`} {
		body := `{"model":"m","stream":` + stream + `,"messages":[]}`
		if a := w.do(t, "POST", chatPath, body, "x-routerd-pin", "plain"); a.status != 200 || a.body != "{}" {
			t.Errorf("%s: %+v", stream, a)
		}
		if a := w.do(t, "POST", chatPath, body, "x-routerd-pin", "events"); a.status != 200 || a.body != "data: 1\n\ndata: [DONE]\n\n" {
			t.Errorf("%s: %+v", stream, a)
		}
	}
}

func TestT1_UnknownModelsMakeNoSeries(t *testing.T) {
	w := start(t)
	w.join(t, "w1", answering(t, plain("{}")).url)
	c := client(t)
	var before int
	for i := range 2000 { // the small size
		if _, err := w.try(t, c, "POST", chatPath, fmt.Sprintf(`{"model":"no-%d"}`, i)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			before = w.series(t)
		}
	}
	if n := w.series(t); n != before {
		t.Errorf("%d series became %d", before, n)
	}
}

func TestT3_CredentialsAppearNowhere(t *testing.T) {
	const canary = "sk-CANARY-1"
	w := start(t)
	w.join(t, "w1", answering(t, plain("{}")).url)
	w.chat(t, "Authorization", "Bearer "+canary)
	w.do(t, "POST", chatPath, `{`, "Authorization", "Bearer "+canary)
	w.chat(t, "Authorization", "Bearer "+canary, "x-routerd-priority", "x")
	w.rawAnswer(t, "POST "+chatPath+" HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer "+canary+"\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n{}{}"+canary)
	w.rawAnswer(t, "BAD"+canary+"\x00 /"+canary+" \r\n\r\n")
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := w.log.String()
	for _, f := range families {
		all += f.String()
	}
	for _, d := range w.core.Decisions().List(core.DecisionFilter{}) {
		all += fmt.Sprintf("%+v", d)
	}
	if strings.Contains(all, "CANARY") {
		t.Error("a credential was written down")
	}
}
