package archtest

// Row says what one component, a folder with all folders below it that have no row of their own,
// may import in production code.
type Row struct {
	// Component is the folder, relative to the module root.
	Component string
	// Repo lists components of this repository. A listed component brings the folders below it
	// along ("core" allows core/policy too); a component's own folders are always allowed, but
	// not a folder below it that has its own row.
	Repo []string
	// ThirdParty, when not nil, is the whole list of module path prefixes allowed outside the
	// standard library. Nil leaves that to [Libraries].
	ThirdParty []string
	// NoStd lists refused standard library packages with all below them, except those in
	// harmlessStd.
	NoStd []string
}

// anyComponent in Row.Repo allows every component.
const anyComponent = "*"

var (
	xxh3    = []string{"github.com/zeebo/xxh3"}
	pure    = []string{"github.com/zeebo/xxh3", "golang.org/x/sync"}
	none    = []string{}
	outside = []string{"net", "os", "syscall"}

	vocabulary = []string{"fleet", "kvcache", "plugins/abi"}
)

// harmlessStd are packages below a refused one that reach nothing.
var harmlessStd = map[string]bool{"net/netip": true, "net/url": true}

// Layers is the table of allowed edges, from the vocabulary up. Imports go down only, and what
// stands on one line of the design does not import its siblings.
var Layers = []Row{
	// Vocabulary.
	{Component: "fleet", ThirdParty: xxh3, NoStd: outside},
	{Component: "kvcache", ThirdParty: xxh3, NoStd: outside},
	{Component: "plugins/abi", ThirdParty: none, NoStd: outside},
	// The generator of the SDKs' tables writes files; no program imports it.
	{Component: "plugins/abi/gen", Repo: []string{"plugins/abi"}, ThirdParty: none},
	{Component: "plugins/sdk", Repo: []string{"plugins/abi"}, ThirdParty: none},
	{Component: "plugins/examples", Repo: []string{"plugins/abi", "plugins/sdk"}, ThirdParty: none},

	// State and algorithms. core and indexer never meet.
	{Component: "core", Repo: append([]string{"core/policy", "core/queue", "core/load", "core/affinity", "core/reserve", "core/lora"}, vocabulary...), ThirdParty: pure, NoStd: outside},
	{Component: "core/policy", Repo: vocabulary, ThirdParty: pure, NoStd: outside},
	{Component: "core/queue", Repo: vocabulary, ThirdParty: pure, NoStd: outside},
	{Component: "core/load", Repo: vocabulary, ThirdParty: pure, NoStd: outside},
	{Component: "core/affinity", Repo: vocabulary, ThirdParty: pure, NoStd: outside},
	{Component: "core/reserve", Repo: vocabulary, ThirdParty: pure, NoStd: outside},
	{Component: "core/lora", Repo: vocabulary, ThirdParty: pure, NoStd: outside},
	{Component: "indexer", Repo: []string{"fleet", "kvcache", "internal/cursor"}, ThirdParty: pure, NoStd: outside},
	// remote reads a primary over the network, and leaves one that is away alone for a while.
	{Component: "indexer/remote", Repo: []string{"indexer", "internal/backoff", "fleet", "kvcache"}},

	// Reading our own binary forms: what an index and a stream keep on disk.
	{Component: "internal/cursor", Repo: none, ThirdParty: none, NoStd: outside},
	// How long to wait after failures.
	{Component: "internal/backoff", Repo: none, ThirdParty: none},
	// What adapters that keep something need below them: files that survive a crash.
	{Component: "internal/durable", Repo: none, ThirdParty: none},
	// What surfaces that speak JSON need below them: the form of our own APIs, and
	// reading the few fields of a large body; prompt reads messages so.
	{Component: "internal/httpapi", Repo: append([]string{"internal/jsonscan"}, vocabulary...), ThirdParty: none},
	{Component: "internal/jsonscan", Repo: none, ThirdParty: none},
	// What tells the daemon that a file has changed.
	{Component: "internal/filewatch", Repo: none, ThirdParty: []string{"github.com/fsnotify/fsnotify"}},
	{Component: "internal/apiserver", Repo: []string{"internal/httpapi"}},

	// Adapters: they implement what is declared below them.
	{Component: "host", Repo: append([]string{"core", "internal/durable"}, vocabulary...)},
	{Component: "catalog", Repo: append([]string{"core", "internal/backoff", "internal/durable"}, vocabulary...)},
	{Component: "ingress", Repo: []string{"indexer", "internal/backoff", "internal/cursor", "fleet", "kvcache"}},
	{Component: "replica", Repo: append([]string{"core"}, vocabulary...)},
	{Component: "prompt", Repo: append([]string{"core", "internal/jsonscan"}, vocabulary...)},
	{Component: "sharedcache", Repo: append([]string{"core", "internal/backoff"}, vocabulary...)},
	{Component: "upstream", Repo: []string{"fleet"}},
	{Component: "clientwatch"},

	// Surfaces: bytes in, bytes out. They never import each other.
	{Component: "frontend", Repo: append([]string{"core", "prompt", "upstream", "clientwatch", "internal/jsonscan"}, vocabulary...)},
	{Component: "selection", Repo: append([]string{"core", "clientwatch", "internal/apiserver", "internal/httpapi", "internal/jsonscan"}, vocabulary...)},
	{Component: "epp", Repo: append([]string{"core", "prompt"}, vocabulary...)},
	{Component: "admin", Repo: append([]string{"core", "indexer", "host", "catalog", "ingress", "clientwatch", "internal/durable", "internal/apiserver", "internal/httpapi"}, vocabulary...)},
	{Component: "conformance", Repo: append([]string{"host", "core/policy"}, vocabulary...)},

	// Simulated engines share no code with what they are to prove right.
	{Component: "sim"},

	// Above everything. config knows the Config struct of each package, and what a token may be.
	{Component: "internal/config", Repo: []string{"internal/httpapi", "core", "indexer", "host", "catalog", "ingress", "replica", "prompt", "sharedcache", "upstream", "clientwatch", "frontend", "selection", "epp", "admin", "fleet", "kvcache", "plugins/abi"}},
	{Component: "internal/telemetry", Repo: []string{"fleet"}},
	{Component: "internal/app", Repo: []string{anyComponent}},
	// The demo is the whole program with simulated engines and callers of its own.
	{Component: "internal/demo", Repo: []string{anyComponent}},
	// The command line talks to a running router over its admin API, whose token it finds where
	// the configuration's defaults put it.
	{Component: "internal/cli", Repo: append([]string{"core", "internal/durable", "internal/config"}, vocabulary...)},
	{Component: "cmd", Repo: []string{anyComponent}},

	// Beside the program.
	{Component: "internal/testkit", Repo: none},
	{Component: "internal/archtest", Repo: none},
	{Component: "bench", Repo: []string{anyComponent}},
	{Component: "test/e2e", Repo: []string{anyComponent}},
}

// Library confines a third-party library (or a part of the standard library) to some components.
type Library struct {
	// Prefix of the import path.
	Prefix string
	// Only lists the components that may import it; empty when Except is used.
	Only []string
	// Except lists the components that may not.
	Except []string
	// Tests says whether test files are bound as well.
	Tests bool
	// Why is shown with a violation.
	Why string
}

// Libraries is the table of confined libraries.
var Libraries = []Library{
	{Prefix: "github.com/valyala/fasthttp", Only: []string{"frontend", "selection", "admin", "internal/apiserver", "upstream", "clientwatch", "sim", "bench", "test/e2e"}, Tests: true, Why: "its types die with the handler"},
	{Prefix: "github.com/pebbe/zmq4", Only: []string{"ingress/zmq", "sim", "bench", "test/e2e"}, Tests: true, Why: "it needs cgo, and one goroutine owns one socket"},
	{Prefix: "github.com/tetratelabs/wazero", Only: []string{"host"}, Tests: true, Why: "only the host knows the engine"},
	{Prefix: "github.com/knadh/koanf", Only: []string{"internal/config"}, Tests: true, Why: "nobody else sees keys"},
	{Prefix: "go.uber.org/fx", Only: []string{"internal/app"}, Tests: true, Why: "domain code does not know how it is wired"},
	{Prefix: "go.uber.org/dig", Only: []string{"internal/app"}, Tests: true, Why: "domain code does not know how it is wired"},
	{Prefix: "google.golang.org/grpc", Only: []string{"epp"}, Tests: true, Why: "only one surface speaks it"},
	{Prefix: "github.com/nats-io", Only: []string{"replica", "catalog"}, Tests: true, Why: "sharing state is the adapters' business"},
	{Prefix: "k8s.io", Only: []string{"catalog"}, Tests: true, Why: "only one source speaks it"},
	{Prefix: "github.com/prometheus", Except: []string{"core", "indexer", "fleet", "kvcache", "plugins"}, Tests: true, Why: "they count; who wires them publishes"},
	{Prefix: "net/http", Only: []string{"catalog", "host", "cmd", "internal/app", "internal/cli", "internal/demo", "bench", "test/e2e"}, Why: "it is for probing, OCI and the command line; the data path has its own"},
}

// refusedNames say nothing about what a package holds.
var refusedNames = map[string]bool{
	"util": true, "utils": true, "common": true, "types": true, "helper": true, "helpers": true,
	"models": true, "base": true, "shared": true, "pkg": true,
}

const (
	// maxDepth is the number of folders in a package's path.
	maxDepth = 3
	// maxSDKDepth holds for plugins/sdk/LANGUAGE/KIND: one package per language and kind.
	maxSDKDepth = 4

	maxLines     = 500
	maxTestLines = 800
)
