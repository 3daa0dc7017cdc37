package config

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/httpapi"
)

// CheckTokens reads the files of tokens and keys that the configuration names, in the order of
// its keys, and tells what a start would refuse. It makes none: that of the admin API
// may be missing, a start makes it. No problem holds a secret.
func (l *Loaded) CheckTokens() []Problem {
	c := &l.Config
	var out []Problem
	refuse := func(key, file, why string) {
		out = append(out, Problem{Source: l.sources[strings.ReplaceAll(key, ".", sep)], Key: key, Value: file, Reason: why})
	}
	for _, t := range []struct {
		key, file string
		made      bool                          // by a start, where it is missing
		check     func(what, text string) error // nil where it is another service's, which decides on its form
		what      string
	}{
		{key: "admin.token_file", file: c.Admin.TokenFile, made: true, check: httpapi.CheckToken, what: "the token"},
		{key: "selection.token_file", file: c.Selection.TokenFile, check: httpapi.CheckToken, what: "the token"},
		{key: "index.peer_token_file", file: c.Index.PeerTokenFile},
		{key: "index.remote.token_file", file: c.Index.Remote.TokenFile},
		{key: "index.serve.token_file", file: c.Index.Serve.TokenFile, check: httpapi.CheckToken, what: "the token"},
		{key: "ingress.curve.secret_key_file", file: c.Ingress.Curve.SecretKeyFile, check: zmq.CheckKey, what: "the key"},
	} {
		if t.file == "" {
			continue
		}
		text, err := os.ReadFile(t.file)
		if t.made && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			refuse(t.key, t.file, err.Error())
			continue
		}
		if t.check == nil {
			continue
		}
		if err := t.check(t.what, strings.TrimSpace(string(text))); err != nil {
			refuse(t.key, t.file, err.Error())
		}
	}
	return out
}
