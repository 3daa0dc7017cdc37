package health

import (
	"strconv"
	"strings"
	"time"
)

// The words that reasons begin with; doc.go says what they mean.
const (
	wordStarting    = "starting"
	wordTimeout     = "health_timeout"
	wordRefused     = "health_refused"
	wordUnreachable = "health_unreachable"
	wordBroken      = "health_broken"
	wordStatus      = "health_status"
	wordOutlier     = "outlier"
	wordBreaker     = "breaker_open"
	wordKept        = "health"
)

// maxDetail bounds what somebody else's words add to a reason, in bytes.
const maxDetail = 120

// result is what came of a probe.
type result uint8

const (
	resultSuccess result = iota
	resultTimeout
	resultRefused
	resultUnreachable
	resultBroken
	resultStatus
	results // how many there are
)

// String is the result's name in metrics.
func (r result) String() string {
	return [results]string{"success", "timeout", "refused", "unreachable", "broken", "status"}[r]
}

// answer is a result with the status of an answer that was none of 2xx.
type answer struct {
	result result
	status int
}

// reason says in stable words why the probe was no success.
func (a answer) reason(r *Config) string {
	switch a.result {
	case resultTimeout:
		return wordTimeout + ": no answer within " + short(r.Timeout)
	case resultRefused:
		return wordRefused
	case resultUnreachable:
		return wordUnreachable
	case resultBroken:
		return wordBroken
	case resultStatus:
		return wordStatus + ": " + strconv.Itoa(a.status) + " from " + r.Path
	}
	return ""
}

// worded is a word, and a detail where there is one; a reason that has a detail
// already gets another.
func worded(word, detail string) string {
	detail = strings.ToValidUTF8(strings.Join(strings.Fields(detail), " "), "")
	if detail == "" {
		return word
	}
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "") + "…"
	}
	if strings.Contains(word, ": ") {
		return word + ", " + detail
	}
	return word + ": " + detail
}

// kept is the reason of a worker that is unfit and stays in rotation.
func kept(reason string) string { return wordKept + ": " + reason + " (kept: max_ejected)" }

// wordOf is the stable part of a reason.
func wordOf(reason string) string {
	word, _, _ := strings.Cut(reason, ":")
	return word
}

// short writes a time without the zeroes at its end: 10m, 1h30m, 2s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
