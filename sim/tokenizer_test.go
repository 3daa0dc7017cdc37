package sim_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/sim"
)

var piecePattern = regexp.MustCompile(`\w+|\s+|.`)

func TestTokenizerSplitsAsItsPattern(t *testing.T) {
	for _, text := range []string{
		"", "a", "Hello, world!", "two  spaces\n\nand\tlines\r\n", "x_1 = y-2", "北京 ist groß é", "a\x80\xffb", "\v\f ", "<|user|>hi",
	} {
		if diff := cmp.Diff(piecePattern.FindAllString(text, -1), sim.SplitPieces(text)); diff != "" {
			t.Errorf("%q: pieces differ (-pattern +tokenizer):\n%s", text, diff)
		}
	}
}

func FuzzTokenizerSplitsAsItsPattern(f *testing.F) {
	f.Add("Hello, world! 北京\n\t x")
	f.Add("\xff\xfe a_b")
	f.Fuzz(func(t *testing.T, text string) {
		if diff := cmp.Diff(piecePattern.FindAllString(text, -1), sim.SplitPieces(text)); diff != "" {
			t.Errorf("%q: pieces differ (-pattern +tokenizer):\n%s", text, diff)
		}
	})
}

func TestTokenIDIs256PlusHashModulo100000(t *testing.T) {
	want := []uint32{
		256 + uint32(xxh3.HashString("Hello")%100000),
		256 + uint32(xxh3.HashString(" ")%100000),
		256 + uint32(xxh3.HashString("北")%100000),
	}
	if diff := cmp.Diff(want, sim.Tokenize("Hello 北")); diff != "" {
		t.Errorf("ids differ (-want +got):\n%s", diff)
	}
}

func TestChatTemplateOfAConversationBeginsWithThatOfItsBeginning(t *testing.T) {
	turns := []sim.Message{{Role: "system", Text: "Be brief."}, {Role: "user", Text: "hi"}, {Role: "assistant", Text: "hello"}, {Role: "user", Text: "more"}}
	want := "<|system|>Be brief.<|user|>hi<|assistant|>hello<|user|>more<|assistant|>"
	if got := sim.RenderChat(turns, true); got != want {
		t.Errorf("rendered %q, want %q", got, want)
	}
	first := sim.Tokenize(sim.RenderChat(turns[:2], true))
	all := sim.Tokenize(sim.RenderChat(turns, true))
	if diff := cmp.Diff(first, all[:len(first)]); diff != "" {
		t.Errorf("first turns are not a prefix (-want +got):\n%s", diff)
	}
	if got := sim.RenderChat(turns[:1], false); got != "<|system|>Be brief." {
		t.Errorf("without generation prompt: %q", got)
	}
}
