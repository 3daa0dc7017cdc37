package app

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/routerd/routerd/internal/httpapi"
)

// foreignToken reads the token of another service, which decides on its form, from the file
// that a key names; empty for no file.
func foreignToken(key, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// ownToken reads a token that callers must have.
func ownToken(key, file string) (string, error) {
	token, err := foreignToken(key, file)
	if err != nil || file == "" {
		return "", err
	}
	if err := httpapi.CheckToken("the token in "+strconv.Quote(file), token); err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	return token, nil
}
