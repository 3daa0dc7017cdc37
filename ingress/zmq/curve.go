package zmq

import (
	"fmt"
	"strings"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/fleet"
)

// Curve has the keys of CURVE (ZeroMQ's encryption), each in Z85. We are its client at every socket of an engine, also
// where we bind, so that an engine must hold the secret of ServerKey. The zero value is plain ZeroMQ.
type Curve struct {
	// ServerKey is the public key of all engines.
	ServerKey string
	// SecretKey is ours; empty makes a pair, which engines take that check no client.
	SecretKey string
}

// String tells of no key.
func (c Curve) String() string {
	if !c.on() {
		return "plain"
	}
	return "CURVE"
}

// GoString tells of no key.
func (c Curve) GoString() string { return c.String() }

func (c Curve) on() bool { return c != Curve{} }

// keyForm is what CheckKey allows.
const keyForm = "a CURVE key: 40 characters of Z85, which stand for 32 bytes"

// CheckKey returns an error when text is no CURVE key. It repeats nothing of it.
func CheckKey(what, text string) error {
	if !isKey(text) {
		return fmt.Errorf("%s is not usable; allowed: %s", what, keyForm)
	}
	return nil
}

// isKey tells whether text is Z85 of 32 bytes (ZeroMQ RFC 32).
func isKey(text string) bool {
	const alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
	if len(text) != 40 {
		return false
	}
	for i := 0; i < len(text); i += 5 {
		n := uint64(0)
		for _, c := range []byte(text[i : i+5]) {
			digit := strings.IndexByte(alphabet, c)
			if digit < 0 {
				return false
			}
			n = 85*n + uint64(digit)
		}
		if n > 1<<32-1 {
			return false
		}
	}
	return true
}

// validate checks the keys, for a libzmq that has CURVE or not. Errors hold no secret.
func (c Curve) validate(has bool) error {
	switch {
	case !c.on():
		return nil
	case !isKey(c.ServerKey):
		return &fleet.FieldError{Field: "curve.server_key", Value: c.ServerKey, Allowed: keyForm}
	case c.SecretKey != "" && !isKey(c.SecretKey):
		return CheckKey("curve.secret_key", c.SecretKey)
	case !has:
		return &fleet.FieldError{Field: "curve.server_key", Value: c.ServerKey, Allowed: "none: this libzmq was built without CURVE"}
	}
	return nil
}

// keyPair is a checked Curve with both keys of ours.
type keyPair struct{ server, public, secret string }

func (c Curve) pair() (k keyPair, err error) {
	if !c.on() {
		return keyPair{}, nil
	}
	k = keyPair{server: c.ServerKey, secret: c.SecretKey}
	if k.secret == "" {
		k.public, k.secret, err = zmq4.NewCurveKeypair()
	} else {
		k.public, err = zmq4.AuthCurvePublic(k.secret)
	}
	if err != nil {
		return keyPair{}, fmt.Errorf("make CURVE keys: %w", err)
	}
	return k, nil
}

// use makes a socket the client.
func (k *keyPair) use(s *zmq4.Socket) error {
	if k.server == "" {
		return nil
	}
	for _, err := range []error{s.SetCurveServerkey(k.server), s.SetCurvePublickey(k.public), s.SetCurveSecretkey(k.secret)} {
		if err != nil {
			return fmt.Errorf("set CURVE keys: %w", err)
		}
	}
	return nil
}
