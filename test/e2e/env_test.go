//go:build e2e

package e2e_test

import (
	"os"
	"slices"
	"strings"

	"github.com/routerd/routerd/internal/config"
)

// routerEnv is the environment for the program under test: without the names
// that tell the tests where things are, which the program refuses.
func routerEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, config.EnvPrefix) })
}
