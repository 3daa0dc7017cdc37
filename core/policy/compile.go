package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// Compile makes the stages of a specification. Stages that are not built in
// come from src; with a nil src they are refused. The digests are those of the
// modules, in pipeline order, each once. On an error everything that was made
// is closed again and the error names the stage.
func Compile(ctx context.Context, spec Spec, src StageSource) (*Pipeline, []string, error) {
	spec, err := spec.Normalised()
	if err != nil {
		return nil, nil, err
	}
	c := compiler{src: src, pipeline: &Pipeline{}}
	spec.EachStage(func(field string, kind abi.Kind, st *StageSpec) {
		if c.err == nil {
			c.stage(ctx, field, kind, st)
		}
	})
	p := c.pipeline
	if c.err != nil {
		return nil, nil, errors.Join(c.err, p.close())
	}
	if p.fallback, err = Builtin(spec.Fallback, nil); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("compile fallback: %w", err), p.close())
	}
	p.columns.Union(p.fallback.Columns())
	if err := p.arrange(&spec, c.made); err != nil {
		return nil, nil, errors.Join(err, p.close())
	}
	return p, c.digests, nil
}

// compiler makes the stages one by one.
type compiler struct {
	src      StageSource
	pipeline *Pipeline
	made     []Stage // in the pipeline's order
	digests  []string
	err      error
}

func (c *compiler) stage(ctx context.Context, field string, kind abi.Kind, st *StageSpec) {
	stage, digest, err := c.make(ctx, kind, st)
	if err != nil {
		c.err = fmt.Errorf("compile %s: %w", field, err)
		return
	}
	c.made = append(c.made, stage)
	c.pipeline.stages = append(c.pipeline.stages, namedStage{StageName{kind, st.Use}, stage})
	c.pipeline.columns.Union(stage.Columns())
	if digest != "" && !slices.Contains(c.digests, digest) {
		c.digests = append(c.digests, digest)
	}
}

func (c *compiler) make(ctx context.Context, kind abi.Kind, st *StageSpec) (Stage, string, error) {
	if strings.HasPrefix(st.Use, BuiltinPrefix) {
		stage, err := builtinStage(kind, *st)
		return stage, "", err
	}
	if c.src == nil {
		return nil, "", &fleet.FieldError{Field: "use", Value: st.Use, Allowed: "built-in stages: no modules can be loaded here"}
	}
	return c.src.Stage(ctx, kind, st.Use, st.Config)
}

// arrange puts the stages that were made where they run. One that has not the
// methods of its kind is refused.
func (p *Pipeline) arrange(spec *Spec, made []Stage) error {
	next := 0
	take := func() Stage { next++; return made[next-1] }
	for _, f := range spec.Filters {
		filter, ok := take().(Filter)
		if !ok {
			return wrongKind(f.Use, abi.KindFilter)
		}
		p.filters = append(p.filters, filterStage{f.Use, filter, f.OnEmpty, f.OnError})
	}
	for i, sc := range append(slices.Clone(spec.Scorers), spec.Lora...) {
		scorer, ok := take().(Scorer)
		if !ok {
			return wrongKind(sc.Use, abi.KindScorer)
		}
		p.scorers = append(p.scorers, scorerStage{sc.Use, scorer, *sc.Weight, sc.Normalise, sc.OnError, i >= len(spec.Scorers)})
	}
	if len(spec.Lora) > 0 {
		p.columns.Union(loraAffinity{}.Columns()) // decides where a lora scorer abstains
	}
	if spec.Picker != nil {
		picker, ok := take().(Picker)
		if !ok {
			return wrongKind(spec.Picker.Use, abi.KindPicker)
		}
		columns := picker.Columns()
		p.picker = pickerStage{spec.Picker.Use, picker, spec.Picker.OnError, columns.Has(abi.ColUpstreamScore)}
	}
	if spec.Policy != nil {
		whole, ok := take().(Whole)
		if !ok {
			return wrongKind(spec.Policy.Use, abi.KindPolicy)
		}
		p.whole = &wholeStage{spec.Policy.Use, whole, spec.Policy.OnError}
	}
	return nil
}

func wrongKind(use string, kind abi.Kind) error {
	return fmt.Errorf("stage %q is no %s", use, kind)
}
