package app_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
)

func TestAStartReadsTheSecretKeyOfTheSockets(t *testing.T) {
	// The keys of libzmq's manual.
	const serverKey, secretKey = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"
	file := filepath.Join(t.TempDir(), "key")
	for name, c := range map[string]struct{ text, want string }{
		"right": {secretKey + "\n", ""},
		"short": {"CANARY", "the key in \"" + file + "\" is not usable"},
		"away":  {"", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(file)
			if c.text != "" {
				if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg := settings(t)
			cfg.Ingress.Curve = config.Curve{ServerKey: serverKey, SecretKeyFile: file}
			a, err := app.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
			if err == nil {
				if err := a.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if (err == nil) != (c.want == "") || err != nil && (!strings.HasPrefix(err.Error(), "ingress.curve.secret_key_file: ") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "CANARY")) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
