package admin

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/durable"
	"github.com/routerd/routerd/internal/httpapi"
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

func checkToken(token string) error { return httpapi.CheckToken("the admin token", token) }

// authorised tells whether the request has the token.
func (s *Server) authorised(h *fasthttp.RequestHeader) bool {
	return httpapi.BearerIs(h.PeekAll(fasthttp.HeaderAuthorization), s.now.Load().Token)
}
