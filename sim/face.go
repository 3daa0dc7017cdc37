package sim

import (
	"errors"
	"fmt"
	"strings"
)

// Face says whose form the engine's answers about itself have: which routes exist,
// the owner of its models, the names of its metrics. It changes nothing else: the
// rest stays vLLM 0.33's.
type Face string

// The faces. FaceDefault is vLLM 0.33's.
const (
	FaceDefault     Face = ""
	FaceVLLM09      Face = "vllm-0.9"
	FaceVLLM033     Face = "vllm-0.33"
	FaceSGLang0510  Face = "sglang-0.5.10"
	FaceSGLang0523  Face = "sglang-0.5.23"
	FaceLLMD        Face = "llm-d"
	FaceTensorRTLLM Face = "trtllm"
)

// Faces lists the faces that have a name.
func Faces() []Face {
	return []Face{FaceVLLM09, FaceVLLM033, FaceSGLang0510, FaceSGLang0523, FaceLLMD, FaceTensorRTLLM}
}

func faceNames() []string {
	var names []string
	for _, f := range Faces() {
		names = append(names, string(f))
	}
	return names
}

func (f Face) sglang() bool { return f == FaceSGLang0510 || f == FaceSGLang0523 }

// version is the release whose form it is.
func (f Face) version() string {
	switch f {
	case FaceVLLM09:
		return "0.9.2"
	case FaceSGLang0510:
		return "0.5.10"
	case FaceSGLang0523:
		return "0.5.23"
	case FaceTensorRTLLM:
		return "1.0.0"
	}
	return version
}

// owner is owned_by of its models.
func (f Face) owner() string {
	switch {
	case f.sglang():
		return "sglang"
	case f == FaceTensorRTLLM:
		return "tensorrt_llm"
	}
	return "vllm"
}

// dress takes the routes out that the face's engine does not have, and puts its own in.
func (e *Engine) dress(routes map[string]map[string]handler) {
	get := func(h handler) map[string]handler { return map[string]handler{"GET": h} }
	face := e.cfg.Face
	if face != FaceDefault && face != FaceVLLM033 {
		delete(routes, "/kv_event_sources")
	}
	switch {
	case face.sglang():
		delete(routes, "/version")
		routes["/server_info"] = get(e.serverInfo)
		routes["/get_server_info"] = get(e.serverInfo)
	case face == FaceLLMD:
		delete(routes, "/version")
	case face == FaceTensorRTLLM:
		routes["/metrics"] = get(e.iterations)
	}
}

// validateFace refuses what the face's engine could not say.
func (c Config) validateFace() error {
	errs := []error{within("max-batched-tokens", c.MaxBatchedTokens, 1, 1<<30)}
	if c.Face != FaceDefault {
		errs = append(errs, oneOf("face", string(c.Face), faceNames()...))
	}
	if c.Face == FaceLLMD && c.Ranks > 1 {
		errs = append(errs, fmt.Errorf("ranks %d: with the face llm-d, where each rank is a server of its own; allowed: 1", c.Ranks))
	}
	if c.LoadListen != "" {
		errs = append(errs, c.validateLoad())
	}
	if !c.Face.sglang() || !c.Events || c.Ranks == 1 {
		return errors.Join(errs...)
	}
	for _, f := range []struct{ field, value string }{{"kv-endpoint", c.EventsListen}, {"replay-endpoint", c.ReplayListen}, {"load-endpoint", c.LoadListen}} {
		if strings.HasSuffix(f.value, ":*") {
			errs = append(errs, fmt.Errorf("%s %q: SGLang names the port of rank 0 alone; allowed with the face %s and %d ranks: a fixed port", f.field, cut(f.value), c.Face, c.Ranks))
		}
	}
	return errors.Join(errs...)
}

func (c Config) validateLoad() error {
	if c.Face != FaceSGLang0523 || !c.Events {
		return fmt.Errorf("load-endpoint %q: allowed with the face %s and events", cut(c.LoadListen), FaceSGLang0523)
	}
	load, err := splitEndpoint("load-endpoint", c.LoadListen)
	if err != nil {
		return err
	}
	for _, other := range []string{c.EventsListen, c.ReplayListen} {
		if e, err := splitEndpoint("", other); err == nil && load.meets(e, c.Ranks) {
			return fmt.Errorf("load-endpoint %q: with %d ranks its ports meet those of %q; allowed: ports at least %d apart", cut(c.LoadListen), c.Ranks, cut(other), c.Ranks)
		}
	}
	return nil
}
