package dns

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routerd/routerd/fleet"
)

// Kinds of records that a source asks for.
const (
	SRV  = "srv"
	A    = "a"
	AAAA = "aaaa"
)

// Bounds of the configuration.
const (
	MaxInterval   = time.Hour
	MinInterval   = time.Second
	MaxTimeout    = time.Minute
	MinTimeout    = 100 * time.Millisecond
	MaxEmptyAfter = 24 * time.Hour
)

// Config is one name whose answer is a list of workers.
type Config struct {
	Name       string        `koanf:"name" doc:"Name of the source in views and metrics, shown as dns:NAME; the host when empty."`
	Record     string        `koanf:"record" oneof:"srv a aaaa" doc:"Which records are asked for: srv gives hosts and ports, a and aaaa give addresses, to which port is added."`
	Host       string        `koanf:"host" doc:"Name to look up: for srv the whole one, _http._tcp.vllm.svc. A dot at its end keeps the search list of the system out."`
	Port       int           `koanf:"port" min:"0" max:"65535" doc:"Port of the workers for a and aaaa; with srv it is in the answer."`
	Interval   time.Duration `koanf:"interval" min:"1s" max:"1h" doc:"How often it is looked up."`
	Timeout    time.Duration `koanf:"timeout" min:"100ms" max:"1m" doc:"How long one look-up may take."`
	EmptyAfter time.Duration `koanf:"empty_after" min:"1s" max:"24h" doc:"How long the name server must say that there is nothing, twice at least, until the workers go; any other answer begins it anew."`
	Server     string        `koanf:"server" doc:"Name server, HOST:PORT; that of the system when empty. It is also asked for the addresses of the hosts that SRV records name: requests then go to the address, the smallest, IPv4 first, and names stay."`
	Template   fleet.Record  `koanf:"template" without:"id name url" doc:"What all its workers are: model, group, engine, labels and so on. In kv_events and replay the host is *, for which the worker's is put: tcp://*:5557."`
}

// DefaultConfig looks SRV records up every 10 s, for at most 5 s, and believes in
// an empty answer after 30 s.
func DefaultConfig() Config {
	return Config{Record: SRV, Interval: 10 * time.Second, Timeout: 5 * time.Second, EmptyAfter: 30 * time.Second}
}

// WithDefaults is the configuration with those of DefaultConfig for what is zero, and
// the host for a missing name: elements of a list have no defaults of their own.
func (c Config) WithDefaults() Config {
	d := DefaultConfig()
	if c.Record == "" {
		c.Record = d.Record
	}
	if c.Interval == 0 {
		c.Interval = d.Interval
	}
	if c.Timeout == 0 {
		c.Timeout = d.Timeout
	}
	if c.EmptyAfter == 0 {
		c.EmptyAfter = d.EmptyAfter
	}
	if c.Name == "" {
		c.Name = strings.TrimSuffix(c.Host, ".")
	}
	return c
}

// Validate reports the first field that is out of range as a *fleet.FieldError. It
// wants a configuration with its defaults filled.
func (c Config) Validate() error {
	if err := c.checkPlace(); err != nil {
		return err
	}
	for _, f := range []struct {
		field          string
		value, low, up time.Duration
	}{
		{"interval", c.Interval, MinInterval, MaxInterval},
		{"timeout", c.Timeout, MinTimeout, MaxTimeout},
		{"empty_after", c.EmptyAfter, MinInterval, MaxEmptyAfter},
	} {
		if f.value < f.low || f.value > f.up {
			return &fleet.FieldError{Field: f.field, Value: f.value.String(), Allowed: f.low.String() + " to " + f.up.String()}
		}
	}
	return c.checkTemplate()
}

func (c Config) checkPlace() error {
	portLow, portUp := 1, 65535
	if c.Record == SRV {
		portLow, portUp = 0, 0
	}
	switch {
	case !plain(c.Name) || len(c.Name) > fleet.MaxNameBytes:
		return &fleet.FieldError{Field: "name", Value: c.Name, Allowed: "1 to 256 letters, digits, '-', '_' and '.'"}
	case c.Record != SRV && c.Record != A && c.Record != AAAA:
		return &fleet.FieldError{Field: "record", Value: c.Record, Allowed: "srv, a, aaaa"}
	case !hostName(c.Host):
		return &fleet.FieldError{Field: "host", Value: c.Host, Allowed: "a host name of at most 253 bytes"}
	case c.Port < portLow || c.Port > portUp:
		return &fleet.FieldError{Field: "port", Value: strconv.Itoa(c.Port), Allowed: "1 to 65535 with record a or aaaa; 0 with srv, whose answers have it"}
	case c.Server != "" && !hostPort(c.Server):
		return &fleet.FieldError{Field: "server", Value: c.Server, Allowed: "HOST:PORT, an IPv6 host in brackets"}
	}
	return nil
}

// checkTemplate makes a worker by it.
func (c Config) checkTemplate() error {
	t := c.Template
	switch {
	case t.ID != 0:
		return &fleet.FieldError{Field: "template.id", Value: t.ID.String(), Allowed: "none: it follows from the worker's host and port"}
	case t.Name != "":
		return &fleet.FieldError{Field: "template.name", Value: t.Name, Allowed: "none: it is the worker's host and port"}
	case t.URL != "":
		return &fleet.FieldError{Field: "template.url", Value: t.URL, Allowed: "none: it is in the answer"}
	}
	for _, part := range []struct {
		field     string
		endpoints map[int]string
	}{{"kv_events", t.KVEvents}, {"replay", t.Replay}} {
		for _, rank := range slices.Sorted(maps.Keys(part.endpoints)) {
			e := part.endpoints[rank]
			if !strings.HasPrefix(e, anyHost) {
				return &fleet.FieldError{Field: "template." + part.field + "." + strconv.Itoa(rank), Value: e, Allowed: anyHost + "PORT: * stands for the worker's host"}
			}
		}
	}
	if _, err := c.worker(place{"localhost", "localhost", 1}); err != nil {
		if fe, ok := errors.AsType[*fleet.FieldError](err); ok {
			return &fleet.FieldError{Field: "template." + fe.Field, Value: fe.Value, Allowed: fe.Allowed}
		}
		return err
	}
	return nil
}

// plain tells whether text is one that a metric's label may hold.
func plain(text string) bool {
	for _, c := range []byte(text) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return text != ""
}

// hostName tells whether text is a name with labels of at most 63 bytes.
func hostName(text string) bool {
	name := strings.TrimSuffix(text, ".")
	if !plain(name) || len(name) > 253 {
		return false
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return true
}

func hostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err == nil || hostName(host)
}
