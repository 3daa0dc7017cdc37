package frontend_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/frontend"
)

// answers are event streams and what a meter reads of them.
var answers = []struct {
	name, text string
	want       frontend.Reading
}{
	{"plain", "data: {\"a\":1}\n\ndata: [DONE]\n\n", frontend.Reading{Events: 1, Done: true}},
	{"no spaces, CR alone", "data:{\"a\":1}\r\rdata:[DONE]\r\r", frontend.Reading{Events: 1, Done: true}},
	{"comments and names", ": keep-alive\n\nevent: x\nid: 1\ndata: 1\nretry: 2\n\n:\n\n", frontend.Reading{Events: 1}},
	{"several data lines", "data: {\"usage\":\ndata: {\"completion_tokens\":4}}\n\n", frontend.Reading{Events: 1, Outputs: 4}},
	{"usage", "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"x\":{\"completion_tokens\":9},\"completion_tokens\":3}}\n\n", frontend.Reading{Events: 1, Inputs: 11, Outputs: 3}},
	{"usage inside text", `data: {"t":"\"usage\":{\"completion_tokens\":9}","d":{"usage":{"completion_tokens":8}}}` + "\n\n", frontend.Reading{Events: 1}},
	{"last usage counts", "data: {\"usage\":{\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"completion_tokens\":2}}\n\ndata: {\"usage\":null}\n\n", frontend.Reading{Events: 3, Outputs: 2}},
	{"error", "data: {\"error\": {\"message\":\"x\"}}\n\ndata: [DONE]\n\n", frontend.Reading{Events: 1, Done: true, Failed: true}},
	{"no error", "data: {\"error\": null ,\"x\":\"error\"}\n\n", frontend.Reading{Events: 1}},
	{"end without an empty line", "data: 1\n\ndata: [DONE]", frontend.Reading{Events: 1, Done: true}},
	{"broken JSON", "data: {\"usage\":{\"completion_tokens\":\n\ndata: }}}}]]\"\n\ndata: {\"usage\":{\"completion_tokens\":5}}\n\n", frontend.Reading{Events: 3, Outputs: 5}},
	{"data without colon", "data\n\ndatax: 1\n\n data: 1\n\n", frontend.Reading{}},
	{"long line", "data: {\"x\":\"" + strings.Repeat("y", 100<<10) + "\",\"usage\":{\"completion_tokens\":6}}\n\n", frontend.Reading{Events: 1, Outputs: 6}},
	{"usage that is no object", "data: {\"usage\":[" + strings.Repeat("1,", 4000) + "1]}\n\n", frontend.Reading{Events: 1}},
	{"empty", "", frontend.Reading{}},
}

func TestS2_AMeterDoesNotCareWhereReadsCut(t *testing.T) {
	for _, a := range answers {
		t.Run(a.name, func(t *testing.T) {
			if diff := cmp.Diff(a.want, frontend.Meter(true, []byte(a.text))); diff != "" {
				t.Errorf("whole: %s", diff)
			}
			for _, size := range []int{1, 2, 3, 7} {
				if diff := cmp.Diff(a.want, frontend.Meter(true, pieces(a.text, size)...)); diff != "" {
					t.Errorf("pieces of %d: %s", size, diff)
				}
			}
		})
	}
}

func pieces(s string, size int) (out [][]byte) {
	for len(s) > 0 {
		n := min(size, len(s))
		out = append(out, []byte(s[:n]))
		s = s[n:]
	}
	return out
}

func TestUsageOfAPlainAnswer(t *testing.T) {
	text := `{"id":"x","choices":[{"text":"a \"usage\": {"}],"usage":{"prompt_tokens": 5,"completion_tokens":7 ,"details":{"completion_tokens":1}},"z":[1]}`
	for _, size := range []int{1, 5, len(text)} {
		if diff := cmp.Diff(frontend.Reading{Inputs: 5, Outputs: 7}, frontend.Meter(false, pieces(text, size)...)); diff != "" {
			t.Errorf("pieces of %d: %s", size, diff)
		}
	}
}

func FuzzMeterReadsTheSameHoweverItIsCut(f *testing.F) {
	for _, a := range answers {
		if len(a.text) < 1<<10 {
			f.Add([]byte(a.text), uint8(3))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		for _, events := range []bool{true, false} {
			whole := frontend.Meter(events, text)
			cut := frontend.Meter(events, pieces(string(text), int(size)+1)...)
			if whole.Events != cut.Events || whole.Done != cut.Done {
				t.Errorf("%q: %+v whole, %+v cut", text, whole, cut)
			}
		}
	})
}

func TestReadingAlongDoesNotAllocate(t *testing.T) {
	text := []byte(strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n", 20))
	var m frontend.StreamMeter
	m.Begin()
	if n := testing.AllocsPerRun(100, func() { m.Feed(text) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestModelsThatAreForgottenLeaveNoSeries(t *testing.T) {
	w := start(t)
	w.join(t, "stays", answering(t, plain("{}")).url)
	w.chat(t)
	before := w.series(t)
	wk, pieces := told(t, sse)
	w.join(t, "w1", wk.url, func(r *fleet.Record) { r.Model = "other" })
	nc := w.raw(t, post(chatPath, `{"model":"other","stream":true,"messages":[]}`))
	pieces <- event("1")
	readUntil(t, nc, "data: 1\n\n")
	if err := w.core.Commit(core.Change{Removals: []fleet.WorkerID{fleet.IDFromName("w1")}}); err != nil {
		t.Fatal(err)
	}
	keys := w.core.Forget(time.Now().Add(time.Hour), time.Minute, func(fleet.PartitionKey) bool { return false })
	if len(keys) != 1 || keys[0].Model != "other" {
		t.Fatalf("forgot %v", keys)
	}
	w.series(t) // sweeps
	if n := w.metric(t, "routerd_frontend_in_flight", "other"); n != 1 {
		t.Errorf("%v in flight of what is still answered", n)
	}
	pieces <- event("[DONE]") + lastChunk
	close(pieces)
	readUntil(t, nc, "[DONE]\n\n")
	eventually(t, "no series of it", func() bool { return w.series(t) == before })
	if n := w.metric(t, "routerd_frontend_request_seconds", "m"); n != 1 {
		t.Errorf("%v requests of the model that stays", n)
	}
}
