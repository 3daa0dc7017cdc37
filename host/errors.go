package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/plugins/abi"
)

// Steps of the load pipeline, as they are named in errors.
const (
	StepSize      = "size"
	StepDigest    = "digest"
	StepManifest  = "manifest"
	StepImports   = "imports"
	StepExports   = "exports"
	StepConfig    = "config"
	StepValidate  = "validate"
	StepCompile   = "compile"
	StepStart     = "start"
	StepConfigure = "configure"
	StepBind      = "bind"
	StepSelfTest  = "self-test"
)

// maxEngineText bounds how much of an engine's message an error repeats, in
// bytes.
const maxEngineText = 2048

// LoadError says why a module or its configuration was refused.
type LoadError struct {
	Step    string // where in the load pipeline
	Code    abi.HostCode
	Item    string // the offending item; guest text is escaped
	Allowed string // what would have been accepted; may be empty
}

// Error names step, code, item and what is allowed.
func (e *LoadError) Error() string {
	s := fmt.Sprintf("%s: %s: %s", e.Code, e.Step, e.Item)
	if e.Allowed != "" {
		s += "; allowed: " + e.Allowed
	}
	return s
}

// refuse makes a LoadError.
func refuse(step string, code abi.HostCode, item, allowed string) *LoadError {
	return &LoadError{Step: step, Code: code, Item: item, Allowed: allowed}
}

// fromMeter carries a refusal of the section walk or the rewrite over.
func fromMeter(err error) error {
	var m *meter.Error
	if !errors.As(err, &m) {
		return err
	}
	return &LoadError{Step: m.Step, Code: abi.HostCode(m.Code), Item: m.Item, Allowed: m.Allowed}
}

// clip cuts an engine's or guest's text to n bytes and escapes what is not
// printable, so that it can go into a log line or an error.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	q := strconv.Quote(strings.ToValidUTF8(s, "?"))
	q = q[1 : len(q)-1]
	q = strings.ReplaceAll(q, `\"`, `"`)
	if len(q) > n {
		q = strings.TrimRight(q[:n], `\`)
	}
	return q
}
