package abi

import (
	"slices"
	"strings"
)

// Bounds of the operator's list of request headers that modules may read.
const (
	MaxHeaders         = 16
	MaxHeaderNameBytes = 64
)

// credentialHeaders are never shown to a module, not even as an id.
var credentialHeaders = []string{
	"authorization", "proxy-authorization", "authentication-info", "proxy-authentication-info", "cookie", "set-cookie",
	"api-key", "x-api-key", "x-goog-api-key", "x-amz-security-token", "x-auth-token", "x-access-token", "x-csrf-token",
}

// IsCredentialHeader tells whether the header called name, in lower case, is
// never shown to a module.
func IsCredentialHeader(name string) bool { return slices.Contains(credentialHeaders, name) }

// HeaderRefused tells whether the header at i of an operator's list must not be
// on it, and what would be allowed; empty when it may be. Names are in lower
// case; headers of the router's own have request fields of their own.
func HeaderRefused(list []string, i int) (allowed string) {
	name := list[i]
	switch {
	case i >= MaxHeaders:
		return "at most 16 names"
	case !IsHeaderName(name) || len(name) > MaxHeaderNameBytes:
		return "a header's name in lower case, up to 64 bytes"
	case IsCredentialHeader(name):
		return "headers that carry no credential"
	case strings.HasPrefix(name, "x-routerd-"):
		return "no x-routerd-… header: those have inputs of their own"
	case slices.Contains(list[:i], name):
		return "each name once"
	}
	return ""
}
