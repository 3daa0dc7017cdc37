package frontend_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/prompt"
)

// learning is an index that takes what is booked for what is held.
type learning struct {
	mu      sync.Mutex
	prompts [][]kvcache.BlockHash // as they were recorded
}

func (l *learning) Open(fleet.PartitionKey, int) (core.KvIndex, error) { return l, nil }

func (l *learning) Find(blocks []kvcache.BlockHash, _ []fleet.Worker, out []kvcache.Overlap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(out)
	for _, p := range l.prompts {
		for i := range out {
			out[i].Device = max(out[i].Device, uint32(common(p, blocks)))
		}
	}
}

func (l *learning) Record(_ fleet.Worker, blocks []kvcache.BlockHash, _ bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prompts = append(l.prompts, slices.Clone(blocks))
}

func (l *learning) Forget(fleet.Worker)       {}
func (l *learning) Trusted(fleet.Worker) bool { return true }

func common(a, b []kvcache.BlockHash) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// startLearning is a frontend over an index that learns, with one worker.
func startLearning(t *testing.T, mode prompt.Mode, change ...func(*setup)) (*world, *learning) {
	t.Helper()
	l := &learning{}
	w := start(t, append([]func(*setup){func(s *setup) {
		s.policy, s.index, s.model = scoring("builtin:kv-aware"), l, func(string) prompt.Mode { return mode }
	}}, change...)...)
	w.join(t, "w1", answering(t, plain("{}")).url, func(r *fleet.Record) { r.Adapters = []fleet.Adapter{{Name: "sql"}} })
	return w, l
}

// overlap sends a body and returns how many blocks of its prompt were found, and how many it has.
func (w *world) overlap(t *testing.T, path, body string) (found, blocks int) {
	t.Helper()
	if a := w.do(t, "POST", path, body); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	return int(w.column(t, "kv.overlap_device")), w.lastDecision(t).Request.Blocks
}

// column is what the newest decision saw of its only candidate.
func (w *world) column(t *testing.T, name string) float64 {
	t.Helper()
	d, ok := w.core.Decisions().Get(w.lastDecision(t).ID)
	if !ok || len(d.Rows) != 1 {
		t.Fatalf("%d rows", len(d.Rows))
	}
	v, ok := d.Rows[0].Columns[name]
	if !ok {
		t.Fatalf("no column %s", name)
	}
	return v
}

// text is n bytes of text that differ all along.
func longText(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "word%d ", i)
	}
	return b.String()[:n]
}

func TestB4_AnImageEndsTheOverlapOfAnother(t *testing.T) {
	w, l := startLearning(t, prompt.ModeText)
	chat := func(url string) string {
		text := longText(2000) // 500 tokens, the image behind 100 of them
		return `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"` + text[:400] + `"},{"type":"image_url","image_url":{"url":"` + url +
			`"}},{"type":"text","text":"` + text[400:] + `"}]}]}`
	}
	if found, blocks := w.overlap(t, chatPath, chat("https://host/a.png")); found != 0 || blocks != 31 {
		t.Fatalf("the first: %d of %d blocks, want 0 of 31", found, blocks)
	}
	if found, _ := w.overlap(t, chatPath, chat("https://host/b.png")); found != 400/64 {
		t.Errorf("with another image: %d blocks, want %d, those before it", found, 400/64)
	}
	if found, blocks := w.overlap(t, chatPath, chat("https://host/a.png")); found != blocks {
		t.Errorf("with the same image: %d of %d blocks", found, blocks)
	}
	if len(l.prompts) != 3 {
		t.Errorf("%d bookings were recorded", len(l.prompts))
	}
}

// Two images have the same placeholder among the tokens of an engine.
func TestB4_AnImageEndsTheOverlapOfAnotherAlsoAmongTokens(t *testing.T) {
	ids := make([]uint32, 500)
	for i := range ids {
		ids[i] = uint32(i)
	}
	w, l := startLearning(t, prompt.ModeEngine, func(s *setup) {
		s.tokens.answer = func(_ context.Context, in prompt.Input) ([]uint32, prompt.Outcome) {
			if !in.HasItems() {
				return ids[:112], prompt.Fresh
			}
			return ids, prompt.Fresh
		}
	})
	text := longText(2000)
	chat := func(url string) string {
		return `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"` + text[:400] + `"},{"type":"image_url","image_url":{"url":"` + url +
			`"}},{"type":"text","text":"` + text[400:] + `"}]}]}`
	}
	for _, c := range []struct {
		name, body  string
		found, held int
	}{
		{"an image", chat("https://host/a.png"), 0, 31},
		{"another image", chat("https://host/b.png"), 6, 31},
		{"the same image", chat("https://host/a.png"), 31, 31},
		{"no image, with the tokens of the beginning", `{"model":"m","messages":[{"role":"user","content":"` + text[:440] + `"}]}`, 0, 7},
		{"a third image behind these tokens", chat("https://host/c.png"), 7, 31},
		{"a small chat with an image", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 7, 31},
	} {
		if found, blocks := w.overlap(t, chatPath, c.body); found != c.found || blocks != c.held {
			t.Errorf("%s: %d of %d blocks, want %d of %d", c.name, found, blocks, c.found, c.held)
		}
	}
	if len(l.prompts) != 5 {
		t.Errorf("%d prompts were recorded, want all but the one without a block of text", len(l.prompts))
	}
}

func TestB3_TextPartsTakePartInOrder(t *testing.T) {
	text := longText(640)
	chat := func(messages string) string { return `{"model":"m","messages":[` + messages + `]}` }
	user := `{"role":"user","content":"` + text + `"}`
	parts := `{"role":"user","content":[{"type":"text","text":"` + text[:300] + `"},{"type":"text","text":"` + text[300:] + `"}]}`
	turned := `{"role":"user","content":[{"type":"text","text":"` + text[300:] + `"},{"type":"text","text":"` + text[:300] + `"}]}`
	calls := user + `,{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"assistant"},{"role":"tool","content":"` + text + `"}`
	for _, c := range []struct {
		name, first, then string
		want              int
	}{
		{"the same parts", parts, parts, 10},
		{"parts in another order", parts, turned, 0},
		{"parts of another cut", user, parts, 300 / 64},
		{"a chat that goes on", user, calls, 10},
		{"all forms of messages", calls, calls, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _ := startLearning(t, prompt.ModeText)
			w.overlap(t, chatPath, chat(c.first))
			if found, _ := w.overlap(t, chatPath, chat(c.then)); found != c.want {
				t.Errorf("%d blocks, want %d", found, c.want)
			}
		})
	}
}

func TestTextIsHashedForItsAdapterAndSalt(t *testing.T) {
	w, l := startLearning(t, prompt.ModeText)
	text := longText(1000)
	for _, scope := range [][2]string{{"m", ""}, {"sql", ""}, {"m", "tenant"}, {"sql", "tenant"}} {
		body := `{"model":"` + scope[0] + `","prompt":"` + text + `","cache_salt":"` + scope[1] + `"}`
		if found, blocks := w.overlap(t, textPath, body); found != 0 || blocks != 15 {
			t.Errorf("%v: %d of %d blocks are found, want 0 of 15", scope, found, blocks)
		}
		adapter := strings.TrimPrefix(scope[0], "m")
		h, err := kvcache.NewTextHasher(16, adapter, scope[1])
		if err != nil {
			t.Fatal(err)
		}
		h.Write([]byte(text))
		if d := cmp.Diff(h.Blocks(), l.prompts[len(l.prompts)-1]); d != "" {
			t.Errorf("%v: %s", scope, d)
		}
		if found, _ := w.overlap(t, textPath, body); found != 15 {
			t.Errorf("%v again: %d blocks", scope, found)
		}
	}
}

func TestTextNeedsNoTokenizer(t *testing.T) {
	asked := &inputs{}
	w, _ := startLearning(t, prompt.ModeText, func(s *setup) { s.tokens.answer = asked.answer })
	ids := `[` + strings.Repeat("7,", 63) + `7]`
	for _, c := range []struct {
		prompt         string
		tokens, blocks int
	}{
		{`"` + longText(1000) + `"`, 250, 15},
		{`["` + longText(1000) + `","` + longText(398) + `"]`, 350, 21}, // the second counts as load
		{`"short"`, 1, 0},
		{`"` + strings.Repeat(`\u00e9`, 128) + `"`, 64, 4},
		{ids, 64, 4},
	} {
		w.do(t, "POST", textPath, `{"model":"m","prompt":`+c.prompt+`}`)
		if d := w.lastDecision(t); d.Request.Tokens != c.tokens || d.Request.Blocks != c.blocks {
			t.Errorf("%s: %d tokens, %d blocks; want %d, %d", clip(c.prompt), d.Request.Tokens, d.Request.Blocks, c.tokens, c.blocks)
		}
	}
	if len(asked.seen) > 0 {
		t.Errorf("the tokenizer was asked: %v", asked.seen)
	}
}

func TestAPromptThatIsOffHasNoBlocks(t *testing.T) {
	w, l := startLearning(t, prompt.ModeOff)
	w.do(t, "POST", textPath, `{"model":"m","prompt":"`+longText(1000)+`"}`)
	if len(l.prompts) > 0 {
		t.Errorf("recorded %v", l.prompts)
	}
}

// sizeless is a core that has just forgotten a partition.
type sizeless struct{ frontend.Selector }

func (sizeless) BlockSize(fleet.PartitionKey) int { return 0 }

func TestTextOfAPartitionWithoutBlockSizeIsEstimated(t *testing.T) {
	w, l := startLearning(t, prompt.ModeText, func(s *setup) {
		s.selector = func(c *core.SelectionCore) frontend.Selector { return sizeless{c} }
	})
	w.do(t, "POST", textPath, `{"model":"m","prompt":"`+longText(998)+`"}`)
	if d := w.lastDecision(t); d.Request.Tokens != 250 || len(l.prompts) > 0 {
		t.Errorf("%d tokens, recorded %v", d.Request.Tokens, l.prompts)
	}
}
