package jsonscan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/routerd/routerd/internal/jsonscan"
)

func TestTextsAreUnicode(t *testing.T) {
	for document, want := range map[string]bool{
		``: true, `"a"`: true, `"é😀"`: true, `"\ud83d\ude00"`: true, `"\uD83D\uDE00x"`: true, `"\\ud800"`: true, `"\u00e9\n"`: true,
		"\"\xff\"": false, `"\ud800"`: false, `"\udfff"`: false, `"\ud800\ud800"`: false, `"\ude00\ud83d"`: false, `"\ud800x"`: false,
		`"\ud800\n"`: false, `"\\\ud800"`: false, `"\u`: true, `"\`: true,
	} {
		if got := jsonscan.Text([]byte(document)); got != want {
			t.Errorf("%q: got %v", document, got)
		}
	}
}

func TestUnquoteUndoesEscapes(t *testing.T) {
	for raw, want := range map[string]string{
		`""`: "", `"a"`: "a", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"x\u00e9y"`: "xéy", `"\ud83d\ude00"`: "😀", `"\ud83d"`: "\ufffd",
		`"\ud83d\u0041"`: "\ufffdA", `"\ud83d\n"`: "\ufffd\n", `"\ude00\ud83d\ude00"`: "\ufffd😀", `"\u0000"`: "\x00", "\"\xff\"": "\xff", "\"\xff\\n\"": "\ufffd\n",
	} {
		if got := string(jsonscan.Unquote([]byte(raw))); got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
}

func FuzzUnquoteIsWhatTheStandardLibraryReads(f *testing.F) {
	for _, seed := range []string{`"\ud83d\ude00"`, `"\ud800\ud800\ude00x"`, `"a\\ud800"`, `"\u00e9\"\/"`, "\"\xed\xa0\x80\\n\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var want string
		if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' || json.Unmarshal([]byte(raw), &want) != nil {
			return
		}
		got := string(jsonscan.Unquote([]byte(raw)))
		if !strings.Contains(raw, `\`) {
			want = raw[1 : len(raw)-1]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	})
}

// A document of texts that Text takes comes back as it went in.
func FuzzText(f *testing.F) {
	for _, seed := range []string{`"\ud83d\ude00"`, `"\ud800"`, `"\\ud800"`, `{"a\udc00":1}`, "\"\xed\xa0\x80\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		var v string
		if json.Unmarshal([]byte(document), &v) != nil {
			return
		}
		replaced := strings.Count(v, "\ufffd") > strings.Count(document, "\ufffd")+strings.Count(strings.ToLower(document), `\ufffd`)
		if jsonscan.Text([]byte(document)) == replaced {
			t.Errorf("%q is %q", document, v)
		}
	})
}
