# SPDX-License-Identifier: Apache-2.0
"""Trains the small tokenizers under tokenizers/ with the published pre-tokeniser settings.

Training text: the Python standard library's sources (first 400 kB by sorted name) and the
short valid strings of tokenizer_corpus.json. The files differ on purpose in the spellings
that loaders must accept: merges as pairs or as "a b" strings, added tokens inside or outside
model.vocab, first or last ids. qwen.json and llama3.json hold three whole words that no merge
reaches: only `ignore_merges` (llama3) may produce them.

Usage: python make_tokenizers.py
"""
import base64
import glob
import json
import os
import sysconfig

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "tokenizers")
VOCAB = 1500
UNREACHABLE = ["\u0120extraordinary", "extraordinary", "\u0120internationalization"]

GPT4_STYLE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = GPT4_STYLE % r"\p{N}"
LLAMA3 = GPT4_STYLE % r"\p{N}{1,3}"
DEEPSEEK_WORDS = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^""" + "\r\n" + r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                  r"""| ?[\p{P}\p{S}]+[""" + "\r\n" + r"""]*|\s*[""" + "\r\n" + r"""]+|\s+(?!\S)|\s+""")
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)


def byte_level(trim_offsets, use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=trim_offsets, use_regex=use_regex)


def training_text():
    with open(os.path.join(HERE, "tokenizer_corpus.json")) as f:
        corpus = json.load(f)
    strings = [base64.b64decode(e["b64"]).decode() for e in corpus if e["kind"] not in ("invalid-utf8", "long", "special")]
    strings = [s for s in strings if not any(word.strip("\u0120") in s for word in UNREACHABLE)]
    text, size = strings * 30, 0
    for path in sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py"))):
        with open(path, encoding="utf-8") as f:
            text.append(f.read())
        size += len(text[-1])
        if size > 400_000:
            break
    return text


def train(name, pre, normalizer, first_tokens, last_tokens, post, ignore_merges, string_merges, text):
    tok = Tokenizer(models.BPE())
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    room = VOCAB - len(last_tokens) - (len(UNREACHABLE) if name in ("qwen", "llama3") else 0)
    tok.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=room, min_frequency=2, show_progress=False, special_tokens=first_tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    spec = json.loads(tok.to_str())
    vocab = spec["model"]["vocab"]
    if name in ("qwen", "llama3"):
        for word in UNREACHABLE:
            assert word not in vocab, word
            vocab[word] = len(vocab)
    spec["model"]["ignore_merges"] = ignore_merges
    tok = Tokenizer.from_str(json.dumps(spec))
    special = [t for t in last_tokens if t.special]
    tok.add_special_tokens(special)
    tok.add_tokens([t for t in last_tokens if not t.special])
    if post is not None:
        tok.post_processor = post(tok)
    spec = json.loads(tok.to_str())
    if string_merges:
        spec["model"]["merges"] = [" ".join(m) for m in spec["model"]["merges"]]
    path = os.path.join(OUT, name + ".json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(spec, f, ensure_ascii=(name == "smollm"), indent=None, separators=(",", ":"))
        f.write("\n")
    print(name, tok.get_vocab_size(), "tokens,", len(spec["model"]["merges"]), "merges,", os.path.getsize(path), "bytes")


def plain(text, special=True, normalized=False):
    return AddedToken(text, special=special, normalized=normalized)


def bos_template(token):
    return lambda tok: processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single=token + " $A", pair=token + " $A " + token + " $B:1",
                                      special_tokens=[(token, tok.token_to_id(token))])])


def main():
    os.makedirs(OUT, exist_ok=True)
    text = training_text()
    smollm_tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<file_sep>", "<filename>", "<gh_stars>"]
    train("qwen", pre_tokenizers.Sequence([split(QWEN), byte_level(False)]), normalizers.NFC(), [],
          [plain(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
          + [plain(t, special=False) for t in ("<tool_call>", "</tool_call>", "<think>", "</think>")],
          lambda tok: processors.ByteLevel(trim_offsets=False), False, False, text)
    train("llama3", pre_tokenizers.Sequence([split(LLAMA3), byte_level(True)]), None, [],
          [plain(t) for t in ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                              "<|im_end|>")],
          bos_template("<|begin_of_text|>"), True, True, text)
    train("deepseek", pre_tokenizers.Sequence([split(r"\p{N}{1,3}"), split(DEEPSEEK_CJK), split(DEEPSEEK_WORDS), byte_level(True)]),
          normalizers.Sequence([]), ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
                                     "<\uff5c\u2581pad\u2581\uff5c>"],
          [plain(t, special=False) for t in ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>")]
          + [plain(t, special=False, normalized=True) for t in ("<think>", "</think>")],
          lambda tok: processors.ByteLevel(trim_offsets=False), False, False, text)
    train("smollm", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True, use_regex=True)]),
          None, smollm_tokens, [], None, False, True, text)


if __name__ == "__main__":
    main()
