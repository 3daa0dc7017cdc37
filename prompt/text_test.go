package prompt_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/prompt"
)

// blocksOf are the blocks of a prompt at 1 token a block, which shows where two differ.
func blocksOf(t *testing.T, in prompt.Input) []kvcache.BlockHash {
	t.Helper()
	h, err := kvcache.NewTextHasher(1, "", "")
	if err != nil {
		t.Fatal(err)
	}
	in.WriteText(h)
	return h.Blocks()
}

// shared is how many blocks two prompts have in common.
func shared(a, b []kvcache.BlockHash) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func with(in prompt.Input, name, value string) prompt.Input {
	in.Fields = append(slices.Clone(in.Fields), prompt.Field{Name: name, Value: []byte(value)})
	return in
}

const (
	system    = `{"role":"system","content":"You are a careful assistant who answers in one sentence."}`
	question  = `{"role":"user","content":"What is the tallest mountain on Earth, and how tall is it?"}`
	call      = `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"look_up","arguments":"{}"}}]}`
	result    = `{"role":"tool","tool_call_id":"1","content":"Mount Everest, 8,849 metres above the sea."}`
	picture   = `{"role":"user","content":[{"type":"text","text":"And what is on this picture?"},{"type":"image_url","image_url":{"url":"https://host/a.png"}}]}`
	noContent = `{"role":"assistant"}`
)

func messages(list ...string) prompt.Input { return chat("[" + strings.Join(list, " , ") + "]") }

func TestAChatThatGoesOnKeepsAllFullBlocks(t *testing.T) {
	all := []string{system, question, call, result, picture, noContent, question}
	for _, in := range []prompt.Input{{}, with(with(prompt.Input{}, "tools", `[{"type":"function"}]`), "chat_template", `"{{x}}"`)} {
		var before []kvcache.BlockHash
		for n := range len(all) + 1 {
			now := messages(all[:n]...)
			now.Fields = append(now.Fields, in.Fields...)
			blocks := blocksOf(t, now)
			if got := shared(before, blocks); got != len(before) || len(blocks) < len(before) {
				t.Errorf("%d messages keep %d of %d blocks", n, got, len(before))
			}
			before = blocks
		}
	}
}

func TestEachPartOfAChatCountsFromWhereItStands(t *testing.T) {
	all := []string{system, question, call, result, picture, question}
	base := blocksOf(t, messages(all...))
	for i, change := range []struct{ from, to string }{
		{"careful", "careless"}, {"tallest", "lowest"}, {`"arguments":"{}"`, `"arguments":"[]"`}, {"8,849", "8,848"}, {"a.png", "b.png"}, {`"user"`, `"tool"`},
	} {
		t.Run(fmt.Sprintf("message %d", i), func(t *testing.T) {
			changed := slices.Clone(all)
			changed[i] = strings.Replace(all[i], change.from, change.to, 1)
			kept := len(blocksOf(t, messages(all[:i]...)))
			end := len(blocksOf(t, messages(all[:i+1]...)))
			if got := shared(base, blocksOf(t, messages(changed...))); got < kept || got > end {
				t.Errorf("%d blocks are kept, want %d to %d", got, kept, end)
			}
		})
	}
}

func TestFormsOfOneChatAreOneText(t *testing.T) {
	want := blocksOf(t, messages(`{"role":"user","content":"a \"café\"\nof ten words, or so, in one line"}`))
	for name, message := range map[string]string{
		"spaces":         "{ \"role\" :\t\"user\",\n\"content\":\"a \\\"café\\\"\\nof ten words, or so, in one line\" }",
		"other escapes":  `{"role":"us\u0065r","content":"a \u0022caf\u00e9\u0022\u000aof ten words, or so, in one line"}`,
		"another order":  `{"content":"a \"café\"\nof ten words, or so, in one line","role":"user"}`,
		"a part":         `{"role":"user","content":[{"type":"text","text":"a \"café\"\nof ten words, or so, in one line"}]}`,
		"a bare part":    `{"role":"user","content":["a \"café\"\nof ten words, or so, in one line"]}`,
		"null members":   `{"role":"user","name":null,"content":"a \"café\"\nof ten words, or so, in one line","tool_calls":null}`,
		"a part's extra": `{"role":"user","content":[{"cache_control":{},"text":"a \"café\"\nof ten words, or so, in one line","type":"text"}]}`,
	} {
		if got := blocksOf(t, messages(message)); !slices.Equal(got, want) {
			t.Errorf("%s: %d of %d blocks are the same", name, shared(got, want), len(want))
		}
	}
	null := with(messages(question), "tools", "null")
	if !slices.Equal(blocksOf(t, null), blocksOf(t, messages(question))) {
		t.Error("tools that are null count")
	}
}

func TestChatsThatDifferAreDifferentTexts(t *testing.T) {
	const pad = "and as many words as it takes to fill the block that tells them apart"
	seen := map[string]string{}
	for name, in := range map[string]prompt.Input{
		"one message":           messages(`{"role":"user","content":"ab` + pad + `"}`),
		"two messages":          messages(`{"role":"user","content":"a"}`, `{"role":"user","content":"b`+pad+`"}`),
		"two parts":             messages(`{"role":"user","content":["a","b` + pad + `"]}`),
		"a name":                messages(`{"role":"user","content":"a","name":"b` + pad + `"}`),
		"a role in the content": messages(`{"role":"","content":"userab` + pad + `"}`),
		"a part of no text":     messages(`{"role":"user","content":[{"type":"image_url","text":"ab`+pad+`"}]}`, system),
		"a part of no type":     messages(`{"role":"user","content":[{"text":"ab`+pad+`"}]}`, system),
		"no object":             messages(`"user ab` + pad + `"`),
		"a number":              messages(`{"role":"user","content":7}`, system),
		"no list":               chat(`{"role":"user","content":"ab` + pad + `"}`),
		"a completion":          text(`"ab` + pad + `"`),
		"tools":                 with(messages(`{"role":"user","content":"ab`+pad+`"}`), "tools", `["`+pad+`"]`),
		"documents":             with(messages(`{"role":"user","content":"ab`+pad+`"}`), "documents", `["`+pad+`"]`),
	} {
		key := fmt.Sprint(blocksOf(t, in))
		if other, ok := seen[key]; ok {
			t.Errorf("%s is the same text as %s", name, other)
		}
		seen[key] = name
	}
}

func TestHowAPromptIsRenderedSeparatesIt(t *testing.T) {
	for _, c := range []struct {
		in       prompt.Input
		separate []string
	}{
		{messages(system, question), []string{"chat_template", "chat_template_kwargs", "add_special_tokens", "reasoning_effort"}},
		{text(`"a prompt of a few words"`), []string{"add_special_tokens"}},
	} {
		base := blocksOf(t, c.in)
		for _, name := range prompt.Fields()[2:] {
			a, b := blocksOf(t, with(c.in, name, `"x"`)), blocksOf(t, with(c.in, name, `"y"`))
			rendered := c.in.Route == prompt.Chat && (name == "tools" || name == "documents")
			want := len(base)
			if rendered || slices.Contains(c.separate, name) {
				want = 0
			}
			if got := shared(base, a); got != want {
				t.Errorf("%s: %d blocks are shared with the prompt without, want %d", name, got, want)
			}
			if got := shared(a, b); !rendered && got != want {
				t.Errorf("%s: %d blocks are shared with another value, want %d", name, got, want)
			}
		}
	}
}

func TestAPictureIsItsHash(t *testing.T) {
	of := func(url string) prompt.Input {
		return messages(system, strings.Replace(picture, "https://host/a.png", url, 1), question)
	}
	large := blocksOf(t, of("data:image/png;base64,"+strings.Repeat("A", 100_000)))
	small := blocksOf(t, of("data:image/png;base64,"+strings.Repeat("A", 50_000)))
	if len(large) != len(small) || len(large) > 100 {
		t.Errorf("pictures of other sizes make %d and %d blocks", len(large), len(small))
	}
	if got, before := shared(large, small), len(blocksOf(t, messages(system))); got <= before || got == len(large) {
		t.Errorf("%d of %d blocks are shared, %d are before the message", got, len(large), before)
	}
}

func TestOnlyPartsThatAreNoTextAreItems(t *testing.T) {
	for message, want := range map[string]bool{
		system: false, call: false, result: false, noContent: false, picture: true, `7`: false, `{"content":[]}`: false, `{"content":["a"]}`: false,
		`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`: false, `{"content":[7]}`: true, `{"content":{"type":"image_url"}}`: false,
		`{"content":[{"type":"input_audio","input_audio":{"data":"x"}},{"type":"text","text":"b"}]}`: true, `{"name":[{"type":"image_url"}]}`: false,
	} {
		if got := messages(question, message, question).HasItems(); got != want {
			t.Errorf("%s: %t, want %t", message, got, want)
		}
	}
	if text(`["a",{}]`).HasItems() {
		t.Error("a completion has items")
	}
}

func TestACompletionIsItsText(t *testing.T) {
	h, err := kvcache.NewTextHasher(1, "", "")
	if err != nil {
		t.Fatal(err)
	}
	h.Write([]byte("two\nlines of a text"))
	if got := blocksOf(t, text(`"two\nlines of a text"`)); !slices.Equal(got, h.Blocks()) {
		t.Errorf("got %v, want %v", got, h.Blocks())
	}
	if got := blocksOf(t, text(`"two\nlines of a text, going on"`)); shared(got, h.Blocks()) != 4 {
		t.Errorf("a text that goes on keeps %d blocks, want 4", shared(got, h.Blocks()))
	}
}

func FuzzWriteTextKeepsWhatWasBefore(f *testing.F) {
	for _, m := range []string{system, question, call, result, picture, noContent, `7`, `null`, `[]`, `{"content":[[],{},""]}`} {
		f.Add(m, question)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		if !json.Valid([]byte(first)) || !json.Valid([]byte(second)) {
			return
		}
		one, two := blocksOf(t, messages(first)), blocksOf(t, messages(first, second))
		if shared(one, two) != len(one) {
			t.Errorf("%s then %s: %d of %d blocks are kept", first, second, shared(one, two), len(one))
		}
	})
}

func BenchmarkWriteText(b *testing.B) {
	for _, c := range []struct{ name, line string }{{"plain", "a line of words, "}, {"escapes", `a line of words\n`}} {
		b.Run(c.name, func(b *testing.B) {
			in := messages(`{"role":"user","content":"` + strings.Repeat(c.line, 100<<10/len(c.line)) + `"}`)
			b.SetBytes(100 << 10)
			b.ReportAllocs()
			for b.Loop() {
				h, err := kvcache.NewTextHasher(16, "", "")
				if err != nil {
					b.Fatal(err)
				}
				in.WriteText(h)
			}
		})
	}
}
