package sim

import (
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

const (
	vocabularyBase = 256
	vocabularySize = 100_000
	// longestKeptPiece bounds what the detokenizer remembers of one piece.
	longestKeptPiece = 64
)

// Message is one turn of a conversation as the chat template sees it.
type Message struct {
	Role string
	Text string
}

// Tokenize returns the token ids of a text. It is the tokenizer that every
// simulated engine answers with at /tokenize; the package comment has the rule.
func Tokenize(text string) []uint32 {
	ids := make([]uint32, 0, len(text)/3+1)
	for len(text) > 0 {
		n := pieceLength(text)
		ids = append(ids, pieceID(text[:n]))
		text = text[n:]
	}
	return ids
}

// RenderChat returns the text that the chat template makes of a conversation.
// With generation it ends with the opening of the assistant's turn.
func RenderChat(messages []Message, generation bool) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString("<|")
		b.WriteString(m.Role)
		b.WriteString("|>")
		b.WriteString(m.Text)
	}
	if generation {
		b.WriteString("<|assistant|>")
	}
	return b.String()
}

// pieceLength returns how many bytes the first piece of a non-empty text takes.
func pieceLength(text string) int {
	class := asciiWord
	if !asciiWord(text[0]) {
		if !asciiSpace(text[0]) {
			_, n := utf8.DecodeRuneInString(text)
			return n
		}
		class = asciiSpace
	}
	n := 1
	for n < len(text) && class(text[n]) {
		n++
	}
	return n
}

func asciiWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

func asciiSpace(c byte) bool {
	return c == ' ' || c >= '\t' && c <= '\r' && c != '\v'
}

func pieceID(piece string) uint32 {
	return vocabularyBase + uint32(xxh3.HashString(piece)%vocabularySize)
}

// pieces remembers the first piece seen for each id, so that ids can be turned
// back into text. Safe for concurrent use.
type pieces struct {
	seen [vocabularySize]atomic.Pointer[string]
}

// learn notes the pieces of a text that it has not seen yet.
func (p *pieces) learn(text string) {
	for len(text) > 0 {
		n := pieceLength(text)
		slot := &p.seen[pieceID(text[:n])-vocabularyBase]
		if n <= longestKeptPiece && slot.Load() == nil {
			kept := strings.Clone(text[:n])
			slot.CompareAndSwap(nil, &kept)
		}
		text = text[n:]
	}
}

// text joins the pieces of ids; an id never seen becomes U+FFFD.
func (p *pieces) text(ids []uint32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(p.piece(id))
	}
	return b.String()
}

func (p *pieces) piece(id uint32) string {
	if id >= vocabularyBase && id-vocabularyBase < vocabularySize {
		if s := p.seen[id-vocabularyBase].Load(); s != nil {
			return *s
		}
	}
	return string(utf8.RuneError)
}
