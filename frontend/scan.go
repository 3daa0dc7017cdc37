package frontend

import (
	"errors"
	"math"
	"strconv"

	"github.com/routerd/routerd/internal/jsonscan"
	"github.com/routerd/routerd/prompt"
)

// bodyError refuses a request body. Its text may be shown: it holds the names
// of fields, never their values.
type bodyError struct {
	param   string // the field, empty for the body as a whole
	problem string
}

// Error is what is wrong and, if a field is wrong, which one.
func (e *bodyError) Error() string { return e.problem }

// scan is what the router reads of a body. Its slices belong to the body.
type scan struct {
	model       string
	prompt      []byte // raw value of prompt or messages; nil without
	inputs      []prompt.Field
	salt        string
	maxTokens   int
	temperature float64
	streaming   bool
}

// The routing fields beside those of prompt.Fields.
const (
	fieldModel = iota
	fieldStream
	fieldMaxTokens
	fieldMaxCompletionTokens
	fieldTemperature
	fieldSalt
	ownFields
)

// fieldIndex numbers the routing fields, those of prompt.Fields last. It is
// written out because it is asked for each key of each body.
func fieldIndex(key []byte) (int, bool) {
	switch string(key) {
	case "model":
		return fieldModel, true
	case "stream":
		return fieldStream, true
	case "max_tokens":
		return fieldMaxTokens, true
	case "max_completion_tokens":
		return fieldMaxCompletionTokens, true
	case "temperature":
		return fieldTemperature, true
	case "cache_salt":
		return fieldSalt, true
	}
	return 0, false
}

// scanner scans bodies of one route. It is immutable.
type scanner struct {
	route   prompt.Route
	names   []string       // of prompt.Fields
	indexes map[string]int // of names
	skip    string         // the prompt of the other route
}

func newScanner(route prompt.Route) *scanner {
	sc := &scanner{route: route, names: prompt.Fields(), indexes: map[string]int{}, skip: "prompt"}
	if route == prompt.Completions {
		sc.skip = "messages"
	}
	for i, n := range sc.names {
		sc.indexes[n] = ownFields + i
	}
	return sc
}

// scan reads a body once, checks that it is one JSON object, and keeps where
// the routing fields are. Errors are *bodyError.
func (sc *scanner) scan(body []byte, out *scan) error {
	*out = scan{inputs: out.inputs[:0]}
	var values [ownFields + 16][]byte // prompt.Fields has ten
	r := jsonscan.Reader{Data: body}
	err := r.Members(func(key, value []byte) error {
		i, ok := fieldIndex(key)
		if !ok {
			if i, ok = sc.indexes[string(key)]; !ok {
				return nil
			}
		}
		if values[i] != nil {
			return &bodyError{param: string(key), problem: "the key " + strconv.Quote(string(key)) + " occurs more than once; each may occur once"}
		}
		values[i] = value
		return nil
	})
	if refused, ok := errors.AsType[*bodyError](err); ok {
		return refused
	}
	if err != nil {
		return &bodyError{problem: "the request body is " + err.Error() + "; a JSON object is expected"}
	}
	if out.model, err = modelOf(values[fieldModel]); err != nil {
		return err
	}
	sc.fill(out, values[:])
	return nil
}

// modelOf reads the model, which every request must name.
func modelOf(raw []byte) (string, error) {
	problem := "model must be a string that names a model"
	switch {
	case raw == nil:
		problem = "you must provide a model: the field model is missing"
	case raw[0] == '"':
		if name := jsonscan.Unquote(raw); len(name) > 0 {
			return string(name), nil
		}
		problem = "model is empty; " + problem
	}
	return "", &bodyError{param: "model", problem: problem}
}

// fill reads the fields that may be wrong: what cannot be read counts as
// absent, and the worker, which gets the same bytes, judges it.
func (sc *scanner) fill(out *scan, values [][]byte) {
	out.streaming = string(values[fieldStream]) == "true"
	out.maxTokens = countOf(values[fieldMaxCompletionTokens])
	if out.maxTokens == 0 {
		out.maxTokens = countOf(values[fieldMaxTokens])
	}
	if v := values[fieldTemperature]; v != nil {
		if f, err := strconv.ParseFloat(string(v), 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			out.temperature = f
		}
	}
	if v := values[fieldSalt]; len(v) > 0 && v[0] == '"' {
		out.salt = string(jsonscan.Unquote(v))
	}
	for i, name := range sc.names {
		v := values[ownFields+i]
		if v == nil || name == sc.skip {
			continue
		}
		if name == "prompt" || name == "messages" {
			out.prompt = v
		}
		out.inputs = append(out.inputs, prompt.Field{Name: name, Value: v})
	}
}

// countOf reads a number of tokens, 0 for anything else.
func countOf(raw []byte) int {
	if len(raw) == 0 {
		return 0
	}
	n, err := strconv.ParseUint(string(raw), 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}
