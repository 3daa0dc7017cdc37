package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/routerd/routerd/internal/config"
)

// Names in the environment; `serve` and `demo` ignore them.
const (
	envURL   = "ROUTERD_ADMIN_URL"
	envToken = "ROUTERD_ADMIN_TOKEN"
)

// target says which router a command works on and how it prints.
type target struct {
	adminURL, tokenFile, dataDir, output string
}

func (t *target) flags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&t.adminURL, "admin-url", "", "base URL of the admin API; else $"+envURL+", else http://"+config.DefaultConfig().Admin.Listen)
	f.StringVar(&t.tokenFile, "token-file", "", "file with the admin token; else admin.token in --data-dir, else $"+envToken+", else admin.token in the default data_dir")
	f.StringVar(&t.dataDir, "data-dir", "", "the router's data_dir, where its token is")
	f.StringVar(&t.output, "output", "table", "how to print: table or json")
}

// client finds the router and its token.
func (t *target) client() (*Client, error) {
	if t.output != "table" && t.output != "json" {
		return nil, usage("--output: %q is not allowed; allowed: table, json", t.output)
	}
	base := t.adminURL
	if base == "" {
		base = os.Getenv(envURL)
	}
	if base == "" {
		base = "http://" + config.DefaultConfig().Admin.Listen
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, usage("--admin-url or %s is not allowed; allowed: http://HOST:PORT without a user name", envURL)
	}
	token, from, err := t.token()
	if err != nil {
		return nil, err
	}
	c := NewClient(base, token)
	c.tokenFrom = from
	return c, nil
}

// token reads the token: a file that was named, the environment, the data
// folder. from says which.
func (t *target) token() (token, from string, err error) {
	file := t.tokenFile
	if file == "" && t.dataDir == "" {
		if token := os.Getenv(envToken); token != "" {
			return strings.TrimSpace(token), envToken, nil
		}
	}
	if file == "" {
		dir := t.dataDir
		if dir == "" {
			dir = config.DefaultConfig().DataDir
		}
		file = filepath.Join(dir, "admin.token")
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("read admin token: %s is missing; start the router, or give --token-file, --data-dir or %s", file, envToken)
	}
	if err != nil {
		return "", "", fmt.Errorf("read admin token: %w", err)
	}
	return strings.TrimSpace(string(b)), file, nil
}
