package admin

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/internal/httpapi"
)

// maxReason bounds why a change is made, in characters.
const maxReason = 256

// because checks why a change is made, as the item of the request says; empty
// is not said.
func because(item, reason string) (host.Because, error) {
	const allowed = "at most 256 printable characters"
	switch n := utf8.RuneCountInString(reason); {
	case n > maxReason:
		return "", httpapi.Invalid(item, fmt.Sprintf("%q has %d characters", httpapi.Clip(reason), n), allowed)
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", httpapi.Invalid(item, fmt.Sprintf("%q is not printable", httpapi.Clip(reason)), allowed)
	}
	return host.Because(reason), nil
}

// because is why the change is made that the query parameter reason tells.
func (x *exchange) because() (host.Because, error) {
	return because("query parameter reason", x.query.Get("reason"))
}

// codeTripped warns of a revision that has tripped before.
const codeTripped = "tripped_before"

// trippedBefore warns when a revision that is to decide has tripped before, as
// far as the kept history goes.
func trippedBefore(p *host.PolicyInfo, revision int) []policy.Warning {
	trip, ok := p.LastTrip(revision)
	if !ok {
		return nil
	}
	return []policy.Warning{{Code: codeTripped, Message: fmt.Sprintf(
		"revision %d tripped at %s: %s; it gets another chance, and trips again if it still faults", revision, trip.At.Format(time.RFC3339), trip.Why,
	)}}
}
