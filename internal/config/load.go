package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// EnvPrefix starts the names of environment variables that set keys; levels
// are separated by two underscores: ROUTERD_FRONTEND__MAX_BODY.
const EnvPrefix = "ROUTERD_"

// Names with the prefix that belong to the command line client and are not
// keys.
var clientEnv = []string{"ROUTERD_ADMIN_URL", "ROUTERD_ADMIN_TOKEN"}

// serviceEnv are the names with the prefix that Kubernetes gives every container of a namespace in which there is a
// service named routerd: https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables.
var serviceEnv = regexp.MustCompile(`^ROUTERD_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// FileFlag is the name of the flag that names the file, where Input.Flags has
// one.
const FileFlag = "config"

// Input is where the layers of a configuration come from.
type Input struct {
	File  string         // path of a YAML file; empty for none
	Env   []string       // "NAME=value" pairs, as os.Environ gives
	Flags *pflag.FlagSet // set with AddFlags; nil for none
}

// Loaded is a checked configuration and where each of its values came from.
type Loaded struct {
	Config  Config
	sources map[string]string // path joined by sep → "routerd.yaml:3:5", "ROUTERD_…", "--flag"
}

// AddFlags adds a flag for every key that has a fixed path, named by it:
// --frontend.listen.
func AddFlags(fs *pflag.FlagSet) {
	schema().scalars(func(path []string, n *node) {
		fs.String(dotted(path), "", n.tag.Get("doc"))
	})
}

// Load reads, merges and checks the layers. A bad configuration is an *Error
// that lists every problem; a file that cannot be read is the system's error.
func Load(in Input) (*Loaded, error) {
	l := loader{root: schema(), k: koanf.New(sep), sources: map[string]string{}}
	l.fileFlag(in)
	if err := l.file(in.File); err != nil {
		return nil, err
	}
	l.env(in.Env)
	l.flags(in.Flags)
	if len(l.problems) == 0 {
		c := checker{origin: l.origin, literals: l.literals}
		c.value(nil, l.k.Raw(), l.root)
		l.problems = c.problems
	}
	if len(l.problems) > 0 {
		return nil, &Error{Problems: l.problems}
	}
	cfg := DefaultConfig()
	if err := l.decode(&cfg); err != nil {
		return nil, err
	}
	l.finish(&cfg)
	if len(l.problems) > 0 {
		return nil, &Error{Problems: l.problems}
	}
	return &Loaded{Config: cfg, sources: l.sources}, nil
}

type loader struct {
	root     *node
	k        *koanf.Koanf
	sources  map[string]string
	literals map[string]string // of the values that the file has and nothing overrides
	problems []Problem
}

// env loads the environment. An unknown name is a problem, an empty value is a
// value.
func (l *loader) env(environ []string) {
	known := l.names(func(path []string) string {
		return EnvPrefix + strings.ToUpper(strings.Join(path, "__"))
	})
	mine := make([]string, 0, len(environ))
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, EnvPrefix) || slices.Contains(clientEnv, name) {
			continue
		}
		if _, ok := known[name]; !ok {
			if serviceEnv.MatchString(name) {
				continue
			}
			if key := l.ofFile(name); key != "" {
				l.problems = append(l.problems, Problem{Source: name, Key: key, Reason: "the file alone can give it"})
				continue
			}
			l.problems = append(l.problems, unknownKey(name, name, nearest(name, keys(known))))
			continue
		}
		mine = append(mine, e)
	}
	values := map[string]any{}
	provider := env.Provider(sep, env.Opt{
		Prefix:      EnvPrefix,
		EnvironFunc: func() []string { return mine },
		TransformFunc: func(name, v string) (string, any) {
			path := strings.Join(known[name].path, sep)
			values[path] = coerce(known[name].node, v)
			l.sources[path] = name
			delete(l.literals, path)
			return path, values[path]
		},
	})
	if err := l.k.Load(provider, nil); err != nil {
		l.problems = append(l.problems, Problem{Source: "environment", Key: EnvPrefix, Reason: err.Error()})
	}
}

// ofFile is the key that a variable names which only the file can give: of a list, a mapping or what is inside; empty for none.
func (l *loader) ofFile(name string) string {
	n := l.root
	path := strings.Split(strings.ToLower(strings.TrimPrefix(name, EnvPrefix)), "__")
	for _, key := range path {
		child, ok := childOf(n, key)
		if !ok || child == nil {
			return ""
		}
		n = child
	}
	return dotted(path)
}

// flags loads the flags that were set.
func (l *loader) flags(fs *pflag.FlagSet) {
	if fs == nil {
		return
	}
	known := l.names(dotted)
	values := map[string]any{}
	fs.Visit(func(f *pflag.Flag) {
		if k, ok := known[f.Name]; ok {
			path := strings.Join(k.path, sep)
			values[path] = coerce(k.node, posflag.FlagVal(fs, f))
			l.sources[path] = "--" + f.Name
			delete(l.literals, path)
		}
	})
	if err := l.k.Load(confmap.Provider(values, sep), nil); err != nil {
		l.problems = append(l.problems, Problem{Source: "flags", Key: "flags", Reason: err.Error()})
	}
}

type named struct {
	path []string
	node *node
}

func (l *loader) names(name func(path []string) string) map[string]named {
	m := map[string]named{}
	l.root.scalars(func(path []string, n *node) { m[name(path)] = named{path, n} })
	return m
}

func keys(m map[string]named) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// coerce gives text from the environment or a flag the type that its key has
// in a file; what does not fit stays text and is refused by the check.
func coerce(n *node, v any) any {
	s, ok := v.(string)
	if !ok {
		return v
	}
	switch n.typ.Kind() {
	case reflect.Bool:
		if s == "true" || s == "false" {
			return s == "true"
		}
	case reflect.Int, reflect.Uint64:
		if u, err := strconv.ParseUint(s, 10, 64); err == nil && strconv.FormatUint(u, 10) == s {
			return u
		}
	case reflect.Int64:
		if l, err := ParseLimit(s); n.typ == reflect.TypeFor[Limit]() && err == nil && l >= 0 {
			return uint64(l)
		}
	case reflect.Float64:
		if f, err := strconv.ParseFloat(s, 64); err == nil && decimal.MatchString(s) {
			return f
		}
	default:
	}
	return s
}

// origin is the source of the value at path: its own, or that of the nearest
// enclosing key.
func (l *loader) origin(path []string) string {
	for n := len(path); n > 0; n-- {
		if s, ok := l.sources[strings.Join(path[:n], sep)]; ok {
			return s
		}
	}
	return ""
}

func (l *loader) decode(cfg *Config) error {
	hook := mapstructure.ComposeDecodeHookFunc(decodeValue)
	err := l.k.UnmarshalWithConf("", cfg, koanf.UnmarshalConf{
		DecoderConfig: &mapstructure.DecoderConfig{
			Result: cfg, TagName: "koanf", ErrorUnused: true, WeaklyTypedInput: true, DecodeHook: hook,
		},
	})
	if err != nil {
		return fmt.Errorf("decode configuration: %w", err)
	}
	return nil
}

// decodeValue turns checked raw values into the package's types.
func decodeValue(_, to reflect.Type, v any) (any, error) {
	switch to {
	case reflect.TypeFor[Duration]():
		return ParseDuration(fmt.Sprint(v))
	case reflect.TypeFor[time.Duration]():
		d, err := ParseDuration(fmt.Sprint(v))
		return d.Std(), err
	case reflect.TypeFor[Bytes]():
		return ParseBytes(fmt.Sprint(v))
	case reflect.TypeFor[Limit]():
		return ParseLimit(fmt.Sprint(v))
	case reflect.TypeFor[QueueClass]():
		return classDefaults(v), nil
	case reflect.TypeFor[fleet.WorkerID]():
		return fleet.ParseWorkerID(fmt.Sprint(v))
	case reflect.TypeFor[policy.Spec]():
		return parseSpec(v)
	default:
		return v, nil
	}
}

// finish fills what depends on other values and checks what spans several.
func (l *loader) finish(cfg *Config) {
	for name, m := range cfg.Models {
		if m.Tokenize == "" {
			m.Tokenize = DefaultModel().Tokenize
		}
		cfg.Models[name] = m
	}
	if strings.TrimSpace(cfg.DataDir) == "" || strings.ContainsRune(cfg.DataDir, 0) {
		path := []string{"data_dir"}
		l.problems = append(l.problems, badValue(l.origin(path), dotted(path), cfg.DataDir, "the path of a folder"))
	}
	l.listeners(cfg)
	if len(cfg.Plugins.Headers) == 0 {
		cfg.Plugins.Headers = nil
	}
	for i, h := range cfg.Plugins.Headers {
		if allowed := abi.HeaderRefused(cfg.Plugins.Headers, i); allowed != "" {
			path := []string{"plugins", "headers", strconv.Itoa(i)}
			l.problems = append(l.problems, badValue(l.origin(path), dotted(path), h, allowed))
		}
	}
	l.index(cfg)
	for i, r := range cfg.Workers.Static {
		rec, err := r.Normalised()
		if err == nil {
			err = rec.Located()
		}
		if err != nil {
			l.recordProblem(i, err)
			continue
		}
		cfg.Workers.Static[i] = rec
	}
	l.repeated(cfg.Workers.Static)
	l.fleet(cfg)
	l.selection(cfg)
}

// fleet fills in and checks what finds workers and watches them.
func (l *loader) fleet(cfg *Config) {
	if len(cfg.Workers.DNS) == 0 {
		cfg.Workers.DNS = nil
	}
	names := map[string]bool{}
	for i := range cfg.Workers.DNS {
		d := cfg.Workers.DNS[i].WithDefaults()
		path := []string{"workers", "dns", strconv.Itoa(i)}
		l.refusedField(path, d.Validate())
		if names[d.Name] {
			l.problems = append(l.problems, badValue(l.origin(path), dotted(path)+".name", d.Name, "a name of its own"))
		}
		names[d.Name], cfg.Workers.DNS[i] = true, d
	}
	l.refusedField([]string{"workers", "health_check"}, cfg.Workers.HealthCheck.Validate())
	l.refusedField([]string{"workers", "scrape"}, cfg.Workers.Scrape.Validate())
	l.ingress(cfg)
	l.refusedField([]string{"frontend", "breaker"}, cfg.Frontend.Breaker.Validate())
}

// repeated refuses workers that share an id, a name or an endpoint. An id that nobody
// typed is not told of: its name is.
func (l *loader) repeated(workers []fleet.Record) {
	type claim struct{ field, value string }
	first := map[claim]int{}
	for i, r := range workers {
		for _, c := range []claim{{"id", r.ID.String()}, {"name", r.Name}, {"url", r.URL}} {
			if c.value == "" || c.field == "id" && (r.ID == 0 || r.ID == fleet.IDFromName(r.Name)) {
				continue
			}
			j, taken := first[c]
			if !taken {
				first[c] = i
				continue
			}
			path := []string{"workers", "static", strconv.Itoa(i), c.field}
			l.problems = append(l.problems, badValue(l.origin(path), dotted(path), c.value,
				fmt.Sprintf("a value that workers.static[%d] does not have", j)))
		}
	}
}

func (l *loader) recordProblem(i int, err error) {
	path := []string{"workers", "static", strconv.Itoa(i)}
	p := Problem{Source: l.origin(path), Key: dotted(path), Reason: err.Error()}
	if fe, ok := errors.AsType[*fleet.FieldError](err); ok {
		p = badValue(l.origin(append(path, fe.Field)), dotted(append(path, fe.Field)), fe.Value, fe.Allowed)
	}
	l.problems = append(l.problems, p)
}

// hostName is the form of names of hosts and of the zones of addresses.
var hostName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,253}$`)

func checkAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return errors.New("HOST:PORT with a host, as in 127.0.0.1:8080")
	}
	ip, err := netip.ParseAddr(host)
	if name := ip.Zone(); err != nil && !hostName.MatchString(host) || name != "" && !hostName.MatchString(name) {
		return errors.New("a host name of letters, digits, '-', '_' and '.', or an IP address, IPv6 in brackets")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return errors.New("a port from 0 to 65535")
	}
	return nil
}

// NearestFlag is the flag of fs whose name is closest to name, "" for none that
// is close.
func NearestFlag(fs *pflag.FlagSet, name string) string {
	var known []string
	fs.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	return nearest(name, known)
}
