package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/durable"
)

// tokenBytes is how many random bytes a made token has.
const tokenBytes = 32

// LoadOrMakeToken reads the bearer token from a file, without the white space
// around it. Where the file is missing it is made with a random token and mode
// 0600. Errors never hold the token.
func LoadOrMakeToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeToken(path)
	}
	if err != nil {
		return "", fmt.Errorf("read admin token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("read admin token from %s: %w", path, err)
	}
	return token, nil
}

func makeToken(path string) (string, error) {
	raw := make([]byte, tokenBytes)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make admin token: %w", err)
	}
	token := hex.EncodeToString(raw)
	if err := durable.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("make admin token: %w", err)
	}
	return token, nil
}

func checkToken(token string) error {
	bad := strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
	if bad || len(token) < minToken {
		return fmt.Errorf("the admin token is not usable; allowed: at least %d visible ASCII characters", minToken)
	}
	return nil
}

// authorised compares the request's bearer token in constant time: of digests,
// so that its length does not show either.
func (s *Server) authorised(h *fasthttp.RequestHeader) bool {
	given := h.PeekAll(fasthttp.HeaderAuthorization)
	if len(given) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(string(given[0]), " ")
	have, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(s.now.Load().Token))
	return subtle.ConstantTimeCompare(have[:], want[:]) == 1 && strings.EqualFold(scheme, "bearer")
}
