package fleet_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
)

func TestWorkerIDsAreReadFromNumbersAndText(t *testing.T) {
	for _, c := range []struct {
		in   string
		want fleet.WorkerID
		ok   bool
	}{
		{`5`, 5, true},
		{`"5"`, 5, true},
		{`18446744073709551615`, 1<<64 - 1, true},
		{`"18446744073709551615"`, 1<<64 - 1, true},
		{`18446744073709551616`, 0, false},
		{`-1`, 0, false},
		{`1.0`, 0, false},
		{`"w1"`, 0, false},
		{`true`, 0, false},
	} {
		var got fleet.WorkerID
		err := json.Unmarshal([]byte(c.in), &got)
		if (err == nil) != c.ok || got != c.want {
			t.Errorf("%s: got %v, %v", c.in, got, err)
		}
	}
}

func TestAnIDComesFromTheName(t *testing.T) {
	r, err := fleet.Record{Name: "w1", URL: "http://127.0.0.1:1"}.Normalised()
	if err != nil || r.ID != fleet.IDFromName("w1") || r.ID == 0 || r.ID >= 1<<53 {
		t.Errorf("got %v, %v", r.ID, err)
	}
	if r, err = (fleet.Record{Name: "0", URL: "http://127.0.0.1:1"}).Normalised(); err != nil || r.ID != 0 {
		t.Errorf("the worker named 0: got %v, %v", r.ID, err)
	}
	r, err = fleet.Record{ID: 7, URL: "http://127.0.0.1:1"}.Normalised()
	if err != nil || r.Name != "7" {
		t.Errorf("got name %q, %v", r.Name, err)
	}
}

// Requests add it.
func TestAWorkersURLEndsBeforeV1(t *testing.T) {
	for _, url := range []string{"http://h:1/v1", "http://h:1/v1/", "http://h:1/proxy/v1"} {
		_, err := fleet.Record{ID: 1, URL: url}.Normalised()
		var field *fleet.FieldError
		if !errors.As(err, &field) || field.Field != "url" || !strings.Contains(field.Allowed, "/v1") {
			t.Errorf("%s: got %v", url, err)
		}
	}
}

// What a source leaves unset the worker's engine may tell.
func TestAWishKeepsWhatItLeavesUnset(t *testing.T) {
	got, err := fleet.Record{ID: 1, Name: "w1", URL: "http://h:1", KVEvents: map[int]string{0: "tcp://h:1", 1: "tcp://h:2"}}.Normalised()
	if err != nil || got.Model != "" || got.Engine != "" || got.DPSize != 0 || got.Group != "default" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = got.Filled(); err != nil || got.DPSize != 2 {
		t.Errorf("filled: %+v, %v", got, err)
	}
}

func TestARecordIsFilledWithDefaults(t *testing.T) {
	got, err := fleet.Record{ID: 1, Name: "w1", URL: "HTTP://LocalHost:18000/"}.Filled()
	want := fleet.Record{ID: 1, Name: "w1", URL: "http://localhost:18000", Model: "default", Group: "default", Engine: "vllm", DPSize: 1}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	again, err := got.Normalised()
	if err != nil || !again.Equal(got) {
		t.Errorf("normalising twice changed %+v to %+v (%v)", got, again, err)
	}
}

// A record that leaves the number of its ranks open is told the same of a rank that can be none
// whether or not it is filled.
func TestARankThatCanBeNoneIsNamedAlsoWhereRanksAreCounted(t *testing.T) {
	const at = "tcp://h:1"
	for name, r := range map[string]fleet.Record{
		"kv_events=4096":        {KVEvents: map[int]string{0: at, 4096: at}},
		"kv_events=-1":          {KVEvents: map[int]string{-1: at, 5: at}},
		"kv_events=3":           {DPStart: 4, KVEvents: map[int]string{3: at, 6: at}},
		"replay=2":              {DPStart: 4, KVEvents: map[int]string{4: at}, Replay: map[int]string{2: at}},
		"dp_start=4096":         {DPStart: 4096, KVEvents: map[int]string{3: at}},
		"dp_start=-1":           {DPStart: -1},
		"replay.0=tcp://*:5557": {Replay: map[int]string{0: "tcp://*:5557"}},
	} {
		r.ID = 1
		_, wish := r.Normalised()
		_, full := r.Filled()
		a, is := errors.AsType[*fleet.FieldError](wish)
		b, are := errors.AsType[*fleet.FieldError](full)
		if !is || !are || *a != *b || name != a.Field+"="+a.Value {
			t.Errorf("%s: got %v, filled %v", name, wish, full)
		}
	}
	if r, err := (fleet.Record{ID: 1, DPStart: 4, KVEvents: map[int]string{4095: at}}).Filled(); err != nil || r.DPSize != 4092 {
		t.Errorf("got %d ranks, %v", r.DPSize, err)
	}
}

func TestARecordMayNotKnowItsURLYet(t *testing.T) {
	got, err := fleet.Record{ID: 1}.Normalised()
	if err != nil || got.URL != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	if fe, ok := errors.AsType[*fleet.FieldError](got.Located()); !ok || fe.Field != "url" {
		t.Errorf("a source that must know: got %v", got.Located())
	}
	got.URL = "http://127.0.0.1:1"
	if err := got.Located(); err != nil {
		t.Error(err)
	}
}

func TestNoRanksAreKeptAsTheSurfaceAskedForThem(t *testing.T) {
	got, err := fleet.Record{ID: 1, Asked: "{}"}.Normalised()
	if err != nil || got.DPSize != 0 || len(got.Ranks()) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	got.KVEvents = map[int]string{0: "tcp://127.0.0.1:1"}
	if _, err := got.Normalised(); err == nil {
		t.Error("an endpoint of a rank that is none was taken")
	}
}

func TestM2_IPv6AddressesStandInBrackets(t *testing.T) {
	r := fleet.Record{ID: 1, URL: "http://[::1]:8001", KVEvents: map[int]string{0: "tcp://[::1]:5601"}}
	if _, err := r.Normalised(); err != nil {
		t.Error(err)
	}
	r.KVEvents[0] = "tcp://::1:5601"
	if _, err := r.Normalised(); err == nil {
		t.Error("tcp://::1:5601 was accepted")
	}
}

func TestRecordsOutOfRangeNameTheField(t *testing.T) {
	good := func() fleet.Record { return fleet.Record{ID: 1, Name: "w", URL: "http://127.0.0.1:1"} }
	for _, c := range []struct {
		field  string
		change func(*fleet.Record)
	}{
		{"name", func(r *fleet.Record) { r.ID, r.Name = 0, "" }},
		{"name", func(r *fleet.Record) { r.Name = strings.Repeat("n", 257) }},
		{"name", func(r *fleet.Record) { r.Name = "a\nb" }},
		{"name", func(r *fleet.Record) { r.Name = "a\xffb" }},
		{"name", func(r *fleet.Record) { r.Name = "2" }},
		{"name", func(r *fleet.Record) { r.ID, r.Name = 0, "7" }},
		{"name", func(r *fleet.Record) { r.Name = "01" }},
		{"name", func(r *fleet.Record) { r.Name = "99999999999999999999999" }},
		{"name", func(r *fleet.Record) { r.Name = "a,b" }},
		{"name", func(r *fleet.Record) { r.Name = "a;rank=1" }},
		{"name", func(r *fleet.Record) { r.Name = " a" }},
		{"name", func(r *fleet.Record) { r.Name = "a\u00a0" }},
		{"url", func(r *fleet.Record) { r.URL = "127.0.0.1:8000" }},
		{"url", func(r *fleet.Record) { r.URL = "https://127.0.0.1:8000" }},
		{"url", func(r *fleet.Record) { r.URL = "http://::1:8001" }},
		{"url", func(r *fleet.Record) { r.URL = "http://127.0.0.1:0" }},
		{"url", func(r *fleet.Record) { r.URL = "http://127.0.0.1:65536" }},
		{"url", func(r *fleet.Record) { r.URL = "http://127.0.0.1:1/?x=1" }},
		{"url", func(r *fleet.Record) { r.URL = "http://user:secret@127.0.0.1:1" }},
		{"url", func(r *fleet.Record) { r.URL = "http://user:secret@127.0.0.1:1:2" }},
		{"url", func(r *fleet.Record) { r.URL = "user:secret@host" }},
		{"kv_events.0", func(r *fleet.Record) { r.KVEvents = map[int]string{0: "tcp://user:secret@127.0.0.1:1"} }},
		{"engine", func(r *fleet.Record) { r.Engine = "ollama" }},
		{"block_size", func(r *fleet.Record) { r.BlockSize = -1 }},
		{"dp_size", func(r *fleet.Record) { r.DPSize = 4097 }},
		{"dp_start", func(r *fleet.Record) { r.DPStart = 4096 }},
		{"kv_events", func(r *fleet.Record) { r.DPSize, r.KVEvents = 1, map[int]string{1: "tcp://127.0.0.1:1"} }},
		{"kv_events.0", func(r *fleet.Record) { r.KVEvents = map[int]string{0: "tcp://127.0.0.1"} }},
		{"replay.0", func(r *fleet.Record) { r.Replay = map[int]string{0: "udp://127.0.0.1:1"} }},
		{"adapters[0].name", func(r *fleet.Record) { r.Adapters = []fleet.Adapter{{}} }},
		{"adapters[1].name", func(r *fleet.Record) { r.Adapters = []fleet.Adapter{{Name: "a"}, {Name: "a"}} }},
		{"adapters[1].id", func(r *fleet.Record) { r.Adapters = []fleet.Adapter{{Name: "a", ID: 4}, {Name: "b", ID: 4}} }},
		{"taints[0]", func(r *fleet.Record) { r.Taints = []string{""} }},
		{"stable_routing_id", func(r *fleet.Record) { r.StableRoutingID = strings.Repeat("s", 257) }},
		{"topology_domains.zone", func(r *fleet.Record) { r.TopologyDomains = map[string]string{"zone": strings.Repeat("z", 257)} }},
		{"topology_domains key", func(r *fleet.Record) { r.TopologyDomains = map[string]string{"": "z"} }},
		{"asked (bytes)", func(r *fleet.Record) { r.Asked = strings.Repeat("a", fleet.MaxAsked+1) }},
		{"labels.zone", func(r *fleet.Record) { r.Labels = map[string]string{"zone": strings.Repeat("z", 257)} }},
	} {
		r := good()
		c.change(&r)
		_, err := r.Normalised()
		var fe *fleet.FieldError
		if !errors.As(err, &fe) || fe.Field != c.field {
			t.Errorf("want an error about %s, got %v", c.field, err)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error repeats a password: %v", err)
		}
	}
}

func TestNamesThatAHeaderCanHoldAreTaken(t *testing.T) {
	for _, r := range []fleet.Record{{ID: 7, Name: "7"}, {Name: "0"}, {Name: "rack/4"}, {Name: "7b"}, {Name: "-7"}, {Name: "a b"}, {Name: "größe=1"}} {
		r.URL = "http://127.0.0.1:1"
		if _, err := r.Normalised(); err != nil {
			t.Error(err)
		}
	}
}

func TestAdaptersWithoutANumberMayBeMany(t *testing.T) {
	r := fleet.Record{ID: 1, URL: "http://127.0.0.1:1", Adapters: []fleet.Adapter{{Name: "a"}, {Name: "b"}, {Name: "c", ID: 1}}}
	if _, err := r.Normalised(); err != nil {
		t.Error(err)
	}
}

func TestRanksAndPartitionOfARecord(t *testing.T) {
	r := fleet.Record{DPStart: 2, DPSize: 3, Model: "m"}
	if diff := cmp.Diff([]uint32{2, 3, 4}, r.Ranks()); diff != "" {
		t.Error(diff)
	}
	if got := r.Partition().String(); got != "m:default" {
		t.Error(got)
	}
}

func TestWorkersOrderByIDThenRank(t *testing.T) {
	a, b, c := fleet.Worker{ID: 1, Rank: 2}, fleet.Worker{ID: 2, Rank: 0}, fleet.Worker{ID: 2, Rank: 1}
	if a.Compare(b) >= 0 || b.Compare(c) >= 0 || c.Compare(c) != 0 {
		t.Error("order is wrong")
	}
	if c.String() != "2/1" {
		t.Error(c.String())
	}
}

// A field that is added to the record cannot be forgotten in Equal.
func TestEqualSeesEveryField(t *testing.T) {
	for f := range reflect.TypeFor[fleet.Record]().Fields() {
		var changed fleet.Record
		v := reflect.ValueOf(&changed).Elem().FieldByIndex(f.Index)
		switch v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int:
			v.SetInt(1)
		case reflect.Uint64:
			v.SetUint(1)
		case reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		default:
			t.Fatalf("field %s has a kind that this test does not know", f.Name)
		}
		if changed.Equal(fleet.Record{}) {
			t.Errorf("Equal does not see a change of %s", f.Name)
		}
	}
}
