"""Drives a router with the official OpenAI client. Arguments: base URL, model.

Each check prints one line; the process ends with 1 when one fails.
"""

import sys
import time

import openai


def main():
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
    model = sys.argv[2]

    assert model in [m.id for m in client.models.list()], "models"
    assert client.models.retrieve(model).id == model, "one model"
    print("models ok", flush=True)

    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Say hello"}], max_tokens=8)
    assert answer.choices[0].message.content and answer.usage.completion_tokens > 0, "unary chat"
    text = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8)
    assert text.choices[0].text and text.usage.prompt_tokens > 0, "unary completion"
    for prompt in (["a", "b"], [1, 2, 3], [[1, 2], [3, 4]]):
        client.completions.create(model=model, prompt=prompt, max_tokens=2)
    print("unary ok", flush=True)

    usage, parts = None, []
    for chunk in client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Say hello"}], max_tokens=8, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        parts += [c.delta.content or "" for c in chunk.choices]
    assert "".join(parts) == answer.choices[0].message.content, "streamed text differs from the unary one"
    assert usage and usage.completion_tokens == answer.usage.completion_tokens, "streamed usage"
    print("streamed ok", flush=True)

    try:
        client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "x"}])
        raise AssertionError("an unknown model was served")
    except openai.NotFoundError as e:
        assert e.code == "model_not_found" and e.param == "model", (e.code, e.param)
    print("errors ok", flush=True)

    stream = client.completions.create(model=model, prompt="go on", max_tokens=100000, stream=True, extra_body={"ignore_eos": True})
    for i, _ in enumerate(stream):
        if i == 2:
            break
    stream.close()
    print("cancelled", time.time_ns(), flush=True)


if __name__ == "__main__":
    main()
