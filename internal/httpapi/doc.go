// Package httpapi is what routerd's own JSON APIs have in common: the one form of
// errors with its closed list of codes, bodies that are refused unless they are
// understood whole, and the description of Go types as JSON schemas and in the
// notation of the documents.
//
// Nothing here depends on an HTTP library, and nothing keeps state.
package httpapi
