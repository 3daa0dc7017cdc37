package abi

// GuestCode is what an rp_* export returns: 0 ok, 1 abstain, below 0 an error.
type GuestCode int32

// The guest codes. A guest may return other numbers below 0; they count as
// GuestInternal.
const (
	GuestOK                GuestCode = 0
	GuestAbstain           GuestCode = 1
	GuestInternal          GuestCode = -1
	GuestBadFrame          GuestCode = -2
	GuestBadConfig         GuestCode = -3
	GuestUnsupportedColumn GuestCode = -4
	GuestCapacity          GuestCode = -5
	GuestNotBound          GuestCode = -6
)

// String is the code's name.
func (c GuestCode) String() string {
	for _, row := range guestCodeTable {
		if row.Code == c {
			return row.Name
		}
	}
	if c < 0 {
		return "internal"
	}
	return "unknown"
}

// GuestCodeInfo is one row of the table of guest codes.
type GuestCodeInfo struct {
	Code    GuestCode
	Name    string
	Meaning string
}

// GuestCodes returns the table of guest codes. The caller must not change it.
func GuestCodes() []GuestCodeInfo { return guestCodeTable[:] }

var guestCodeTable = [...]GuestCodeInfo{
	{GuestOK, "ok", "the result is in the frame"},
	{GuestAbstain, "abstain", "no opinion on this request"},
	{GuestInternal, "internal", "the guest's own error"},
	{GuestBadFrame, "bad_frame", "magic, header size or counts are not what the guest understands"},
	{GuestBadConfig, "bad_config", "the config is refused"},
	{GuestUnsupportedColumn, "unsupported_column", "a column that the guest needs is absent"},
	{GuestCapacity, "capacity", "more rows than the guest can take"},
	{GuestNotBound, "not_bound", "called before rp_bind"},
}

// HostCode names why the host refused a module or did not believe a result. It
// is part of the admin API and of metrics labels.
type HostCode string

// The host codes.
const (
	ESize             HostCode = "E_SIZE"
	EDigest           HostCode = "E_DIGEST"
	ESignature        HostCode = "E_SIGNATURE"
	ECertificate      HostCode = "E_CERTIFICATE"
	EParse            HostCode = "E_PARSE"
	ELimit            HostCode = "E_LIMIT"
	EImport           HostCode = "E_IMPORT"
	EExport           HostCode = "E_EXPORT"
	EManifest         HostCode = "E_MANIFEST"
	EABI              HostCode = "E_ABI"
	ECompile          HostCode = "E_COMPILE"
	ECompileLimit     HostCode = "E_COMPILE_LIMIT"
	EInitTrap         HostCode = "E_INIT_TRAP"
	EConfigure        HostCode = "E_CONFIGURE"
	ESelftest         HostCode = "E_SELFTEST"
	ENondeterministic HostCode = "E_NONDETERMINISTIC"
	EFuel             HostCode = "E_FUEL"
	ETrap             HostCode = "E_TRAP"
	ENaN              HostCode = "E_NAN"
	EUnwritten        HostCode = "E_UNWRITTEN"
	ERange            HostCode = "E_RANGE"
	EMask             HostCode = "E_MASK"
	EPick             HostCode = "E_PICK"
	EPool             HostCode = "E_POOL"
)

// HostCodeInfo is one row of the table of host codes.
type HostCodeInfo struct {
	Code    HostCode
	Meaning string
}

// HostCodes returns the table of host codes. The caller must not change it.
func HostCodes() []HostCodeInfo { return hostCodeTable[:] }

var hostCodeTable = [...]HostCodeInfo{
	{ESize, "the module is larger than allowed"},
	{EDigest, "the bytes do not have the digest that was named"},
	{ESignature, "the signature is missing or wrong"},
	{ECertificate, "the certificate is missing, wrong or for another fuel schedule"},
	{EParse, "the bytes are no module, or use a feature that is not allowed"},
	{ELimit, "a static limit is passed"},
	{EImport, "an import does not exist, has another signature or is not in the manifest"},
	{EExport, "an export is missing, doubled, re-exported or has another signature"},
	{EManifest, "the manifest is missing, doubled or refused"},
	{EABI, "the module needs another major or a later minor version"},
	{ECompile, "the engine refused the module"},
	{ECompileLimit, "compiling took too much time or memory"},
	{EInitTrap, "start section, _initialize, rp_alloc or rp_bind trapped or used up its fuel, or an active segment does not fit"},
	{EConfigure, "rp_configure refused the config"},
	{ESelftest, "a call of the self-test failed"},
	{ENondeterministic, "the same frame gave other bits"},
	{EFuel, "fuel used up, or too little declared"},
	{ETrap, "the guest trapped"},
	{ENaN, "more than half of the kept rows have no finite score"},
	{EUnwritten, "a kept row was not written"},
	{ERange, "a score is outside score_range"},
	{EMask, "a mask byte is neither 0 nor 1"},
	{EPick, "the pick is no kept row"},
	{EPool, "the host had no room: no instance came free in time, no frame holds the candidates, or memory of all instances is used up"},
}
