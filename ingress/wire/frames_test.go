package wire_test

import (
	"testing"

	"github.com/routerd/routerd/ingress/wire"
)

func TestATopicNamesItsPodBetweenTheFirstTwoMarks(t *testing.T) {
	for topic, want := range map[string]string{
		"kv@pod-1@org/model": "pod-1", "kv@10.0.0.1:8000@m@v2": "10.0.0.1:8000", "kv@p@": "p",
		"": "", "kv": "", "kv@": "", "kv@p": "", "kv@@m": "", "load@p@m": "", "xkv@p@m": "", "KV@p@m": "",
	} {
		if pod, ok := wire.TopicPod([]byte(topic)); pod != want && ok || ok != (want != "") {
			t.Errorf("%q: %q, %v", topic, pod, ok)
		}
	}
}
