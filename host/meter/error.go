package meter

import "fmt"

// Codes of refusals, the subset of ABI §9 that this package gives.
const (
	CodeSize     = "E_SIZE"
	CodeParse    = "E_PARSE"
	CodeLimit    = "E_LIMIT"
	CodeImport   = "E_IMPORT"
	CodeExport   = "E_EXPORT"
	CodeManifest = "E_MANIFEST"
	CodeInitTrap = "E_INIT_TRAP" // an active segment that does not fit
)

// Steps at which a module can be refused.
const (
	StepSize    = "size"
	StepWalk    = "section walk"
	StepBodies  = "function bodies"
	StepRewrite = "fuel rewrite"
)

// maxItem is the longest Item in bytes; guest names are quoted before they are cut.
const maxItem = 200

// Error says why a module was refused. Every error of this package is an *Error.
type Error struct {
	Code    string // one of ABI §9: E_SIZE, E_PARSE, E_LIMIT, E_IMPORT, E_EXPORT, E_MANIFEST, E_INIT_TRAP
	Step    string // where in the load pipeline, e.g. "section walk"
	Item    string // the offending thing with its value, at most 200 bytes, guest text quoted
	Allowed string // what would have been accepted
}

// Error gives all four parts on one line.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s: %s; allowed: %s", e.Code, e.Step, e.Item, e.Allowed)
}

// refuse builds an Error and cuts its item.
func refuse(code, step, item, allowed string) *Error {
	if len(item) > maxItem {
		item = item[:maxItem-3] + "..."
	}
	return &Error{Code: code, Step: step, Item: item, Allowed: allowed}
}
