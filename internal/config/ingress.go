package config

import "github.com/routerd/routerd/ingress/zmq"

// Ingress configures the sockets over which engines tell of their caches and their load.
type Ingress struct {
	Owners           int      `koanf:"owners" reload:"restart" min:"1" max:"64" doc:"Threads that read the KV events of all ranks. One costs least; more pay off beyond some ten thousand messages a second."`
	RcvHWM           int      `koanf:"rcv_hwm" reload:"restart" min:"1" max:"10000000" doc:"KV event messages of a rank that wait to be read; further ones wait with the engine. What it drops beyond its own bound (hwm of vLLM and SGLang: 100000) is replayed where it can be."`
	MaxMessage       Bytes    `koanf:"max_message" reload:"restart" min:"1KiB" max:"64MiB" doc:"Largest KV event message. For a larger one the connection is closed and opened anew, and what was lost is replayed."`
	ReconnectIvl     Duration `koanf:"reconnect_ivl" reload:"restart" min:"1ms" max:"1h" doc:"How long to wait before connecting again to an engine that is away; doubled each time."`
	ReconnectIvlMax  Duration `koanf:"reconnect_ivl_max" reload:"restart" min:"1ms" max:"1h" doc:"Longest such wait; not below reconnect_ivl."`
	Heartbeat        Duration `koanf:"heartbeat" reload:"restart" min:"100ms" max:"1h" doc:"How often a silent connection is probed; after three probes without an answer it counts as lost. It is also how long one attempt to connect may take."`
	UnconnectedAfter Duration `koanf:"unconnected_after" reload:"restart" min:"1ms" max:"1h" doc:"How long there may be no connection for a rank's KV events before that is told."`
	ReplayTimeout    Duration `koanf:"replay_timeout" reload:"restart" min:"10ms" max:"10m" doc:"How long a replay may be silent before it counts as incomplete; a whole one may take 60 times as long."`
	ReplayRetryMin   Duration `koanf:"replay_retry_min" reload:"restart" min:"1ms" max:"1h" doc:"How long to wait before an incomplete replay is asked for again; doubled each time."`
	ReplayRetryMax   Duration `koanf:"replay_retry_max" reload:"restart" min:"1ms" max:"1h" doc:"Longest such wait; not below replay_retry_min."`
	ReplayTries      int      `koanf:"replay_tries" reload:"restart" min:"1" max:"1000" doc:"Replays in a row that may bring nothing new before what is missing is given up."`
	BufferMessages   int      `koanf:"buffer_messages" reload:"restart" min:"16" max:"16777216" doc:"Messages of a rank that are kept while its replay runs; with more, the replay counts as incomplete."`
	BufferBytes      Bytes    `koanf:"buffer_bytes" reload:"restart" min:"64KiB" max:"4GiB" doc:"The same in bytes of their payloads."`
	Curve            Curve    `koanf:"curve"`
}

// Curve has the keys for engines whose sockets are CURVE servers: those for KV events, replays and load, also where the
// router binds.
type Curve struct {
	ServerKey     string `koanf:"server_key" reload:"restart" doc:"Public key of the engines, 40 characters of Z85, the same for all; empty is plain ZeroMQ. With it nothing is taken from an engine that has not its secret key."`
	SecretKeyFile string `koanf:"secret_key_file" reload:"restart" doc:"File that holds the router's secret key, 40 characters of Z85, for engines that know their clients; empty makes a key at each start."`
}

func defaultIngress() Ingress {
	c := zmq.DefaultConfig()
	return Ingress{
		Owners: c.Owners, RcvHWM: c.RcvHWM, MaxMessage: Bytes(c.MaxMessage), Heartbeat: Duration(c.Heartbeat),
		ReconnectIvl: Duration(c.ReconnectIvl), ReconnectIvlMax: Duration(c.ReconnectIvlMax), UnconnectedAfter: Duration(c.UnconnectedAfter),
		ReplayTimeout: Duration(c.ReplayTimeout), ReplayRetryMin: Duration(c.ReplayRetryMin), ReplayRetryMax: Duration(c.ReplayRetryMax),
		ReplayTries: c.ReplayTries, BufferMessages: c.BufferMessages, BufferBytes: Bytes(c.BufferBytes),
	}
}

// Sockets is the configuration in the words of the sockets' owners, without the secret key.
func (i Ingress) Sockets() zmq.Config {
	return zmq.Config{
		Owners: i.Owners, RcvHWM: i.RcvHWM, MaxMessage: int(i.MaxMessage), Heartbeat: i.Heartbeat.Std(),
		ReconnectIvl: i.ReconnectIvl.Std(), ReconnectIvlMax: i.ReconnectIvlMax.Std(), UnconnectedAfter: i.UnconnectedAfter.Std(),
		ReplayTimeout: i.ReplayTimeout.Std(), ReplayRetryMin: i.ReplayRetryMin.Std(), ReplayRetryMax: i.ReplayRetryMax.Std(),
		ReplayTries: i.ReplayTries, BufferMessages: i.BufferMessages, BufferBytes: int(i.BufferBytes),
		Curve: zmq.Curve{ServerKey: i.Curve.ServerKey},
	}
}

// ingress checks what the sockets are given, but for the file of the secret key.
func (l *loader) ingress(cfg *Config) {
	l.refusedField([]string{"ingress"}, cfg.Ingress.Sockets().Validate())
	if c := cfg.Ingress.Curve; c.ServerKey == "" && c.SecretKeyFile != "" {
		path := []string{"ingress", "curve", "secret_key_file"}
		l.problems = append(l.problems, badValue(l.origin(path), dotted(path), c.SecretKeyFile, "a file beside ingress.curve.server_key"))
	}
}
