package policy

import (
	"fmt"
	"slices"

	"github.com/routerd/routerd/plugins/abi"
)

// EachStage calls f for every stage of s in the pipeline's order: filters,
// scorers, lora scorers and the picker, or the whole policy. field is the
// stage's place, such as "scorers[0]". f may change the stage; whoever walks a
// specification that others hold changes a Clone.
func (s *Spec) EachStage(f func(field string, kind abi.Kind, st *StageSpec)) {
	for i := range s.Filters {
		f(fmt.Sprintf("filters[%d]", i), abi.KindFilter, &s.Filters[i].StageSpec)
	}
	for i := range s.Scorers {
		f(fmt.Sprintf("scorers[%d]", i), abi.KindScorer, &s.Scorers[i].StageSpec)
	}
	for i := range s.Lora {
		f(fmt.Sprintf("lora[%d]", i), abi.KindLoraScorer, &s.Lora[i].StageSpec)
	}
	if s.Picker != nil {
		f("picker", abi.KindPicker, &s.Picker.StageSpec)
	}
	if s.Policy != nil {
		f("policy", abi.KindPolicy, &s.Policy.StageSpec)
	}
}

// Clone is a copy that shares nothing with s.
func (s Spec) Clone() Spec {
	s.Filters = slices.Clone(s.Filters)
	s.Scorers, s.Lora = cloneScorers(s.Scorers), cloneScorers(s.Lora)
	if s.Picker != nil {
		picker := *s.Picker
		s.Picker = &picker
	}
	if s.Policy != nil {
		whole := *s.Policy
		s.Policy = &whole
	}
	s.EachStage(func(_ string, _ abi.Kind, st *StageSpec) { st.Config = slices.Clone(st.Config) })
	return s
}

func cloneScorers(in []ScorerSpec) []ScorerSpec {
	out := slices.Clone(in)
	for i := range out {
		if w := out[i].Weight; w != nil {
			weight := *w
			out[i].Weight = &weight
		}
	}
	return out
}
