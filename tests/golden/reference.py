# SPDX-License-Identifier: Apache-2.0
"""Greedy decoding with transformers, and the golden.json record; shared by make_tiny.py and make_smollm2.py."""
import json

import torch


def greedy(model, prompt_ids, steps):
    """Token ids, top-1 minus top-2 margins and log-probabilities of `steps` greedy tokens; ignores end-of-text."""
    ids, margins, logprobs, cache = [], [], [], None
    feed = torch.tensor([prompt_ids])
    with torch.no_grad():
        for _ in range(steps):
            out = model(input_ids=feed, past_key_values=cache, use_cache=True)
            cache, logits = out.past_key_values, out.logits[0, -1].float()
            top = torch.topk(logits, 2)
            token = int(top.indices[0])
            ids.append(token)
            margins.append(round(float(top.values[0] - top.values[1]), 4))
            logprobs.append(round(float(torch.log_softmax(logits, -1)[token]), 5))
            feed = torch.tensor([[token]])
    return ids, margins, logprobs


def record(model, tok, prompt, steps):
    prompt_ids = tok.encode(prompt, add_special_tokens=False).ids
    ids, margins, logprobs = greedy(model, prompt_ids, steps)
    return {"prompt": prompt, "prompt_ids": prompt_ids, "greedy_ids": ids, "top1_minus_top2_logit": margins,
            "logprob": logprobs, "text": tok.decode(ids, skip_special_tokens=False)}


def write_records(path, records):
    """A JSON list, one key a line, so that diffs stay readable."""
    rows = ["{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in r.items()) + "\n}" for r in records]
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(rows) + "\n]\n")
