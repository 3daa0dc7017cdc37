package selection_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/selection"
)

func TestNoRouteButHealthAnswersWithoutTheToken(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{config: func(c *selection.Config) { c.Token = token }})
	wrong := []string{"", "Bearer", "Bearer ", "Bearer wrong", token, "Basic " + token, "Bearer " + token + "x", "Bearer " + token[:len(token)-1], "Bearer x " + token}
	for _, r := range selection.Routes() {
		if r.Public != (r.Pattern == "/health") {
			t.Errorf("%s: public is %t", r.Pattern, r.Public)
		}
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"} {
			open := r.Public && (method == "GET" || method == "HEAD")
			for _, authorization := range wrong {
				a := s.do(t, method, r.Path(), "", "Authorization", authorization)
				if open != (a.status == 200) || !open && a.status != 401 && !r.Public {
					t.Errorf("%s %s with %q: got %d %s", method, r.Pattern, authorization, a.status, a.body)
				}
				if a.status == 401 && !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") {
					t.Errorf("%s %s: no WWW-Authenticate", method, r.Pattern)
				}
			}
		}
	}
	s.do(t, "GET", "/none", "").refused(t, 401, "bearer token")
	s.raw(t, "GET /workers HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nAuthorization: Bearer "+token+"\r\n\r\n").refused(t, 401, "bearer token")
	s.do(t, "GET", "/workers", "", "Authorization", "bearer "+token).want(t, 200)
}

func TestRow_UnknownRouteAndWrongMethod(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	takes := map[string][]string{}
	for _, r := range selection.Routes() {
		takes[r.Pattern] = append(takes[r.Pattern], r.Method)
	}
	for _, r := range selection.Routes() {
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"} {
			a := s.do(t, method, r.Path(), "")
			known := false
			for _, m := range takes[r.Pattern] {
				known = known || m == method || m == "GET" && method == "HEAD"
			}
			if known {
				if a.status == 404 && strings.Contains(string(a.body), "route not found") || a.status == 405 {
					t.Errorf("%s %s: got %d %s", method, r.Pattern, a.status, a.body)
				}
				continue
			}
			if method == "HEAD" {
				a.want(t, 405)
			} else {
				a.refused(t, 405, "method not allowed")
			}
			if got, want := a.header.Get("Allow"), strings.Join(takes[r.Pattern], ", "); got != want {
				t.Errorf("%s %s: Allow %q, want %q", method, r.Pattern, got, want)
			}
		}
	}
	for _, path := range []string{"/", "/nope", "/select/", "//select", "/x/../select", "/workers/1/2", "/Select", "/reservations/a/b", "/workers/%zz"} {
		if a := s.raw(t, request("GET", path, "")); path != "/workers/%zz" || a.status != 400 {
			a.refused(t, 404, "route not found")
		}
	}
}

func TestAnIdentifierIsPercentDecoded(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	s.post(t, "/select_and_reserve", `{"selection_id":"a/b c?é","token_ids":[1]}`).want(t, 200)
	s.raw(t, request("POST", "/reservations/a%2Fb%20c%3F%c3%a9/prefill_complete", "")).want(t, 200)
	s.raw(t, request("DELETE", "/reservations/a/b", "")).refused(t, 404, "route not found")
	s.raw(t, request("DELETE", "http://elsewhere.test/reservations/a%2Fb%20c%3F%C3%A9", "")).want(t, 200)
}

func TestHeadIsGetWithoutItsBody(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	get, head := s.do(t, "GET", "/health", ""), s.do(t, "HEAD", "/health", "")
	if head.status != 200 || len(head.body) != 0 || head.header.Get("Content-Length") != get.header.Get("Content-Length") {
		t.Errorf("got %+v", head)
	}
}

func TestQueriesAreTakenWhole(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	s.do(t, "GET", "/workers?model_name=x&routing_group=y", "").want(t, 200)
	s.do(t, "GET", "/workers?model=x", "").refused(t, 400, "model_name, routing_group")
	s.do(t, "GET", "/workers?model_name=x&model_name=y", "").refused(t, 400, "given twice")
	s.do(t, "GET", "/health?x=1", "").refused(t, 400, "no parameters")
}

func TestRow_BodyTooLarge(t *testing.T) {
	w := two(t, options{})
	s, hurried := newSite(t, w, siteOptions{}), newSite(t, w, siteOptions{patience: 200 * time.Millisecond})
	const mebi = 1 << 20
	announced := fmt.Sprintf("POST /select HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", 9*mebi)
	s.raw(t, announced+"\r\n").refused(t, 413, "8388608 bytes")
	s.raw(t, announced+"Expect: 100-continue\r\n\r\n").refused(t, 413, "8388608 bytes")
	s.raw(t, announced+"\r\n", strings.Repeat("x", 9*mebi)).refused(t, 413, "8388608 bytes")
	chunked := "POST /select HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	piece := fmt.Sprintf("%x\r\n%s\r\n", mebi, strings.Repeat(" ", mebi))
	s.raw(t, chunked, strings.Repeat(piece, 9), "0\r\n\r\n").refused(t, 413, "too large")
	body := `{"token_ids":[1]}`
	s.raw(t, chunked, fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)).want(t, 200)
	// Within the limit, but it never comes.
	hurried.raw(t, fmt.Sprintf("POST /select HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n{", mebi)).refused(t, 408, "in time")
}

func TestABodyOfACallerWithoutTokenIsNotRead(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{config: func(c *selection.Config) { c.Token = token }})
	for _, framing := range []string{"Content-Length: 2", "Content-Length: 7000000", "Transfer-Encoding: chunked"} {
		s.raw(t, "POST /select HTTP/1.1\r\nHost: a\r\n"+framing+"\r\n\r\n").refused(t, 401, "bearer token")
	}
}

func TestABodyIsDeclaredToBeJSON(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	for kind, status := range map[string]int{
		"application/json": 200, "application/json; charset=utf-8": 200, "Application/JSON": 200, "application/vnd.x+json": 200,
		"": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415, "application/jsonx": 415, "text/json": 415,
	} {
		head := fmt.Sprintf("POST /select HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n", len(aBooking))
		if kind != "" {
			head += "Content-Type: " + kind + "\r\n"
		}
		a := s.raw(t, head+"\r\n"+aBooking).want(t, status)
		if status == 415 {
			a.refused(t, 415, "application/json")
		}
	}
	s.raw(t, "POST /select HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").want(t, 400) // nothing to declare
	s.raw(t, "POST /reservations/none/prefill_complete HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").want(t, 404)
}

func TestABodyWhereNoneBelongsIsRefused(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	s.do(t, "DELETE", "/reservations/x", "{}").refused(t, 400, "takes none")
	s.do(t, "GET", "/loads", "{}").refused(t, 400, "takes none")
	s.do(t, "POST", "/nope", "{}").refused(t, 404, "route not found")
}

func TestH1_TwoFramingsAreRefusedAndEndTheConnection(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	body := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(aBooking), aBooking)
	for _, framing := range []string{
		"Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\ncontent-length: 5", "Transfer-Encoding: chunked\r\nContent-Length: 0",
	} {
		c := s.dial(t)
		if _, err := io.WriteString(c, "POST /select_and_reserve HTTP/1.1\r\nHost: a\r\n"+framing+"\r\n\r\n"+body+request("GET", "/health", "")); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if n := strings.Count(string(got), "HTTP/1.1 "); n != 1 || err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 400 ") {
			t.Errorf("%q: %d answers (%v): %s", framing, n, err, got)
		}
	}
	if live := s.core.Stats().Reservations; live != 0 {
		t.Errorf("%d bookings", live)
	}
}

func TestMalformedHTTPGetsTheErrorForm(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"no HTTP":     {"nonsense\r\n\r\n", 400},
		"bad header":  {"GET / HTTP/1.1\r\nHost: a\r\nno colon here\r\n\r\n", 400},
		"two lengths": {"POST /select HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
		"bad length":  {"POST /select HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400},
		"bad chunk":   {"POST /select HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		"large head":  {"GET /" + strings.Repeat("x", 40<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n", 431},
	} {
		t.Run(name, func(t *testing.T) { s.raw(t, c.request).refused(t, c.status, "message") })
	}
}

func TestPipelinedRequestsAreAnsweredInTurn(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	c := s.dial(t)
	var all strings.Builder
	const n = 20
	for i := range n {
		all.WriteString(request("POST", "/select", fmt.Sprintf(`{"selection_id":"p%d","token_ids":[1,2,3,4]}`, i)))
	}
	if _, err := io.WriteString(c, all.String()); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	for i := range n {
		if got, want := next(t, r, http.MethodPost).want(t, 200).at(t, "selection_id"), fmt.Sprint("p", i); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAClientMayAskBeforeItSends(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	c := s.dial(t)
	if _, err := io.WriteString(c, fmt.Sprintf("POST /select HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(aBooking))); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
		t.Fatalf("got %q, %v", line, err)
	}
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, aBooking); err != nil {
		t.Fatal(err)
	}
	next(t, r, http.MethodPost).want(t, 200)
}

func TestCallsAreCounted(t *testing.T) {
	s := newSite(t, two(t, options{}), siteOptions{})
	s.post(t, "/select", aBooking).want(t, 200)
	s.post(t, "/select", `{`).want(t, 400)
	s.do(t, "GET", "/nope", "").want(t, 404)
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if v := m.GetCounter().GetValue(); v > 0 {
				got[strings.Join(labels, " ")] = v
			} else if n := m.GetHistogram().GetSampleCount(); n > 0 {
				got["time of "+strings.Join(labels, " ")] = float64(n)
			}
		}
	}
	for name, want := range map[string]float64{"POST /select 200": 1, "POST /select 400": 1, "none 404": 1, "time of POST /select": 2} {
		if got[name] != want {
			t.Errorf("%s: got %v, want %v (%v)", name, got[name], want, got)
		}
	}
}
