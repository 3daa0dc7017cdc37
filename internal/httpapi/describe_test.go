package httpapi_test

import (
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
)

type inner struct {
	Text string `json:"text"`
}

type described struct {
	ID       *uint64           `json:"id" api:"required"`
	Worker   fleet.WorkerID    `json:"worker"`
	Fraction *float64          `json:"fraction,omitempty" api:"min=0,max=1"`
	Kind     *string           `json:"kind" api:"oneof=a|b"`
	Never    *string           `json:"never,omitempty" api:"null"`
	Model    *string           `json:"model,omitempty" api:"value"`
	Ranges   [][2]uint32       `json:"ranges"`
	Ranks    map[uint32]string `json:"ranks,omitempty"`
	Inner    []*inner          `json:"inner,omitempty"`
	inner
}

func TestABodyIsDescribedAsItIsReadStrictly(t *testing.T) {
	got := httpapi.BodySchema(reflect.TypeFor[described]())
	if diff := cmp.Diff([]string{"id", "text", "worker"}, got["required"]); diff != "" || got["additionalProperties"] != false {
		t.Errorf("required (-want +got)\n%s", diff)
	}
	properties := got["properties"].(map[string]any)
	for name, want := range map[string]string{
		"id":       `{"maximum":18446744073709551615,"minimum":0,"type":"integer"}`,
		"worker":   `{"maximum":18446744073709551615,"minimum":0,"pattern":"^(0|[1-9][0-9]{0,19})$","type":["integer","string"]}`,
		"fraction": `{"maximum":1,"minimum":0,"type":["number","null"]}`,
		"kind":     `{"enum":["a","b",null],"type":["string","null"]}`,
		"never":    `{"type":"null"}`,
		"model":    `{"type":"string"}`,
		"ranges":   `{"items":{"items":{"maximum":4294967295,"minimum":0,"type":"integer"},"maxItems":2,"minItems":2,"type":"array"},"type":["array","null"]}`,
		"ranks":    `{"additionalProperties":{"type":"string"},"propertyNames":{"pattern":"^(0|[1-9][0-9]{0,8})$"},"type":["object","null"]}`,
		"inner":    `{"items":{"additionalProperties":false,"properties":{"text":{"type":"string"}},"required":["text"],"type":["object","null"]},"type":["array","null"]}`,
		"text":     `{"type":"string"}`,
	} {
		b, err := json.Marshal(properties[name])
		if err != nil || string(b) != want {
			t.Errorf("%s: got %s, want %s (%v)", name, b, want, err)
		}
	}
}

func TestAnAnswerIsDescribedAsItIsWritten(t *testing.T) {
	got := httpapi.AnswerSchema(reflect.TypeFor[described]())
	if diff := cmp.Diff([]string{"id", "kind", "ranges", "text", "worker"}, got["required"]); diff != "" {
		t.Errorf("required (-want +got)\n%s", diff)
	}
	if _, closed := got["additionalProperties"]; closed {
		t.Error("an answer may get further fields")
	}
	id, err := json.Marshal(got["properties"].(map[string]any)["id"])
	if want := `{"maximum":18446744073709551615,"minimum":0,"type":["integer","null"]}`; err != nil || string(id) != want {
		t.Errorf("id: got %s, want %s (%v)", id, want, err)
	}
}

// The longest id as a text has as many digits as the largest number.
func TestThePatternOfIDsTakesAllOfThem(t *testing.T) {
	schema := httpapi.BodySchema(reflect.TypeFor[fleet.WorkerID]())
	text, _ := schema["pattern"].(string)
	pattern := regexp.MustCompile(text)
	for id, want := range map[string]bool{"0": true, "7": true, strconv.FormatUint(math.MaxUint64, 10): true, "007": false, "-1": false, "": false, "100000000000000000000": false} {
		if got := pattern.MatchString(id); got != want {
			t.Errorf("%q matches: %v, want %v", id, got, want)
		}
	}
}
