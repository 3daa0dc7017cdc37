package engine_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog/engine"
	"github.com/routerd/routerd/fleet"
)

func fixture(t testing.TB, name string) string {
	t.Helper()
	body, err := os.ReadFile("testdata/openai/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestAdaptersAreTheCardsWithAParent(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"vLLM", fixture(t, "models_vllm.json"), []string{"sql-adapter"}},
		{"SGLang", fixture(t, "models_sglang.json"), []string{"sql-adapter"}},
		{"without a parent", `{"data":[{"id":"a","parent":null},{"id":"b"},{"id":"c","parent":""}]}`, []string{}},
		{"none", `{"data":[]}`, []string{}},
		{"no cards", `{}`, []string{}},
		{"sorted, each once", `{"data":[{"id":"b","parent":"m"},{"id":"a","parent":"m"},{"id":"b","parent":"m"}]}`, []string{"a", "b"}},
		{"what no record can have", `{"data":[{"id":"base-model","parent":"m"},{"id":"","parent":"m"},{"id":"a\u0000b","parent":"m"},{"id":"a\nb","parent":"m"},{"id":"` +
			strings.Repeat("x", 257) + `","parent":"m"},{"id":"a","parent":""}]}`, []string{}},
		{"no UTF-8", "{\"data\":[{\"id\":\"b\xc3\",\"parent\":\"m\"},{\"id\":\"sql\",\"parent\":\"m\"}]}", []string{"sql"}},
		{"more than a record holds", `{"data":[{"id":"a","parent":"m"}` + many(`,{"id":"b#","parent":"m"}`, fleet.MaxAdapters) + `]}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := engine.Adapters(strings.NewReader(c.body), "base-model")
			if err != nil {
				t.Fatal(err)
			}
			if c.want == nil {
				if len(got) != fleet.MaxAdapters {
					t.Errorf("%d adapters", len(got))
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, body := range []string{
		"", "null x", "[]", "[1]", `{"data":{}}`, `{"data":`, `{"data":[{"id":5,"parent":"x"}]}`,
		`{"data":[{"id":"a","parent":"m"}]} x`, strings.Repeat(`{"data":`, 20000), strings.Repeat(" ", 9<<20) + "{}",
	} {
		if got, err := engine.Adapters(strings.NewReader(body), "m"); err == nil {
			t.Errorf("%.20q: got %v", body, got)
		}
	}
}

// many repeats a text with a number in place of #.
func many(text string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(text, "#", strconv.Itoa(i)))
	}
	return b.String()
}

func TestWithoutABaseModelEveryCardWithAParentCounts(t *testing.T) {
	got, err := engine.Adapters(strings.NewReader(`{"data":[{"id":"m","parent":"m"}]}`))
	if diff := cmp.Diff([]string{"m"}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func FuzzAdapters(f *testing.F) {
	f.Add(fixture(f, "models_vllm.json"), "base-model")
	f.Add(fixture(f, "models_sglang.json"), "sql-adapter")
	f.Add("{\"data\":[{\"id\":\"b\xc3\",\"parent\":\"m\"},{\"id\":\"sql\",\"parent\":\"m\"}]}", "m")
	for _, body := range []string{"\xff\xfe", `{"data":{}}`, strings.Repeat("é", 300)} {
		f.Add(body, "")
	}
	f.Fuzz(func(t *testing.T, body, model string) {
		names, err := engine.Adapters(strings.NewReader(body), model)
		if err != nil {
			return
		}
		r := fleet.Record{ID: 1, Name: "w1", URL: "http://127.0.0.1:1", Model: "base-model"}
		for _, name := range names {
			if name == model {
				t.Errorf("%q is the model", name)
			}
			if name != r.Model {
				r.Adapters = append(r.Adapters, fleet.Adapter{Name: name})
			}
		}
		if _, err := r.Normalised(); err != nil {
			t.Error(err)
		}
	})
}

func TestAnEngineWithMoreThanIsKeptSaysSo(t *testing.T) {
	for n, more := range map[int]bool{1: false, 63: false, 64: true, 200: true} {
		s := says(t, map[string]string{"/v1/models": `{"data":[` + strings.TrimPrefix(many(`,{"id":"m#","owned_by":"vllm"}`, n), ",") + `]}`})
		if f := ask(t, s, fleet.Record{}); f.More != more || len(f.Models) != min(n, 64) {
			t.Errorf("of %d models %d are told, more: %t", n, len(f.Models), f.More)
		}
	}
}
