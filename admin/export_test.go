package admin

// RouteRow is a row of the table as tests see it.
type RouteRow struct {
	Method, Pattern string
	Public          bool
	Doc             string
}

// Routes lists the table.
func Routes(metricsPublic bool) []RouteRow {
	var out []RouteRow
	for _, r := range routes(metricsPublic) {
		out = append(out, RouteRow{r.method, r.pattern, r.access == public, r.doc})
	}
	return out
}

// Classified is what an error becomes.
type Classified struct {
	Status  int
	Code    Code
	Message string
	Details Details
}

// Classify is classify.
func Classify(err error) Classified {
	f := classify(err)
	return Classified{f.HTTPStatus(), f.Code, f.Message, f.Details}
}
