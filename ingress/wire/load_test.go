package wire_test

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/ingress/wire"
)

// Payloads as msgspec 0.20 writes SGLang's LoadStat (array_like, tagged).
const (
	loadOfRank1 = "96a84c6f6164537461740307ce00020d00ce0004e20001"
	loadNoRank  = "96a84c6f6164537461740307ce00020d00ce0004e200c0"
	loadLong    = "9ba84c6f616453746174cd012cce00011170cf0000000200000000cf00000004000000000001020304cf0004000000000000"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLoadMessagesOfAllFormsAreRead(t *testing.T) {
	tag := "a8" + hex.EncodeToString([]byte("LoadStat"))
	for _, c := range []struct {
		name, payload string
		want          wire.Load
	}{
		{"five numbers", loadOfRank1, wire.Load{Running: 3, Waiting: 7, Tokens: 134400, MaxTokens: 320000}},
		{"rank unknown", loadNoRank, wire.Load{Running: 3, Waiting: 7, Tokens: 134400, MaxTokens: 320000}},
		{"ten numbers", loadLong, wire.Load{Running: 300, Waiting: 70000, Tokens: 1 << 33, MaxTokens: 1 << 34}},
		{"no rank at all", "95" + tag + "01020304", wire.Load{Running: 1, Waiting: 2, Tokens: 3, MaxTokens: 4}},
		{"room unknown", "95" + tag + "01020300", wire.Load{Running: 1, Waiting: 2, Tokens: 3, MaxTokens: -1}},
		{"nil and negative", "95" + tag + "c0ffd1ff0004", wire.Load{Running: -1, Waiting: -1, Tokens: -1, MaxTokens: 4}},
		{"absurd", "95" + tag + "cfffffffffffffffffcf0000010000000001cf000001000000000004", wire.Load{Running: -1, Waiting: -1, Tokens: 1 << 40, MaxTokens: 4}},
		{"signed forms", "95" + tag + "d001d10002d200000003d30000000000000004", wire.Load{Running: 1, Waiting: 2, Tokens: 3, MaxTokens: 4}},
		{"wide headers", "dd00000005d90" + "8" + hex.EncodeToString([]byte("LoadStat")) + "01020304", wire.Load{Running: 1, Waiting: 2, Tokens: 3, MaxTokens: 4}},
		{"16-bit header", "dc0005" + tag + "01020304", wire.Load{Running: 1, Waiting: 2, Tokens: 3, MaxTokens: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := wire.DecodeLoad(unhex(t, c.payload))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadMessagesThatAreNoneAreRefused(t *testing.T) {
	tag := "a8" + hex.EncodeToString([]byte("LoadStat"))
	for name, payload := range map[string]string{
		"empty":          "",
		"no array":       "81" + tag + "01",
		"too short":      "94" + tag + "010203",
		"another tag":    "95a8" + hex.EncodeToString([]byte("LoadStar")) + "01020304",
		"no tag":         "950101020304",
		"cut off":        loadOfRank1[:30],
		"cut in tag":     "95a84c6f61",
		"cut in header":  "dd0000",
		"long text":      "95d9ff4c6f6164",
		"text as number": "95" + tag + "a3616263020304",
		"float":          "95" + tag + "cb3ff0000000000000020304",
	} {
		if got, err := wire.DecodeLoad(unhex(t, payload)); !errors.Is(err, wire.ErrCorrupt) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{loadOfRank1, loadNoRank, loadLong, "", "dd", "95d9", "95a8"} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		l, err := wire.DecodeLoad(payload)
		if err != nil {
			if !errors.Is(err, wire.ErrCorrupt) {
				t.Errorf("%v", err)
			}
			return
		}
		for _, n := range []int64{l.Running, l.Waiting, l.Tokens, l.MaxTokens} {
			if n < -1 || n > 1<<40 {
				t.Errorf("%+v", l)
			}
		}
	})
}

// BenchmarkDecodeLoad reads one load message.
func BenchmarkDecodeLoad(b *testing.B) {
	payload := unhex(b, loadLong)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.DecodeLoad(payload); err != nil {
			b.Fatal(err)
		}
	}
}
