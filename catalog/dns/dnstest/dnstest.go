// Package dnstest is a name server on loopback for tests: what it holds, and how it
// fails, is what the test says. It belongs to one test and ends with it.
package dnstest

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Server is a name server, over UDP and TCP. It is safe for concurrent use.
type Server struct {
	// Address is where it listens, HOST:PORT.
	Address string
	// Asked holds one when a question has come.
	Asked chan struct{}

	t testing.TB

	mu        sync.Mutex // guards the fields below
	code      dnsmessage.RCode
	silent    bool
	resources map[dnsmessage.Question][]dnsmessage.ResourceBody
	tcp       int // questions that came over TCP
}

// Serve starts a server that knows no name.
func Serve(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, Asked: make(chan struct{}, 1), resources: map[dnsmessage.Question][]dnsmessage.ResourceBody{}}
	packets, streams := Listen(t)
	s.Address = packets.LocalAddr().String()
	var all sync.WaitGroup
	all.Go(func() { s.overUDP(packets) })
	all.Go(func() { s.overTCP(streams) })
	t.Cleanup(func() {
		_, _ = packets.Close(), streams.Close()
		all.Wait()
	})
	return s
}

// Listen finds a port that is free for UDP and TCP.
func Listen(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if streams, err := net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, streams
		}
		_ = packets.Close()
	}
}

func (s *Server) overUDP(c net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		answer := s.answer(buf[:n], false)
		if len(answer) > 1232 {
			answer = s.answer(buf[:n], true)
		}
		if answer != nil {
			_, _ = c.WriteTo(answer, from)
		}
	}
}

func (s *Server) overTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.tcp++
		s.mu.Unlock()
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err == nil {
			question := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(c, question); err == nil {
				answer := s.answer(question, false)
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
			}
		}
		_ = c.Close()
	}
}

// answer answers a question; cut leaves the records out and says so.
func (s *Server) answer(packet []byte, cut bool) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var asked dnsmessage.Message
	if err := asked.Unpack(packet); err != nil || len(asked.Questions) != 1 {
		s.t.Errorf("not a question: %v", err)
		return nil
	}
	select {
	case s.Asked <- struct{}{}:
	default: // nobody looks
	}
	if s.silent {
		return nil
	}
	q := asked.Questions[0]
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: asked.ID, Response: true, Authoritative: true, RecursionAvailable: true, RCode: s.code, Truncated: cut},
		Questions: asked.Questions,
	}
	bodies, known := s.resources[q]
	if s.code == dnsmessage.RCodeSuccess && !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	if m.RCode == dnsmessage.RCodeSuccess && !cut {
		for _, b := range bodies {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: b})
		}
	}
	out, err := m.Pack()
	if err != nil {
		s.t.Error(err)
	}
	return out
}

// Holds makes these all records of the kind that the name has; a name without any
// of a kind that was set is there without records.
func (s *Server) Holds(name string, kind dnsmessage.Type, bodies ...dnsmessage.ResourceBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources[dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}] = bodies
}

// OverTCP is how many questions have come over TCP.
func (s *Server) OverTCP() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tcp
}

// Fails has the server answer with a code from now on, or not at all.
func (s *Server) Fails(code dnsmessage.RCode, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.silent = code, silent
}

// SRV is an SRV record; the target is a whole name, with the dot at its end.
func SRV(target string, port uint16) dnsmessage.ResourceBody {
	return &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(target), Port: port}
}

// Addr is the A or AAAA record of an address.
func Addr(text string) dnsmessage.ResourceBody {
	a := netip.MustParseAddr(text)
	if a.Is4() {
		return &dnsmessage.AResource{A: a.As4()}
	}
	return &dnsmessage.AAAAResource{AAAA: a.As16()}
}
