package selection

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/routerd/routerd/internal/httpapi"
)

// fieldTable is a table of the fields of bodies and answers that have most of them in
// common.
type fieldTable struct {
	title           string
	bodies, answers []reflect.Type
}

// fieldTables have every body and answer of the table of routes in one of them.
func fieldTables() []fieldTable {
	of := func(samples ...any) (types []reflect.Type) {
		for _, s := range samples {
			types = append(types, reflect.TypeOf(s))
		}
		return types
	}
	return []fieldTable{
		{title: "Fields of a prompt and a selection", bodies: of(selectBody{}, bookBody{}, lookupBody{}, queryBody{}, queryByHashBody{})},
		{title: "Fields of a selection's answer", answers: of(selectAnswer{}, bookedAnswer{}, reservedAnswer{})},
		{title: "Fields of a reservation", bodies: of(reserveBody{}, outputBlockBody{})},
		{title: "Fields of a worker", bodies: of(workerBody{}, workerPatch{}), answers: of(workerAnswer{}, readyAnswer{})},
		{title: "Fields of loads and overlaps", answers: of(partitionLoads{}, rankLoad{}, overlapAnswer{}, queryAnswer{})},
		{title: "Other fields", bodies: of(peerBody{}), answers: of(statusAnswer{}, dumpedPartition{})},
	}
}

// tableOf is the title of the table that has a body or an answer.
func tableOf(t reflect.Type) string {
	for _, table := range fieldTables() {
		if slices.Contains(table.bodies, t) || slices.Contains(table.answers, t) {
			return table.title
		}
	}
	return ""
}

// anchor is what a title is linked by.
func anchor(title string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(title), " ", "-"), "'", "")
}

func (t fieldTable) describe(b *strings.Builder) {
	fmt.Fprintf(b, "## %s\n\n| field | type | meaning |\n|---|---|---|\n", t.title)
	for _, f := range t.fields() {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.Name, f.Type, inCode(f.Doc))
	}
	b.WriteString("\n")
}

// fields are the rows. A reservation has those of a prompt too, which stand in
// another table.
func (t fieldTable) fields() []httpapi.Field {
	rows := httpapi.Fields(t.bodies, t.answers)
	if !slices.Contains(t.bodies, reflect.TypeFor[reserveBody]()) {
		return rows
	}
	prompt := fieldTables()[0].fields()
	return slices.DeleteFunc(rows, func(f httpapi.Field) bool {
		return f.Name != "selection_id" && slices.ContainsFunc(prompt, func(p httpapi.Field) bool { return p.Name == f.Name })
	})
}

var fieldName = regexp.MustCompile(`\b[a-z]+(_[a-z]+)+\b`)

// inCode marks the names of fields in a text.
func inCode(doc string) string { return fieldName.ReplaceAllString(doc, "`$0`") }
