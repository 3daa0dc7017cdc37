package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/cpu"

	"github.com/routerd/routerd/plugins/abi"
)

// Compiler makes the engine accept a module: it has the engine validate the
// original bytes and compiles the rewritten ones. Safe for concurrent use.
type Compiler interface {
	// Compile returns a *LoadError when the engine refuses the module or a limit
	// ended it. dir, when not empty, is a folder of the engine's cache that then
	// holds the compiled form.
	Compile(ctx context.Context, original, rewritten []byte, dir string) error
}

// InProcess compiles in the calling process. A hostile module can keep it busy
// for minutes and nothing can stop that: it is for modules that are trusted, a
// team's own tests for example. It also works without a cache folder.
type InProcess struct{}

var _ Compiler = InProcess{}

// Compile validates the original with the engine's decoder. The compiler itself
// runs when dir is set, else at the load that follows.
func (InProcess) Compile(ctx context.Context, original, rewritten []byte, dir string) error {
	if err := validate(ctx, original); err != nil {
		return refuse(StepValidate, abi.EParse, clip(err.Error(), maxEngineText), "a module that the engine accepts")
	}
	if dir == "" {
		return nil
	}
	if err := compileInto(ctx, rewritten, dir); err != nil {
		return refuse(StepCompile, abi.ECompile, clip(err.Error(), maxEngineText), "a module that the engine compiles")
	}
	return nil
}

// features is what guests may use: core 2.0 with SIMD, nothing else.
const features = api.CoreFeaturesV2

// validate has the engine decode and validate a module without compiling it to
// native code.
func validate(ctx context.Context, module []byte) (err error) {
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().
		WithCoreFeatures(features).WithDebugInfoEnabled(false))
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	_, err = rt.CompileModule(ctx, module)
	return err
}

// compileInto compiles a module into the engine's cache in dir.
func compileInto(ctx context.Context, module []byte, dir string) (err error) {
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return fmt.Errorf("open compiled cache: %w", err)
	}
	defer func() { err = errors.Join(err, cache.Close(ctx)) }()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCoreFeatures(features).WithDebugInfoEnabled(false).WithCompilationCache(cache))
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	_, err = rt.CompileModule(ctx, module)
	return err
}

// compiledCache is the folder of compiled modules. A marker per key tells that
// the module was validated and where its compiled form is, so that a load never
// compiles in this process by surprise. What is in there is executed: the folder
// is the owner's alone.
type compiledCache struct {
	dir string // absolute
}

// openCompiledCache makes the folder with mode 0700 and removes what a crash
// left half-made.
func openCompiledCache(dir string) (*compiledCache, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve compiled cache: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(abs, engineFolder()), 0o700); err != nil {
		return nil, fmt.Errorf("make compiled cache: %w", err)
	}
	if err := os.Chmod(abs, 0o700); err != nil {
		return nil, fmt.Errorf("restrict compiled cache: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(abs, "compiling-*"))
	if err != nil {
		return nil, fmt.Errorf("list compiled cache: %w", err)
	}
	for _, l := range left {
		if err := os.RemoveAll(l); err != nil {
			return nil, fmt.Errorf("clean compiled cache: %w", err)
		}
	}
	return &compiledCache{dir: abs}, nil
}

// has tells whether the compiled form for key is there.
func (c *compiledCache) has(key string) bool {
	name, err := os.ReadFile(c.marker(key))
	if err != nil || len(name) == 0 || strings.ContainsAny(string(name), `/\`) {
		return false
	}
	_, err = os.Stat(filepath.Join(c.dir, engineFolder(), string(name)))
	return err == nil
}

// drop forgets key and its compiled form.
func (c *compiledCache) drop(key string) {
	if name, err := os.ReadFile(c.marker(key)); err == nil && !strings.ContainsAny(string(name), `/\`) {
		_ = os.Remove(filepath.Join(c.dir, engineFolder(), string(name)))
	}
	_ = os.Remove(c.marker(key))
}

// fill compiles with comp into a folder of its own and moves the result in.
func (c *compiledCache) fill(ctx context.Context, comp Compiler, key string, original, rewritten []byte) error {
	tmp, err := os.MkdirTemp(c.dir, "compiling-")
	if err != nil {
		return fmt.Errorf("make compile folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := comp.Compile(ctx, original, rewritten, tmp); err != nil {
		return err
	}
	made, err := os.ReadDir(filepath.Join(tmp, engineFolder()))
	if err != nil || len(made) != 1 {
		return refuse(StepCompile, abi.ECompile, fmt.Sprintf("the compiler left %d files", len(made)), "one compiled module")
	}
	name := made[0].Name()
	if err := os.Rename(filepath.Join(tmp, engineFolder(), name), filepath.Join(c.dir, engineFolder(), name)); err != nil {
		return fmt.Errorf("keep compiled module: %w", err)
	}
	mark := filepath.Join(tmp, "marker")
	if err := os.WriteFile(mark, []byte(name), 0o600); err != nil {
		return fmt.Errorf("mark compiled module: %w", err)
	}
	if err := os.Rename(mark, c.marker(key)); err != nil {
		return fmt.Errorf("mark compiled module: %w", err)
	}
	return nil
}

func (c *compiledCache) marker(key string) string { return filepath.Join(c.dir, "ok-"+key) }

// cacheKey names a compiled module: both forms of its bytes, the engine's
// version and what the processor can do.
func cacheKey(original, rewritten []byte) string {
	h := sha256.New()
	for _, b := range [][]byte{original, rewritten} {
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	fmt.Fprintf(h, "%s %s %s %+v %+v", engineVersion(), runtime.GOOS, runtime.GOARCH, cpu.X86, cpu.ARM64)
	return hex.EncodeToString(h.Sum(nil))
}

// engineFolder is where the engine keeps its files below a cache folder.
func engineFolder() string {
	return "wazero-" + engineVersion() + "-" + runtime.GOARCH + "-" + runtime.GOOS
}

// engineVersion is the engine's version as it names itself: that of the build,
// "dev" where the build does not tell.
func engineVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	v := ""
	for _, d := range info.Deps {
		if strings.Contains(d.Path, "github.com/tetratelabs/wazero") {
			v = d.Version
		}
	}
	if v == "" || v == "(devel)" {
		v = info.Main.Version
	}
	if v == "" || v == "(devel)" {
		return "dev"
	}
	return v
}
