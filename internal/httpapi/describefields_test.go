package httpapi_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/httpapi"
)

type part struct {
	Size int64   `json:"size" doc:"Its size."`
	Note *string `json:"note,omitempty" api:"most=5" doc:"A word."`
}

type asked struct {
	ID     *uint32         `json:"id" api:"required,max=9" doc:"Its number."`
	Parts  []part          `json:"parts,omitempty" api:"most=3" doc:"What it is made of."`
	Named  map[string]part `json:"named,omitempty" doc:"The same by name."`
	Hashes []int64         `json:"hashes,omitempty" api:"min=0" doc:"Hashes."`
	Kind   *string         `json:"kind,omitempty" api:"oneof=a|b" doc:"Its kind."`
}

type told struct {
	ID   uint32 `json:"id" doc:"Its number."`
	Pair struct {
		Low  int  `json:"low" doc:"One end."`
		High *int `json:"high,omitempty" doc:"The other."`
	} `json:"pair" doc:"Both ends."`
}

func TestFieldsAreListedOnceWithTypeAndMeaning(t *testing.T) {
	want := []httpapi.Field{
		{Name: "id", Type: "integer, 0 to 9", Doc: "Its number."},
		{Name: "parts", Type: "list, at most 3 of: object", Doc: "What it is made of."},
		{Name: "parts[].size", Type: "integer; required", Doc: "Its size."},
		{Name: "parts[].note", Type: "text, at most 5 bytes", Doc: "A word."},
		{Name: "named", Type: "object of: object; fields as in `parts[]`", Doc: "The same by name."},
		{Name: "hashes", Type: "list of: integer, 0 to 9223372036854775807", Doc: "Hashes."},
		{Name: "kind", Type: "`a`, `b`", Doc: "Its kind."},
		{Name: "pair", Type: "object", Doc: "Both ends."},
		{Name: "pair.low", Type: "integer", Doc: "One end."},
		{Name: "pair.high", Type: "integer; optional", Doc: "The other."},
	}
	got := httpapi.Fields([]reflect.Type{reflect.TypeFor[asked]()}, []reflect.Type{reflect.TypeFor[told]()})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	of := reflect.TypeFor[asked]()
	always, perhaps := httpapi.Needs(of, httpapi.BodySchema(of))
	if diff := cmp.Diff([][]string{{"id"}, {"parts", "named", "hashes", "kind"}}, [][]string{always, perhaps}); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
