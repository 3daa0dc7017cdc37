package zmq_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/testkit"
)

// keys makes a pair, or ends the test where this libzmq has no CURVE.
func keys(t *testing.T) (public, secret string) {
	t.Helper()
	if !zmq4.HasCurve() {
		t.Fatal("libzmq has no CURVE")
	}
	public, secret, err := zmq4.NewCurveKeypair()
	must(t, err)
	return public, secret
}

// secured is a publisher whose sockets are CURVE servers. With a client's key, no other client is let in.
func secured(t *testing.T, public, secret, client string) *publisher {
	t.Helper()
	p := newPublisher(t, false)
	must(t, p.pub.Close())
	if client != "" {
		p.zap(client)
	}
	p.secure = func(s *zmq4.Socket) {
		must(t, s.SetCurveServer(1))
		must(t, s.SetCurvePublickey(public))
		must(t, s.SetCurveSecretkey(secret))
		must(t, s.SetZapDomain("engines"))
	}
	p.bind("tcp://127.0.0.1:*")
	p.serveReplays()
	return p
}

// zap answers who may connect (ZeroMQ RFC 27): the client with a public key.
func (p *publisher) zap(client string) {
	s := p.socket(zmq4.REP)
	must(p.t, s.Bind("inproc://zeromq.zap.01"))
	p.done.Go(func() {
		defer func() { _ = s.Close() }()
		for {
			select {
			case <-p.stop:
				return
			default:
			}
			q, err := s.RecvMessage(0)
			if err != nil {
				continue
			}
			code := "400"
			if len(q) == 7 && q[5] == "CURVE" && zmq4.Z85encode(q[6]) == client {
				code = "200"
			}
			if code != "200" {
				p.refused.Add(1)
			}
			_, _ = s.SendMessage("1.0", q[1], code, "", "", "")
		}
	})
}

func TestEventsOfACurvePublisherFlowUnderTheRightKeysAlone(t *testing.T) {
	public, secret := keys(t)
	ourPublic, ourSecret := keys(t)
	otherPublic, otherSecret := keys(t)
	for name, c := range map[string]struct {
		curve  zmq.Curve
		client string // whom the engine lets in; empty for all
		fault  string // empty for none
	}{
		"the right keys":        {zmq.Curve{ServerKey: public, SecretKey: ourSecret}, ourPublic, ""},
		"a key of this start's": {zmq.Curve{ServerKey: public}, "", ""},
		"another server's key":  {zmq.Curve{ServerKey: otherPublic, SecretKey: ourSecret}, "", "ingress.curve.server_key"},
		"another client's key":  {zmq.Curve{ServerKey: public, SecretKey: otherSecret}, ourPublic, "the handshake failed: the peer refuses us"},
		"no key":                {zmq.Curve{}, "", "the handshake failed: one side uses CURVE and the other does not"},
	} {
		t.Run(name, func(t *testing.T) {
			p, s, cfg := secured(t, public, secret, c.client), newSink(), quick()
			cfg.Curve = c.curve
			in := start(t, cfg)
			p.keep(0, payload(store(-1, 10)))
			must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: p.endpoint, Replay: p.replay, Sink: s}))
			if c.fault != "" {
				testkit.Until(t, "the fault is told", func() bool { return strings.Contains(status(t, in).Fault, c.fault) })
				p.send(1, payload(store(10, 11)))
				if st := status(t, in); st.State != stream.Connecting || st.Seen || s.count() != 0 {
					t.Errorf("status %+v", st)
				}
				return
			}
			p.joined()
			p.send(1, payload(store(10, 11)))
			if st := untilSeq(t, in, 1); !st.Trusted || st.Fault != "" || overlap(t, s, w1, 10, 11) != 2 {
				t.Errorf("status %+v", st)
			}
		})
	}
}

func TestWithAKeyNothingIsTakenFromAPlainPublisher(t *testing.T) {
	public, _ := keys(t)
	for _, bound := range []bool{false, true} {
		t.Run(fmt.Sprintf("bound %v", bound), func(t *testing.T) {
			p, s, cfg := newPublisher(t, true), newSink(), quick()
			cfg.Curve.ServerKey = public
			in := start(t, cfg)
			ours, theirs := freeEndpoint(t)
			src := zmq.Source{Worker: w1, Name: "w1", Endpoint: p.endpoint, Replay: p.replay, Sink: s}
			if bound {
				src.Endpoint = ours
			}
			must(t, in.Register(src))
			if bound {
				must(t, p.pub.Connect(theirs))
			}
			testkit.Until(t, "the fault is told", func() bool { return strings.Contains(status(t, in).Fault, "handshake") })
			p.send(0, payload(store(-1, 10)))
			if st := status(t, in); st.Seen || s.count() != 0 {
				t.Errorf("status %+v", st)
			}
		})
	}
}

func TestAnEngineThatConnectsIsTheCurveServer(t *testing.T) {
	public, secret := keys(t)
	p, s, cfg := secured(t, public, secret, ""), newSink(), quick()
	cfg.Curve.ServerKey = public
	in := start(t, cfg)
	ours, theirs := freeEndpoint(t)
	must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: ours, Sink: s}))
	must(t, p.pub.Connect(theirs))
	p.joined()
	p.send(0, payload(store(-1, 10)))
	untilSeq(t, in, 0)
}

func TestARefusalIsLoggedOnce(t *testing.T) {
	public, secret := keys(t)
	client, _ := keys(t)
	p, cfg, log := secured(t, public, secret, client), quick(), new(testkit.Log)
	cfg.Curve.ServerKey = public
	in, err := zmq.New(cfg, slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
	must(t, err)
	keepRunning(t, in.Run)
	must(t, in.Register(zmq.Source{Worker: w1, Name: "w1", Endpoint: p.endpoint, Sink: newSink()}))
	testkit.Until(t, "it was refused a few times", func() bool { return p.refused.Load() > 3 })
	if n := log.Count("cannot listen to KV events"); n != 1 || log.Count("worker=w1") == 0 {
		t.Errorf("told %d times:\n%s", n, log)
	}
}

func TestNoErrorAndNoTextHoldsASecretKey(t *testing.T) {
	public, secret := keys(t)
	cfg := zmq.DefaultConfig()
	cfg.Curve = zmq.Curve{ServerKey: public, SecretKey: secret}
	for _, form := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(form, cfg); strings.Contains(text, secret) {
			t.Errorf("%s: %s", form, text)
		}
	}
	cfg.Curve.SecretKey = "CANARY" + secret[6:39]
	_, err := zmq.New(cfg, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err == nil || !strings.Contains(err.Error(), "curve.secret_key is not usable; allowed: a CURVE key") || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("got %v", err)
	}
}
