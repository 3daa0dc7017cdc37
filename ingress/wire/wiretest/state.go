package wiretest

import (
	"slices"
	"strings"
	"testing"

	"github.com/routerd/routerd/kvcache"
)

// EngineBlockSize returns the size of the first block that is stored, 0 when none is.
func (w *Want) EngineBlockSize() int {
	for _, m := range w.Messages {
		for _, e := range m.Events {
			if e.BlockSize > 0 {
				return e.BlockSize
			}
		}
	}
	return 0
}

// Refused returns the hashes that an index of token blocks must refuse, though the engine holds them: those of stores
// whose tokens are not those of their blocks.
func (w *Want) Refused(t testing.TB) map[string]bool {
	t.Helper()
	size, refused := w.EngineBlockSize(), map[string]bool{}
	for _, m := range w.Messages {
		for _, e := range m.Events {
			from := len(e.Hashes)
			if len(e.Tokens) > 0 && (e.BlockSize != size || len(e.Tokens) != len(e.Hashes)*size) {
				from = 0
			}
			for i, h := range e.Hashes {
				if e.Group == 0 {
					refused[Hash(t, h)] = i >= from
				}
			}
		}
	}
	return refused
}

// StateBefore returns what is stored by the messages before a number. Nothing may be removed by them.
func (w *Want) StateBefore(t testing.TB, seq string) State {
	t.Helper()
	held := map[string][]string{}
	for _, m := range w.Messages {
		if len(m.Seq) > len(seq) || len(m.Seq) == len(seq) && m.Seq >= seq {
			break
		}
		for _, e := range m.Events {
			if e.Type != "BlockStored" {
				t.Fatalf("%s before number %s", e.Type, seq)
			}
			medium := e.Medium
			if medium == "" {
				medium = "GPU"
			}
			held[medium] = append(held[medium], e.Hashes...)
		}
	}
	return State{"": held}
}

// Held returns the hashes of a state that an index holds, of whichever rank, sorted, by tier: those of the main cache
// group that are not refused.
func Held(t testing.TB, state State, refused map[string]bool) map[string][]string {
	t.Helper()
	held := map[string][]string{}
	for _, media := range state {
		for medium, hashes := range media {
			name, group, _ := strings.Cut(medium, "/")
			tier, ok := kvcache.ParseMedium(name)
			if !ok {
				t.Fatalf("medium %q in a description", medium)
			}
			if group != "" && group != "g0" {
				continue
			}
			for _, text := range hashes {
				if h := Hash(t, text); !refused[h] {
					held[tier.String()] = append(held[tier.String()], h)
				}
			}
		}
	}
	for tier := range held {
		slices.Sort(held[tier])
	}
	return held
}
