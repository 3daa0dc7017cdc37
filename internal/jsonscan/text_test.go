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
