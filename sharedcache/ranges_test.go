package sharedcache_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/sharedcache"
)

func TestRangesComeOutSortedDisjointAndWithinThePrompt(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		want         []kvcache.BlockRange
	}{
		{"none", `{"ranges":[]}`, nil},
		{"one", `{"ranges":[[0,3]]}`, []kvcache.BlockRange{{Start: 0, End: 3}}},
		{"white space", " {\t\"ranges\" :\r\n[ [ 0 , 3 ] , [5,6] ] } \n", []kvcache.BlockRange{{Start: 0, End: 3}, {Start: 5, End: 6}}},
		{"another order", `{"ranges":[[6,8],[0,1],[3,4]]}`, []kvcache.BlockRange{{Start: 0, End: 1}, {Start: 3, End: 4}, {Start: 6, End: 8}}},
		{"overlapping, equal and touching", `{"ranges":[[4,6],[0,2],[1,3],[0,2],[6,7],[4,5]]}`, []kvcache.BlockRange{{Start: 0, End: 3}, {Start: 4, End: 7}}},
		{"empty ranges", `{"ranges":[[3,3],[0,0],[10,10]]}`, nil},
		{"beyond the end", `{"ranges":[[8,12],[10,11],[50,60]]}`, []kvcache.BlockRange{{Start: 8, End: 10}}},
		{"beyond 32 bits", `{"ranges":[[4294967296,4294967298],[9,9999999999999999999]]}`, []kvcache.BlockRange{{Start: 9, End: 10}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := sharedcache.Decode([]byte(c.answer), 10, nil)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
		})
	}
}

func TestRangesGivenBeforeAreLeftAlone(t *testing.T) {
	given := []kvcache.BlockRange{{Start: 5, End: 9}}
	got, err := sharedcache.Decode([]byte(`{"ranges":[[3,6],[0,1]]}`), 10, given)
	want := []kvcache.BlockRange{{Start: 5, End: 9}, {Start: 0, End: 1}, {Start: 3, End: 6}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// badAnswers are not of the protocol, though some are JSON.
var badAnswers = []string{
	``, `null`, `[]`, `{}`, `"ranges"`, `{"ranges":null}`, `{"ranges":{}}`, `{"Ranges":[]}`, `{"ranges":[]`, `{"ranges":[}`,
	`{"ranges":[],"took_us":5}`, `{"took_us":5,"ranges":[]}`, `{"ranges":[],"ranges":[]}`, `{"ranges":[]} x`, `{"ranges":[]}{"ranges":[]}`,
	`{"ranges":[[0]]}`, `{"ranges":[[0,1,2]]}`, `{"ranges":[[]]}`, `{"ranges":[0,1]}`, `{"ranges":[[0,1],]}`, `{"ranges":[,[0,1]]}`, `{"ranges":[[0,1][2,3]]}`,
	`{"ranges":[[1,0]]}`, `{"ranges":[[-1,2]]}`, `{"ranges":[[0,1.0]]}`, `{"ranges":[[0,1e1]]}`, `{"ranges":[["0","1"]]}`, `{"ranges":[[00,1]]}`,
	`{"ranges":[[0,01]]}`, `{"ranges":[[0,+1]]}`, `{"ranges":[[0,18446744073709551616]]}`, `{"ranges":[[0,99999999999999999999999999]]}`,
	`{"ranges":[[0,null]]}`, `{"ranges":[[0,1]}`, `{"ranges":[[0 1]]}`, "\xef\xbb\xbf{\"ranges\":[]}", "\x00",
}

func TestAnythingElseIsABadAnswer(t *testing.T) {
	for _, answer := range badAnswers {
		if got, err := sharedcache.Decode([]byte(answer), 10, nil); err == nil || got != nil {
			t.Errorf("%q: got %v, %v", answer, got, err)
		}
	}
}

// FuzzDecode compares with encoding/json, which reads more than the protocol
// allows, and with a bit for each block.
func FuzzDecode(f *testing.F) {
	for _, answer := range badAnswers {
		f.Add([]byte(answer), uint16(10))
	}
	f.Add([]byte(`{"ranges":[[6,8],[0,1],[3,4],[7,12],[9999999999,9999999999]]}`), uint16(10))
	f.Add([]byte(` { "ranges" : [ [ 0 , 65535 ] ] } `), uint16(65535))
	f.Fuzz(func(t *testing.T, answer []byte, n uint16) {
		got, err := sharedcache.Decode(answer, uint32(n), nil)
		if err != nil {
			return
		}
		var model struct {
			Ranges [][]uint64 `json:"ranges"`
		}
		d := json.NewDecoder(bytes.NewReader(answer))
		d.DisallowUnknownFields()
		if err := d.Decode(&model); err != nil || model.Ranges == nil {
			t.Fatalf("%q: taken, but %v", answer, err)
		}
		want, have := make([]bool, n), make([]bool, n)
		for _, r := range model.Ranges {
			if len(r) != 2 || r[1] < r[0] {
				t.Fatalf("%q: taken with the range %v", answer, r)
			}
			for i := r[0]; i < min(r[1], uint64(n)); i++ {
				want[i] = true
			}
		}
		after := int64(-1)
		for _, r := range got {
			if int64(r.Start) <= after || r.End <= r.Start || r.End > uint32(n) {
				t.Fatalf("%q: %v is not sorted, disjoint and within %d", answer, got, n)
			}
			after = int64(r.End)
			for i := r.Start; i < r.End; i++ {
				have[i] = true
			}
		}
		if !cmp.Equal(want, have) {
			t.Fatalf("%q: got %v", answer, got)
		}
	})
}
