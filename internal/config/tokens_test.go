package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTokenFilesAreCheckedWithoutMakingOne(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, short, empty, away := file("good", "0123456789abcdef\n"), file("short", "secret-words\n"), file("empty", "\n"), filepath.Join(dir, "away")
	const z85 = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7" // of libzmq's manual
	key := file("key", "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs\n")
	for name, c := range map[string]struct{ text, want string }{
		"none":                            {"", ""},
		"right ones":                      {"admin: {token_file: '" + good + "'}\nselection: {token_file: '" + good + "'}\nindex: {peer_token_file: '" + good + "'}", ""},
		"admin's, which a start makes":    {"admin: {token_file: '" + away + "'}", ""},
		"a peer's, of whatever form":      {"index: {peer_token_file: '" + short + "'}", ""},
		"the service's, which is away":    {"selection: {token_file: '" + away + "'}", "selection.token_file: open " + away + ": no such file or directory"},
		"a peer's, which is away":         {"index: {peer_token_file: '" + away + "'}", "index.peer_token_file: open " + away + ": no such file or directory"},
		"the index's, which is short":     {"index: {serve: {token_file: '" + short + "'}}", "index.serve.token_file: the token is not usable; allowed: at least 16 visible ASCII characters"},
		"a primary's, which is away":      {"index: {remote: {token_file: '" + away + "'}}", "index.remote.token_file: open " + away + ": no such file or directory"},
		"a primary's, of whatever form":   {"index: {remote: {token_file: '" + short + "'}}", ""},
		"the service's, which is short":   {"selection: {token_file: '" + short + "'}", "selection.token_file: the token is not usable; allowed: at least 16 visible ASCII characters"},
		"the service's, with no token":    {"selection: {token_file: '" + empty + "'}", "selection.token_file: the token is not usable; allowed: at least 16 visible ASCII characters"},
		"a secret key":                    {"ingress: {curve: {server_key: '" + z85 + "', secret_key_file: '" + key + "'}}", ""},
		"a secret key that is none":       {"ingress: {curve: {server_key: '" + z85 + "', secret_key_file: '" + short + "'}}", "ingress.curve.secret_key_file: the key is not usable; allowed: a CURVE key: 40 characters of Z85, which stand for 32 bytes"},
		"a secret key, which is away":     {"ingress: {curve: {server_key: '" + z85 + "', secret_key_file: '" + away + "'}}", "ingress.curve.secret_key_file: open " + away + ": no such file or directory"},
		"admin's, which is there and bad": {"admin: {token_file: '" + short + "'}", "admin.token_file: the token is not usable; allowed: at least 16 visible ASCII characters"},
	} {
		t.Run(name, func(t *testing.T) {
			got := mustLoad(t, c.text, nil).CheckTokens()
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasSuffix(got[0].Error(), c.want)) {
				t.Errorf("got %v, want %q", got, c.want)
			}
			if len(got) == 1 && (strings.Contains(got[0].Error(), "secret-words") || got[0].Source == "") {
				t.Errorf("got %v", got)
			}
		})
	}
	if _, err := os.Stat(away); err == nil {
		t.Error("a token was made")
	}
}
