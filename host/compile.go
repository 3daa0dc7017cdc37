package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/plugins/abi"
)

// Compiler makes the engine accept a module: it has the engine validate the
// original bytes and compiles the rewritten ones. Safe for concurrent use.
type Compiler interface {
	// Compile returns a *LoadError when the engine refuses the module or a limit
	// ended it, and ErrCompiledCache when dir cannot be written. dir, when not empty, is a folder of the engine's cache that then
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
	err := compileInto(ctx, rewritten, dir)
	if err == nil || errors.Is(err, ErrCompiledCache) {
		return err
	}
	return refuse(StepCompile, abi.ECompile, clip(err.Error(), maxEngineText), "a module that the engine compiles")
}

// features is what guests may use: core 2.0 with SIMD, nothing else.
const features = api.CoreFeaturesV2

// validate has the engine decode and validate a module without compiling it to
// native code. Custom sections are kept from it: nothing executes them, and a name
// section that claims what it does not hold would cost it gigabytes.
func validate(ctx context.Context, module []byte) (err error) {
	module, err = meter.WithoutCustom(module)
	if err != nil {
		return err
	}
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().
		WithCoreFeatures(features).WithDebugInfoEnabled(false))
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	_, err = rt.CompileModule(ctx, module)
	return err
}

// compileInto compiles a module into the engine's cache in dir; ErrCompiledCache
// where dir is at fault.
func compileInto(ctx context.Context, module []byte, dir string) (err error) {
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return unusable("open compiled cache", err)
	}
	defer func() { err = errors.Join(err, cache.Close(ctx)) }()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCoreFeatures(features).WithDebugInfoEnabled(false).WithCompilationCache(cache))
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	if _, err = rt.CompileModule(ctx, module); ofFiles(err) {
		return unusable("write compiled module", err)
	}
	return err
}

// ofFiles tells an error of the file system from one of the module.
func ofFiles(err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	return errors.As(err, &path) || errors.As(err, &link)
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
