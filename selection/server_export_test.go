package selection

import (
	"regexp"
	"time"

	"github.com/routerd/routerd/internal/apiserver"
)

// RouteInfo is a row of the table.
type RouteInfo struct {
	Method, Pattern string
	Public, Body    bool
	Good            []int
}

// Routes is the table.
func Routes() []RouteInfo {
	var all []RouteInfo
	for _, r := range routes() {
		all = append(all, RouteInfo{r.method, r.pattern, r.public, r.body == jsonBody, r.status})
	}
	return all
}

var parameter = regexp.MustCompile(`\{[a-z]+\}`)

// Path is a path that the row stands for.
func (r RouteInfo) Path() string { return parameter.ReplaceAllString(r.Pattern, "1") }

// SetReadTimeout says how long a request may take to arrive whole, before Serve.
func (s *Server) SetReadTimeout(d time.Duration) { s.server = apiserver.New(s.api(d)) }

// Classify is the answer to an error, as status and body.
func Classify(err error) (status int, body string, retryAfter time.Duration) {
	f := classify(err)
	return f.HTTPStatus(), string(f.Body()), f.RetryAfter
}
