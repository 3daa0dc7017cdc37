package sim

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command returns `routerd sim-engine`: one simulated engine in the foreground.
// It prints one line `ready url=… events=… replay=…` when it answers and ends
// cleanly on SIGINT, SIGTERM or the end of the command's context.
func Command() *cobra.Command {
	c := DefaultConfig()
	cmd := &cobra.Command{
		Use:   "sim-engine",
		Short: "Run a simulated inference engine",
		Long: "sim-engine runs an inference engine without a model: it speaks vLLM's HTTP API,\n" +
			"keeps a block cache and publishes KV events over ZMQ.",
		Example:      "  routerd sim-engine --listen 127.0.0.1:8100 --decode-per-token 20ms",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
	}
	addFlags(cmd.Flags(), &c)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.Validate(); err != nil {
			return err
		}
		return runCommand(cmd, c)
	}
	return cmd
}

func runCommand(cmd *cobra.Command, c Config) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)).With("component", "sim", "engine", c.Name)
	e, err := New(c, log)
	if err != nil {
		return err
	}
	if err := e.Start(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "ready url=%s events=%s replay=%s\n",
		e.URL(), joinEndpoints(e.EventEndpoints()), joinEndpoints(e.ReplayEndpoints()))
	if err != nil {
		return errors.Join(fmt.Errorf("print ready line: %w", err), e.Close())
	}
	return e.wait(ctx)
}

// joinEndpoints lists addresses in order of rank, "-" for none.
func joinEndpoints(byRank map[int]string) string {
	if len(byRank) == 0 {
		return "-"
	}
	list := make([]string, len(byRank))
	for r, a := range byRank {
		list[r] = a
	}
	return strings.Join(list, ",")
}

func addFlags(f *pflag.FlagSet, c *Config) {
	f.StringVar(&c.Name, "name", c.Name, "name of the engine")
	f.StringVar(&c.Model, "model", c.Model, "id of the base model")
	f.StringSliceVar(&c.Adapters, "adapters", c.Adapters, "names of loaded LoRA adapters, separated by commas")
	f.BoolVar(&c.AdapterUpdates, "adapter-updates", c.AdapterUpdates, "load and unload adapters by API, as vLLM and as SGLang do")
	span(f, &c.AdapterLoad, "adapter-load", "time to load an adapter by API", longestDelay)
	count(f, &c.MaxAdapters, "max-adapters", "adapters that can be loaded by SGLang's route, 0 for any number", 0, 10_000)
	f.Var(&choiceFlag{(*string)(&c.Face), faceNames()}, "face", "whose form its answers about itself have: "+strings.Join(faceNames(), ", ")+"; vLLM 0.33's without it")
	count(f, &c.MaxBatchedTokens, "max-batched-tokens", "tokens in a batch that the faces of SGLang name", 1, 1<<30)
	f.StringVar(&c.Listen, "listen", c.Listen, "HTTP address, port 0 for a free one")
	count(f, &c.BlockSize, "block-size", "tokens in a block", 1, 4096)
	count(f, &c.Blocks, "blocks", "blocks in the cache of each rank", 1, 10_000_000)
	count(f, &c.MaxModelLen, "max-model-len", "context length in tokens", 1, 10_000_000)
	count(f, &c.Ranks, "ranks", "data-parallel ranks", 1, 64)
	count(f, &c.Slots, "slots", "requests that run at once on each rank", 1, 100_000)
	count(f, &c.AnswerTokens, "answer-tokens", "natural length of an answer, 0 to draw 16 to 47", 0, 10_000_000)
	f.BoolVar(&c.Events, "events", c.Events, "publish KV events")
	f.StringVar(&c.EventsListen, "kv-endpoint", c.EventsListen, "address to publish events on; rank r takes the port + r")
	f.StringVar(&c.ReplayListen, "replay-endpoint", c.ReplayListen, "address that answers replay requests, empty for none")
	f.StringVar(&c.LoadListen, "load-endpoint", c.LoadListen, "address of SGLang's load socket, empty for none; with the face "+string(FaceSGLang0523))
	f.StringVar(&c.Topic, "topic", c.Topic, "topic of published events")
	f.Var(&choiceFlag{(*string)(&c.EventForm), []string{string(FormMap), string(FormArray)}}, "event-form", "encoding of events: map or array")
	f.Var(&choiceFlag{(*string)(&c.HashForm), []string{string(HashInt), string(HashBytes)}}, "hash-form", "encoding of block hashes: int or bytes")
	f.BoolVar(&c.ReplayTopicFrame, "replay-topic-frame", c.ReplayTopicFrame, "put the topic into replay answers")
	count(f, &c.BufferSteps, "buffer-steps", "batches kept for replay on each rank", 1, 1_000_000)
	span(f, &c.PrefillPerToken, "prefill-per-token", "time for each prompt token that is not cached", longestDelay)
	span(f, &c.DecodePerToken, "decode-per-token", "time for each token of an answer", longestDelay)
	span(f, &c.IdleTimeout, "idle-timeout", "close idle HTTP connections after this time, 0 for never", longestIdle)
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the answers' text")
}

// numberFlag is a whole number in a range; its errors say what is allowed.
type numberFlag struct {
	to          *int
	least, most int
}

func count(f *pflag.FlagSet, to *int, name, usage string, least, most int) {
	f.Var(&numberFlag{to, least, most}, name, usage)
}

// String implements pflag.Value.
func (n *numberFlag) String() string { return strconv.Itoa(*n.to) }

// Type implements pflag.Value.
func (n *numberFlag) Type() string { return "int" }

// Set implements pflag.Value.
func (n *numberFlag) Set(v string) error {
	got, err := strconv.Atoi(v)
	if err != nil || got < n.least || got > n.most {
		return fmt.Errorf("allowed: %d to %d", n.least, n.most)
	}
	*n.to = got
	return nil
}

// durationFlag is a duration from 0 to a limit.
type durationFlag struct {
	to   *time.Duration
	most time.Duration
}

func span(f *pflag.FlagSet, to *time.Duration, name, usage string, most time.Duration) {
	f.Var(&durationFlag{to, most}, name, usage)
}

// String implements pflag.Value.
func (d *durationFlag) String() string { return d.to.String() }

// Type implements pflag.Value.
func (d *durationFlag) Type() string { return "duration" }

// Set implements pflag.Value.
func (d *durationFlag) Set(v string) error {
	got, err := time.ParseDuration(v)
	if err != nil || got < 0 || got > d.most {
		return fmt.Errorf("allowed: 0 to %s, written such as 500us, 20ms, 1s", d.most)
	}
	*d.to = got
	return nil
}

// choiceFlag is one of a few words.
type choiceFlag struct {
	to      *string
	allowed []string
}

// String implements pflag.Value.
func (c *choiceFlag) String() string { return *c.to }

// Type implements pflag.Value.
func (c *choiceFlag) Type() string { return "string" }

// Set implements pflag.Value.
func (c *choiceFlag) Set(v string) error {
	if !slices.Contains(c.allowed, v) {
		return fmt.Errorf("allowed: %s", strings.Join(c.allowed, ", "))
	}
	*c.to = v
	return nil
}
