package approx_test

import (
	"testing"
	"time"

	"github.com/routerd/routerd/indexer/approx"
	"github.com/routerd/routerd/indexer/indextest"
)

// index returns an empty index, for blocks of any size.
func index(t *testing.T, cfg approx.Config) *approx.Index {
	t.Helper()
	x, err := approx.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

func TestI3_IndexEqualsThePlainModel(t *testing.T) {
	for name, cfg := range map[string]approx.Config{
		"time":            {TTL: 100 * time.Second},
		"blocks":          {MaxBlocks: 60},
		"time and blocks": {TTL: 100 * time.Second, MaxBlocks: 350},
	} {
		t.Run(name, func(t *testing.T) {
			indextest.Run(t, func(int) *approx.Index {
				x, err := approx.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				return x
			}, indextest.TTL(cfg.TTL), indextest.MaxBlocks(cfg.MaxBlocks), indextest.Seeds(70))
		})
	}
}
