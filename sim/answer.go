package sim

import (
	"math/rand/v2"
	"strings"

	"github.com/zeebo/xxh3"
)

// answer is everything that one choice will say, known before it is said: it
// depends only on the prompt, the seeds and the choice's number.
type answer struct {
	tokens []uint32
	texts  []string // text of each token after stop strings were applied
	finish string   // "stop" or "length"
	stop   *string  // the stop string that ended it
}

// answerWords is what answers are made of. Words, single spaces and full stops
// alternate, so that tokenizing an answer's text gives its tokens again.
var answerWords = [...]string{
	"a", "about", "after", "again", "air", "answer", "away", "big", "book", "both", "bring", "call",
	"carry", "change", "city", "close", "come", "day", "each", "early", "east", "end", "every", "far",
	"field", "find", "fire", "first", "follow", "friend", "garden", "give", "good", "green", "ground", "grow",
	"hand", "hear", "high", "home", "house", "idea", "keep", "kind", "land", "large", "last", "learn",
	"letter", "light", "line", "long", "make", "many", "moon", "morning", "move", "near", "night", "north",
	"number", "old", "open", "paper", "part", "place", "plain", "point", "read", "river", "road", "room",
	"say", "sea", "second", "set", "show", "side", "small", "song", "stand", "start", "stone", "story",
	"talk", "tell", "time", "tree", "turn", "under", "walk", "water", "way", "west", "wind", "word",
}

// lexicon holds the ids of the answer words.
type lexicon struct {
	words       []uint32
	space, stop uint32
}

func newLexicon() lexicon {
	l := lexicon{words: make([]uint32, len(answerWords)), space: pieceID(" "), stop: pieceID(".")}
	for i, w := range answerWords {
		l.words[i] = pieceID(w)
	}
	return l
}

// compose writes the answer with number choice to a prompt.
func (l lexicon) compose(prompt sequence, promptTokens int, s sampling, c Config, choice int) answer {
	key := xxh3.HashString(prompt.prefix(promptTokens))
	rng := rand.New(rand.NewPCG(key^c.Seed, uint64(choice)^s.seed))
	natural := c.AnswerTokens
	if natural == 0 {
		natural = 16 + rng.IntN(32)
	}
	natural = max(natural, s.minTokens)
	a := answer{finish: "stop"}
	n := natural
	if s.ignoreEOS || s.maxTokens <= natural {
		n, a.finish = s.maxTokens, "length"
	}
	l.write(&a, rng, n)
	a.applyStops(s)
	return a
}

// write appends n tokens: sentences of 5 to 12 words.
func (l lexicon) write(a *answer, rng *rand.Rand, n int) {
	a.tokens = make([]uint32, 0, n)
	a.texts = make([]string, 0, n)
	left := 5 + rng.IntN(8)
	afterWord := false
	put := func(id uint32, text string) {
		a.tokens = append(a.tokens, id)
		a.texts = append(a.texts, text)
	}
	for len(a.tokens) < n {
		switch {
		case !afterWord:
			w := rng.IntN(len(answerWords))
			put(l.words[w], answerWords[w])
			afterWord = true
			left--
		case left == 0:
			put(l.stop, ".")
			left = 5 + rng.IntN(8)
			if len(a.tokens) < n {
				put(l.space, " ")
			}
			afterWord = false
		default:
			put(l.space, " ")
			afterWord = false
		}
	}
}

// applyStops ends the answer at the stop string that is complete first. Tokens
// up to the one that completes it count; the text ends before the stop string,
// or after it when the request asks to keep it.
func (a *answer) applyStops(s sampling) {
	if len(s.stops) == 0 {
		return
	}
	text := strings.Join(a.texts, "")
	end, from := len(text)+1, 0
	for i, stop := range s.stops {
		at := strings.Index(text, stop)
		if at < 0 || at+len(stop) >= end {
			continue
		}
		end, from = at+len(stop), at
		a.stop = &s.stops[i]
	}
	if a.stop == nil {
		return
	}
	a.finish = "stop"
	keep := from
	if s.keepStop {
		keep = end
	}
	a.cutText(keep, end)
}

// cutText keeps the tokens that reach byte end and the text up to byte keep.
func (a *answer) cutText(keep, end int) {
	at := 0
	for i, piece := range a.texts {
		next := at + len(piece)
		a.texts[i] = piece[:max(0, min(len(piece), keep-at))]
		if next >= end {
			a.tokens, a.texts = a.tokens[:i+1], a.texts[:i+1]
			return
		}
		at = next
	}
}
