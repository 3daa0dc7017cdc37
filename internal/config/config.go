// Package config turns defaults, a YAML file, ROUTERD_… environment variables
// and flags (each layer over the one before) into one checked Config. It is
// the only importer of koanf: everybody else gets typed values.
//
// Unknown keys, repeated keys and values out of range are refused together, in
// one error that names for each the place, the value and what is allowed. The
// package holds no state and starts no goroutines.
//
//	cfg, err := config.Load(config.Input{File: "routerd.yaml", Env: os.Environ()})
package config

import (
	"os"
	"path/filepath"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/catalog/dns"
	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/sharedcache"
	"github.com/routerd/routerd/upstream"
)

// Config is the whole configuration of `routerd serve`. The tag reload says of
// each key whether a reload puts it in force (live) or refuses its change
// (restart); what lies below a list or a mapping goes with it.
type Config struct {
	DataDir     string                 `koanf:"data_dir" reload:"restart" doc:"Folder for modules, policies, workers, the index and the admin token. One process at a time."`
	Frontend    Frontend               `koanf:"frontend"`
	Admin       Admin                  `koanf:"admin"`
	Selection   Selection              `koanf:"selection"`
	Workers     Workers                `koanf:"workers"`
	Models      map[string]Model       `koanf:"models" reload:"live" doc:"Settings by model name."`
	Routing     Routing                `koanf:"routing"`
	Policies    map[string]policy.Spec `koanf:"policies" reload:"live" doc:"Seed policies by name, in the form of the policy API."`
	Plugins     Plugins                `koanf:"plugins"`
	Index       Index                  `koanf:"index"`
	Ingress     Ingress                `koanf:"ingress"`
	Queue       Queue                  `koanf:"queue"`
	Affinity    Affinity               `koanf:"affinity"`
	LoRA        adapters.Config        `koanf:"lora"`
	WatchConfig bool                   `koanf:"watch_config" reload:"live" doc:"Whether a change of the configuration file, or of a token file that it names, reloads by itself."`
	SharedCache SharedCache            `koanf:"shared_cache"`
	Log         Log                    `koanf:"log"`
}

// Frontend configures the OpenAI-compatible listener.
type Frontend struct {
	Listen           string                 `koanf:"listen" reload:"restart" doc:"Address, HOST:PORT."`
	MaxBody          Bytes                  `koanf:"max_body" reload:"live" min:"1KiB" max:"1GiB" doc:"Largest request body."`
	Grace            Duration               `koanf:"grace" reload:"live" max:"1h" off:"true" doc:"How long running requests may go on after SIGTERM; 0s cuts them at once."`
	ForwardedFor     string                 `koanf:"forwarded_for" reload:"live" oneof:"append replace" doc:"What happens to X-Forwarded-For: the peer is appended, or replaces it."`
	FirstByteTimeout Duration               `koanf:"first_byte_timeout" reload:"live" min:"10ms" max:"24h" off:"true" doc:"How long a worker may take to the first byte of its answer; 0s waits for ever."`
	Retries          int                    `koanf:"retries" reload:"live" min:"0" max:"10" doc:"Further attempts of one request before its first response byte."`
	HalfClose        string                 `koanf:"half_close" reload:"live" oneof:"abort ignore" doc:"Whether a client that closes its sending side has gone. A connection keeps what it was accepted under, and after a reload ends with its next answer."`
	Breaker          upstream.BreakerConfig `koanf:"breaker"`
	TrustHeaders     bool                   `koanf:"trust_headers" reload:"live" doc:"Whether x-routerd-… request headers are honoured."`
}

// Admin configures the admin API's listener.
type Admin struct {
	Listen        string `koanf:"listen" reload:"restart" doc:"Address, HOST:PORT."`
	TokenFile     string `koanf:"token_file" reload:"live" doc:"File that holds the bearer token; empty means admin.token in data_dir, made when missing. A reload reads it again, also when the key has not changed."`
	MaxBody       Bytes  `koanf:"max_body" reload:"live" min:"1KiB" max:"1GiB" doc:"Largest request body; a module is at most 8 MiB."`
	MetricsPublic bool   `koanf:"metrics_public" reload:"live" doc:"Whether /metrics is open without a token."`
}

// Workers is the file's source of the catalog.
type Workers struct {
	Static       []fleet.Record `koanf:"static" reload:"live" doc:"Workers, each as the body of the worker API."`
	DNS          []dns.Config   `koanf:"dns" reload:"restart" doc:"Names whose answers are workers."`
	Resync       Duration       `koanf:"resync" reload:"restart" min:"1s" max:"24h" doc:"How often the whole list of each source is compared, a fifth more or less, besides following its changes."`
	ForgetModels Duration       `koanf:"forget_models" reload:"live" min:"1s" max:"8760h" off:"true" doc:"How long a model is known, in each routing group, that has no worker any more and that the configuration does not name: 503 no_workers until then, 404 model_not_found from then on. 0s forgets none."`
	HealthCheck  health.Config  `koanf:"health_check"`
	Scrape       scrape.Config  `koanf:"scrape"`
}

// Model has the settings of one model name.
type Model struct {
	BlockSize int    `koanf:"block_size" reload:"live" min:"0" max:"1048576" doc:"Tokens a KV block; 0 lets the worker record or the engine decide. Another size than that of a partition with workers is refused at reload."`
	Tokenize  string `koanf:"tokenize" reload:"live" oneof:"engine text off" doc:"What prompts are known by: tokens of the worker's /tokenize (engine), approximate blocks of their text, which only an index that learns from decisions knows (text), or their length alone (off)."`
	Policy    string `koanf:"policy" reload:"live" doc:"Name of the policy for this model."`
}

// Routing says which policy a request gets: the first matching rule, else the
// model's, else the default.
type Routing struct {
	Rules   []Rule      `koanf:"rules" reload:"live" doc:"Rules, first match wins."`
	Default string      `koanf:"default" reload:"live" doc:"Policy where nothing else names one."`
	Load    RoutingLoad `koanf:"load"`
	Seed    uint64      `koanf:"seed" reload:"live" doc:"Fixes the draws between equal candidates; 0 draws at random."`
}

// Rule maps a model, a group and a class to a policy; empty matches all.
type Rule struct {
	Model  string `koanf:"model" reload:"live" doc:"Model name; empty matches all."`
	Group  string `koanf:"group" reload:"live" doc:"Routing group; empty matches all."`
	Class  string `koanf:"class" reload:"live" doc:"Class, as of the header x-routerd-class; empty matches all."`
	Policy string `koanf:"policy" reload:"live" doc:"Policy name."`
}

// Plugins bounds what guest modules may use.
type Plugins struct {
	CallDeadline Duration `koanf:"call_deadline" reload:"live" min:"1ms" max:"10s" doc:"Wall-clock bound of one call."`
	PoolWait     Duration `koanf:"pool_wait" reload:"live" max:"10s" off:"true" doc:"How long a decision waits for a free instance; 0s does not wait."`
	MemoryLimit  Bytes    `koanf:"memory_limit" reload:"live" min:"16MiB" max:"64GiB" doc:"Bound of the memory that all instances have mapped for use."`
	FuelCap      uint64   `koanf:"fuel_cap" reload:"live" min:"10000" max:"1000000000" doc:"Upper bound of the fuel of one call."`
	Headers      []string `koanf:"headers" reload:"live" doc:"Request headers that modules and canaries may see, in lower case, at most 16; credentials are refused."`
	ModuleDir    string   `koanf:"module_dir" reload:"restart" doc:"Folder whose files NAME.wasm are the modules NAME: a mounted volume or image (a ConfigMap holds at most 1 MiB, and a module of the Go SDK has about 1.9 MB); empty is off. Its files are followed while the router runs."`
	Guard        string   `koanf:"guard" reload:"live" oneof:"on off" doc:"Whether a faulting policy trips to its fallback."`
}

// Log configures the daemon's log on standard error.
type Log struct {
	Level  string `koanf:"level" reload:"live" oneof:"debug info warn error" doc:"Least level that is written."`
	Format string `koanf:"format" reload:"live" oneof:"text json" doc:"Form of a line."`
}

// DefaultConfig is the configuration of an empty file.
func DefaultConfig() Config {
	return Config{
		DataDir: defaultDataDir(),
		Frontend: Frontend{
			Listen: "127.0.0.1:8080", MaxBody: 16 << 20, Grace: Duration(30 * time.Second), ForwardedFor: "append",
			FirstByteTimeout: Duration(10 * time.Minute), Retries: 2, HalfClose: "abort", TrustHeaders: true,
			Breaker: upstream.DefaultBreakerConfig(),
		},
		Admin: Admin{Listen: "127.0.0.1:8081", MaxBody: 16 << 20},
		Workers: Workers{
			Resync: Duration(catalog.DefaultFollowConfig().Resync), ForgetModels: Duration(10 * time.Minute), HealthCheck: health.DefaultConfig(), Scrape: scrape.DefaultConfig(),
		},
		WatchConfig: true,
		Selection:   defaultSelection(),
		Routing:     Routing{Default: "default", Load: RoutingLoad{Estimator: string(load.EstimateNone)}},
		Plugins: Plugins{
			CallDeadline: Duration(10 * time.Millisecond), PoolWait: Duration(20 * time.Millisecond),
			MemoryLimit: 512 << 20, FuelCap: 10_000_000, Guard: "on",
		},
		Index: defaultIndex(), Ingress: defaultIngress(), Queue: defaultQueue(), Affinity: defaultAffinity(), LoRA: adapters.DefaultConfig(),
		SharedCache: SharedCache{Deadline: Duration(sharedcache.DefaultConfig().Deadline)},
		Log:         Log{Level: "info", Format: "text"},
	}
}

// DefaultModel is what a model has that the configuration does not name.
func DefaultModel() Model { return Model{Tokenize: "engine"} }

func defaultDataDir() string {
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "routerd")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "routerd-data"
	}
	return filepath.Join(home, ".local", "state", "routerd")
}
