# SPDX-License-Identifier: Apache-2.0
"""Writes smollm2_golden.json: greedy decodes of SmolLM2-135M-Instruct (Q4_1 GGUF) in float32.

The weights are the GGUF's, dequantised by transformers' loader, which also undoes the row order that
GGUF gives to q and k of Llama models. Before decoding this checks that loader against the gguf package
(q and k rows regrouped from pairs to halves, everything else as stored) and that the perplexity of an
English sentence is that of a language model. Prompts go through the tokenizer that
make_tokenizer_ids.py rebuilds; the two chat prompts are the model's ChatML template written out, with
its default system message. The 64 tokens go on past <|im_end|> (id 2) where it comes up.

Usage: python make_smollm2.py GGUF
"""
import os
import sys

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from transformers import AutoModelForCausalLM

from make_tokenizer_ids import smollm2_from_gguf
from reference import record, write_records

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 64
CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n")
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    ("Photosynthesis is the process by which green plants, algae and some bacteria turn the energy of sunlight into chemical "
     "energy. It takes place in two stages. In the first stage, light is absorbed by chlorophyll in the thylakoid membranes, "
     "water is split, and oxygen is released. In the second stage, known as the Calvin cycle,"),
    CHAT.format("Explain how a refrigerator works."),
    CHAT.format("Write a short story about a dog who finds a map."),
]
SENTENCE = ("The capital of France is Paris, and the city is known for its museums, its food and the Eiffel Tower, "
            "which was built in 1889.")


def check_weights(model, path):
    state, config = model.state_dict(), model.config
    stored = {t.name: dequantize(t.data, t.tensor_type) for t in GGUFReader(path).tensors}
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    pairs = [("token_embd.weight", "model.embed_tokens.weight", None), ("output_norm.weight", "model.norm.weight", None)]
    pairs += [(f"blk.{i}.{g}.weight", f"model.layers.{i}.{h}.weight", heads.get(g))
              for i in range(config.num_hidden_layers) for g, h in names.items()]
    assert len(pairs) == len(stored)
    for gguf_name, name, n in pairs:
        want = stored[gguf_name]
        if n:
            want = want.reshape(n, config.head_dim // 2, 2, -1).swapaxes(1, 2).reshape(want.shape)
        assert np.array_equal(want, state[name].numpy()), name


def perplexity(model, tok):
    ids = torch.tensor([tok.encode(SENTENCE).ids])
    with torch.no_grad():
        return float(model(ids, labels=ids).loss.exp())


def main():
    path = os.path.abspath(sys.argv[1])
    torch.set_num_threads(1)
    tok = smollm2_from_gguf(path)
    model = AutoModelForCausalLM.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path), dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    check_weights(model, path)
    value = perplexity(model, tok)
    print("perplexity of the sentence", round(value, 3))
    assert 2 < value < 30
    records = [record(model, tok, p, STEPS) for p in PROMPTS]
    write_records(os.path.join(HERE, "smollm2_golden.json"), records)
    for r in records:
        print(len(r["prompt_ids"]), "prompt tokens; smallest margin", min(r["top1_minus_top2_logit"]), "eos at",
              r["greedy_ids"].index(2) if 2 in r["greedy_ids"] else None, repr(r["text"]))


if __name__ == "__main__":
    main()
