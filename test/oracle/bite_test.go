//go:build oracle

package oracle_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const biteFleets = 10

// TestEqualServicesAreFoundEqual drives two of Dynamo's services: the driver may
// find nothing.
func TestEqualServicesAreFoundEqual(t *testing.T) {
	p := pair{theirs: dynamo(t, "dynamo-a", 8200), ours: dynamo(t, "dynamo-b", 8201), equals: true, led: newLedger()}
	drive(t, p, amount(t, "ORACLE_FIRST", 1), amount(t, "ORACLE_EQUAL_N", biteFleets))
	if n := p.led.differences(); n > 0 {
		p.led.print(os.Stdout)
		t.Errorf("%d differences between equals", n)
	}
}

// TestPlantedDifferencesAreFound drives two of Dynamo's services, one of them behind
// a proxy that changes one thing in its answers: the driver must find it.
func TestPlantedDifferencesAreFound(t *testing.T) {
	replace := func(path, old, by string) func(*http.Response) error {
		find := regexp.MustCompile(old)
		return func(r *http.Response) error {
			if !strings.HasPrefix(r.Request.URL.Path, path) {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			body = find.ReplaceAll(body, []byte(by))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Del("Content-Length")
			return nil
		}
	}
	theirs, other := dynamo(t, "dynamo-a", 8202), dynamo(t, "dynamo-b", 8203)
	for i, plant := range []struct {
		name, found string // found is what the ledger has it under
		change      func(*http.Response) error
	}{
		{"a rank is missing from the eligible", "POST /potential_loads", replace("/potential_loads", `\[\{[^}]*\},?`, `[`)},
		{"one more block of overlap", "POST /overlap_scores", replace("/overlap_scores", `"disk_blocks":0`, `"disk_blocks":1`)},
		{"another worker is chosen", "POST /select_and_reserve, choice", replace("/select_and_reserve", `"worker_id":(\d+)`, `"worker_id":9$1`)},
		{"a load that is off by one", "GET /loads", replace("/loads", `"active_requests":[0-9]`, `"active_requests":77`)},
		{"a reservation that cannot be freed", "DELETE /reservations/{id}", func(r *http.Response) error {
			if r.Request.Method == http.MethodDelete && strings.HasPrefix(r.Request.URL.Path, "/reservations/") {
				r.StatusCode = http.StatusConflict
			}
			return nil
		}},
		{"a lifecycle word", "POST /workers", replace("/workers", `schedulable`, `ready`)},
	} {
		t.Run(plant.name, func(t *testing.T) {
			target, err := url.Parse(other.base)
			if err != nil {
				t.Fatal(err)
			}
			proxy := httputil.NewSingleHostReverseProxy(target)
			proxy.ModifyResponse = plant.change
			front := httptest.NewServer(proxy)
			defer front.Close()
			p := pair{theirs: theirs, ours: newService("planted", front.URL), equals: true, led: newLedger()}
			drive(t, p, 1+i*biteFleets, biteFleets)
			if p.led.failed[plant.found] == 0 {
				p.led.print(os.Stdout)
				t.Errorf("not found under %q", plant.found)
			}
		})
	}
}

// TestExternalStorageExcusesItsQuarterAndNoMore has a rank that holds two blocks of 6
// tokens on its device and three more in external storage.
func TestExternalStorageExcusesItsQuarterAndNoMore(t *testing.T) {
	tokens := make([]uint32, 40)
	names := prefixes(tokens, 6, "")
	for ours, excused := range map[int]bool{28: true, 23: false, 24: false, 27: false, 29: false, 40: false} {
		f := fleet{pair: pair{led: newLedger()}, block: 6, held: index{}}
		for i, name := range names[:5] {
			tier := "GPU"
			if i >= 2 {
				tier = "EXTERNAL"
			}
			f.held.at(rankKey{1, 0}, tier)[name] = true
		}
		says := func(prefill int) answer {
			return answer{status: http.StatusOK, body: []any{map[string]any{
				"worker_id": json.Number("1"), "dp_rank": json.Number("0"), "potential_decode_blocks": json.Number("7"),
				"potential_prefill_tokens": json.Number(strconv.Itoa(prefill)),
			}}}
		}
		if err := f.externalLoads(tokens, nil, says(23), says(ours)); err != nil {
			t.Fatal(err)
		}
		if got := f.led.differences() == 0 && len(f.led.exceptions) == 1; got != excused {
			t.Errorf("ours has %d tokens to prefill: excused %v", ours, got)
		}
	}
}
