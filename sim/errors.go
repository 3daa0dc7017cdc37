package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/valyala/fasthttp"
)

// The causes for which a request ends early. They never reach a client.
var (
	errClientGone = errors.New("client has gone")
	errRestart    = errors.New("engine restarted")
	errClosed     = errors.New("engine closed")
	errCut        = errors.New("connection cut on command")
)

// apiError is an error in vLLM's form: {"error": {message, type, param, code}}.
type apiError struct {
	status  int
	kind    string
	param   string
	message string
}

// Error returns the message.
func (e *apiError) Error() string { return e.message }

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{fasthttp.StatusBadRequest, "BadRequestError", param, fmt.Sprintf(format, args...)}
}

func notFound(param, format string, args ...any) *apiError {
	return &apiError{fasthttp.StatusNotFound, "NotFoundError", param, fmt.Sprintf(format, args...)}
}

func unknownModel(model, base string) *apiError {
	return notFound("model", "The model `%s` does not exist. Valid aliases: %s.", cut(model), base)
}

// errorBody is the JSON of an apiError.
func errorBody(e *apiError) []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}
	body := inner{Message: e.message, Type: e.kind, Code: e.status}
	if e.param != "" {
		body.Param = &e.param
	}
	return encodeJSON(map[string]inner{"error": body})
}

func writeError(ctx *fasthttp.RequestCtx, err error) {
	var e *apiError
	if !errors.As(err, &e) {
		e = &apiError{fasthttp.StatusInternalServerError, "InternalServerError", "", "Internal server error"}
	}
	ctx.Response.SetStatusCode(e.status)
	ctx.Response.Header.SetContentType("application/json")
	ctx.Response.SetBodyRaw(errorBody(e))
}

// writeParseError answers what fasthttp could not read as a request.
func writeParseError(ctx *fasthttp.RequestCtx, err error) {
	e := badRequest("", "The request could not be read as HTTP.")
	var small *fasthttp.ErrSmallBuffer
	var netErr net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		e = &apiError{fasthttp.StatusRequestEntityTooLarge, "BadRequestError", "", "The request body is too large."}
	case errors.As(err, &small):
		e = &apiError{fasthttp.StatusRequestHeaderFieldsTooLarge, "BadRequestError", "", "The request head is too large."}
	case errors.As(err, &netErr) && netErr.Timeout():
		e = &apiError{fasthttp.StatusRequestTimeout, "BadRequestError", "", "The request took too long to arrive."}
	}
	writeError(ctx, e)
}

// decodeError turns an error of encoding/json into a bad request that names the
// field and never repeats the body.
func decodeError(err error) *apiError {
	var typeErr *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var api *apiError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &typeErr):
		field := typeErr.Field
		for _, embedded := range []string{"generationFields.", "conversation."} {
			field = strings.TrimPrefix(field, embedded)
		}
		return badRequest(field, "Field %q: a %s is not allowed here.", field, typeErr.Value)
	case errors.As(err, &syntax):
		return badRequest("", "The body is not valid JSON (byte %d).", syntax.Offset)
	default:
		return badRequest("", "The body is not valid JSON.")
	}
}
