# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizer_corpus.json: 300 byte strings that stress byte-level BPE tokenizers.

Each entry is {"kind": ..., "b64": base64 of the bytes}. Strings of kind "invalid-utf8"
are not valid UTF-8: their reference is the tokenizer run on
bytes.decode("utf-8", errors="replace"), that is, one U+FFFD per maximal subpart
(Unicode 15, section 3.9, table 3-8; what CPython does).

Usage: python make_corpus.py
"""
import base64
import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))

PROSE = [
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    " leading space, trailing space ",
    "It was the best of times, it was the worst of times; it was the age of wisdom...",
    "A sentence -- with dashes (and parentheses) [and brackets] {and braces}.",
    "state-of-the-art e-mail co-operate U.S.A. Ph.D. 3.14% $9.99 #hash @name",
    "UPPER lower MiXeD camelCase snake_case kebab-case SCREAMING_SNAKE",
    "He said: \"What's this?\" and she replied, 'Nothing.'",
    "https://example.org/a/b?c=d&e=f#g user@example.org C:\\dir\\file.txt /usr/bin/env",
    "Naïve café résumé façade Zürich Ångström œuvre straße",
    "a",
    " ",
    "  a",
    "a b  c   d    e     f",
    "word\nword\n\nword\n\n\nword",
    "The extraordinary misunderstanding was internationalization.",
    "extraordinary extraordinary\nextraordinary internationalization",
]
CONTRACTIONS = [
    "I'm you're he's we've they'd I'll don't can't",
    "I'M YOU'RE HE'S WE'VE THEY'D I'LL DON'T CAN'T",
    "'s 't 're 've 'm 'll 'd 'S 'T 'RE 'VE 'M 'LL 'D 'Re 'vE 'lL",
    "it\u2019s don\u2019t we\u2019ll \u2018quoted\u2019",
    "it\u02bcs don\u02bct \u02bchello",
    "'sword 'tis 'twas 'remark 'very 'mad 'llama 'dog",
    "'\u017f '\u017fa it'\u017f IT'\u017f K\u212a \u212aelvin",
    "''s '''t ' s ' 't \"'s\" rock'n'roll o'clock",
]
CODE = [
    "def f(x, *args, **kw):\n    return [i ** 2 for i in range(x) if i % 3 == 0]\n",
    "#include <stdio.h>\nint main(void) {\n\tprintf(\"%d\\n\", 1 << 3);\n\treturn 0;\n}\n",
    "for (let i = 0; i < n; ++i) { a[i] += b?.c ?? d; } // done",
    "SELECT * FROM t WHERE a >= 10 AND b <> 'x''y' ORDER BY c DESC LIMIT 5;",
    "<html><body class=\"x\">&amp; &lt;p&gt;</body></html>",
    "{\"a\": [1, 2.5e-10, null, true], \"b\": {\"c\": \"\\u00e9\\n\"}}",
    "if [ \"$x\" = 1 ]; then\n\techo $((1+2)) | grep -v '^#' >&2\nfi",
    "!!!***###$$$%%%^^^&&&((()))___---===+++[[[]]]{{{}}}|||\\\\\\;;;:::'''\"\"\",,,...///???<<<>>>~~~```",
    "!hello #include @user $var %d ^x &ref *ptr (arg -flag =val +x [i {k |p \\n ;x :y 'z \"w ,a .b /c ?d <e >f ~g `h",
    " !a  !a !\n!a ._a __init__ __name__.__doc__",
    "x=1;y=-2.0;z=0xFFEE_BEEF;w=0b1010;v=1e+9;u='\\''",
    "\\frac{a}{b} \\sum_{i=0}^{n} x_i^2 $\\alpha$",
    "a+b-c*d/e%f^g&h|i~j<k>l=m!n?o:p;q,r.s@t#u$v",
    "class A:\n\n\n    def b(self):\n        pass\n    \n\t\n",
]
SCRIPTS = [
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u6563\u6b65\u5427\u3002\u4ef7\u683c\u662f123\u5143\u3002",
    "\u7e41\u9ad4\u4e2d\u6587\u8207\u7b80\u4f53\u4e2d\u6587mixed\u4e2d\u6587English",
    "\u300a\u7ea2\u697c\u68a6\u300b\u2014\u2014\u66f9\u96ea\u82b9\u300c\u5f15\u53f7\u300d\u3010\u62ec\u53f7\u3011",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3001\u30ab\u30bf\u30ab\u30ca\u3068\u3072\u3089\u304c\u306a\u3002",
    "\u6771\u4eac\u30bf\u30ef\u30fc\u306f333m\u3067\u3059\u3002\u30fb\u30fc\uff76\uff9e\uff71\u3005\u3006",
    "\u9fa5\u9fa6\u9fff\u4dbf\u3400 \u3040\u309f\u30a0\u30ff\u3100 \U00020000\U0002a6d6",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4! \ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.",
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645 \u0648\u0631\u062d\u0645\u0629 \u0627\u0644\u0644\u0647\u060c \u0661\u0662\u0663\u0664",
    "\u0627\u0644\u0652\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u064e\u0629\u064f \u0645\u064f\u0634\u064e\u0643\u0651\u064e\u0644\u064e\u0629",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\u0964 \u0939\u093f\u0928\u094d\u0926\u0940 \u0967\u0968\u0969\u096a\u096b",
    "\u0938\u094d\u0924\u094d\u0930\u0940 \u0915\u094d\u0937 \u091c\u094d\u091e \u0915\u094d\u200d\u0937 \u0915\u094d\u200c\u0937",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0e51\u0e52\u0e53",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd, \u05d6\u05d4\u05d5 \u05de\u05e9\u05e4\u05d8.",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u05d1\u05b0\u05bc\u05e8\u05b5\u05d0\u05e9\u05b4\u05c1\u05d9\u05ea",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0421\u044a\u0435\u0448\u044c \u0435\u0449\u0451 \u044d\u0442\u0438\u0445 \u043c\u044f\u0433\u043a\u0438\u0445 \u0431\u0443\u043b\u043e\u043a.",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5, \u03b5\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u1f00\u03c1\u03c7\u03ae \u1fb3",
    "Xin ch\u00e0o th\u1ebf gi\u1edbi, ti\u1ebfng Vi\u1ec7t c\u00f3 d\u1ea5u \u0111\u1eb9p.",
    "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u0532\u0561\u0580\u0565\u0582 \u1230\u120b\u121d \u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd",
    "\u1019\u103c\u1014\u103a\u1019\u102c \u1781\u17d2\u1798\u17c2\u179a \u0ea5\u0eb2\u0ea7 \u0f56\u0f7c\u0f51\u0f0b \u13e3\u13b3\u13a9",
    "\U00010330\U00010331 \U0001d400\U0001d7d8\U0001d7d9 \U00010a00 \U0001f130 \U0001e900",
    "\u0130stanbul \u0131\u015f\u0131k \u01c4\u01c5\u01c6 \ufb01\ufb02 \ufb03 \u1e9e",
]
COMBINING = [
    "e\u0301 vs \u00e9, a\u0308o\u0308u\u0308, n\u0303, c\u0327, A\u030a",
    "Vie\u0323\u0302t Vi\u1ec7t Vie\u0302\u0323t",
    "q\u0307\u0323 q\u0323\u0307 s\u0323\u0307 \u1e69",
    "\u1100\u1161\u11a8 \u1112\u1161\u11ab\u1100\u1173\u11af \uac00\u11a8 \uac01\u11a8",
    "\u212b \u2126 \u212a \u2329 \u232a \u00c5 \u0340 \u0341 \u0343 \u0344",
    "\u0958\u0959\u095a \u0915\u093c \u0a33 \u0fb9 \u2adc",
    "\ufb1d\ufb2a \u05e9\u05c1 \U0001d15e\U0001d15f",
    "\uf900\ufa0e \ufa10 \u8c48 \uf9d0 \U0002f800",
    "\u0301 leading mark, a\u0301\u0301\u0301\u0301b \u0338 =\u0338 <\u0338 \u2260",
    "z\u0351\u036b\u0343a\u0334\u0321l\u0335g\u0336\u0327o\u0337\u0328 text",
    "\u304b\u3099 \u30ab\u3099 \u30cf\u309a \u30ac \u3046\u3099",
    "\u0bc6\u0bbe \u0b95\u0bca \u0dd9\u0dca\u0dcf \u1b05\u1b35 \U00011131\U00011127",
    "a\u0315\u0300\u05ae\u0062 a\u0300\u0315\u05ae\u0062 \u0061\u05b0\u094d\u3099",
]
EMOJI = [
    "\U0001f600\U0001f602\U0001f923 happy \U0001f44d",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family \U0001f469\U0001f3fd\u200d\U0001f4bb coder",
    "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea\U0001f1ef\U0001f1f5 flags \U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\u2764\ufe0f \u2764 \u2603\ufe0e 1\ufe0f\u20e3 #\ufe0f\u20e3 *\ufe0f\u20e3",
    "\U0001f3f3\ufe0f\u200d\U0001f308 \U0001f9d1\u200d\U0001f680 \U0001f937\U0001f3ff\u200d\u2642\ufe0f",
    "text\U0001f680text \U0001f680 text\U0001f680\n\U0001f680",
    "\u2190\u2191\u2192\u2193 \u2200x\u2203y\u2208\u211d \u221e\u2211\u222b\u221a \u00b1\u00d7\u00f7 \u2248\u2260\u2264",
    "\u20ac\u00a3\u00a5\u20b9\u20bf \u2122\u00ae\u00a9 \u00a7\u00b6 \u2020 \u2022\u2026 \u00ab\u00bb\u201e\u201c\u201d",
    "\u2500\u2502\u250c\u2588\u2591 \u2460\u2461 \u00bd\u00bc \u00b2\u00b3 \u2167\u216b \u3007 \u5341",
]
DIGITS = [
    "1", "12", "123", "1234", "12345", "123456", "1234567", "12345678901234567890",
    "0000000000 1111 22 3", "3.14159265358979", "1,234,567.89", "2024-01-31T12:34:56Z",
    "a1b22c333d4444e55555", " 1 12 123 1234", "\u0661\u0662\u0663\u0664\u0665 \uff11\uff12\uff13\uff14 \u0967\u0968",
    "1\u00b22\u00bd3\u21674 \u2460\u2461\u2462\u2463 \u4e00\u4e8c\u4e09",
    "0x1F 1e10 -42 +7 1/2 50% #1 v2.0.1 192.168.0.1",
]
SPACES = [
    "", "  ", "   ", "    ", "        ", "\n", "\n\n", "\n\n\n\n", "\t", "\t\t\t", "\r\n", "\r\n\r\n",
    "\r", "a\r\nb\r\n\r\nc", "a\rb\nc\r\nd\n\re", " \n  \n   \n", "a \n b\n  c\n   d", "   a", "a   ",
    "\t a \t b\t\tc", "a\u00a0b\u00a0\u00a0c \u00a0 d", "a\u2002b\u2003c\u2009d\u200ae\u202ff\u205fg\u3000h",
    "\u3000\u3000\u4f60\u597d\u3000", "a\u2028b\u2029c\u0085d", "a\u200bb\ufeffc\u2060d\u00ade",
    "\x0b\x0c\x1c\x1d\x1e\x1f a\x0bb\x0cc", " \u1680 \u180e ", "  \n\t\r\n \x0b\n  x", "x  \n\n  y  \n",
    "!\n!\r\n\n? \n .\n\n", "a  \u00a0  b", "\n \n \n x \n",
]
CONTROL = [
    "\x00", "a\x00b\x00\x00c", "\x01\x02\x03\x04\x05\x06\x07\x08", "\x1b[31mred\x1b[0m", "\x7f\x80\x9f del",
    "\ufffd \ufffe \uffff \ufdd0", "\ue000\uf8ff \U000f0000 \U0010ffff", "\u202eabc\u202c \u2066x\u2069",
    "\u0378\u0379 \u0530 \U000e0fff unassigned", "\u0600\u06dd \u070f \U000110bd",
]
SPECIAL = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|>", "a<|endoftext|>b <|endoftext|> c", "<|im_start|><|im_start|><|im_end|>",
    "<|im_start", "|im_start|>", "<|im_start|", "< |im_start|>", "<|IM_START|>", "<<|im_end|>>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c><\uff5cUser\uff5c>Hi<\uff5cAssistant\uff5c><think>\n",
    "<think>\nok\n</think>\n\n<tool_call>{\"name\": 1}</tool_call>",
    "x <think> y </think> z<think", "<file_sep><repo_name>a/b<filename>c.py<gh_stars>100",
    "e\u0301<|im_end|>\u0301e", "  <|im_end|>  \n<|im_end|>\n", "'s<|im_end|>'s123<|im_end|>456",
]
LONG = [
    "a" * 700, " " * 500 + "x", "\n" * 300, "1234567890" * 30, "\u4f60" * 120, "ab" * 200,
    "!" * 257, "\t" * 65 + " " * 65, "\U0001f600" * 40, "e\u0301" * 60, "A" * 1023, " a" * 150,
    "<|im_end|>" * 20, "\r\n" * 80, "_" * 129 + "-" * 129, "Donaudampfschifffahrtsgesellschaftskapit\u00e4n" * 3,
]
INVALID = [
    b"\x80", b"abc\xffdef", b"\xc3(", b"\xc3", b"ok \xe2\x82", b"\xe2\x82 ok", b"\xe2(\xa1", b"\xf0\x9f\x98",
    b"\xf0\x9f\x98 \xf0\x9f \xf0", b"\xed\xa0\x80 \xed\xbf\xbf", b"\xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf",
    b"\xf4\x90\x80\x80 \xf5\x80\x80\x80", b"\xfe\xfe\xff\xff", b"\x80\x81\x82\x83\xbf", b"a\xe4\xbd\xa0\xe4\xbdb",
    b"\xf8\x88\x80\x80\x80", b"1\xff2\xff33", b" \xc2 \xc2\xa0\xa0", b"<|im_end|>\xff<|im_end\xff|>",
    b"e\xcc\x81\xcc e\xcc", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41",
]


def random_mixes(count):
    """Random concatenations of the pieces above, so that class borders meet."""
    rng = random.Random(20240607)
    atoms = ["a", "Z", "\u00e9", "e\u0301", "\u4f60", "\u3042", "\uac00", "\u0627", "\u0915\u094d", "1", "22", "\u0661", "\u00bd", " ", "  ",
             "\n", "\r\n", "\t", "\u00a0", "\u3000", "'", "'s", "'LL", "!", "_", "-", "\u2014", "\u20ac", "\U0001f600", "\u200d",
             "<|im_end|>", "<", "|", "\x00", "\ufffd", "\u0301", ".", "word", "The"]
    return ["".join(rng.choice(atoms) for _ in range(rng.randint(4, 28))) for _ in range(count)]


def main():
    entries = []
    for kind, strings in (("prose", PROSE), ("contraction", CONTRACTIONS), ("code", CODE), ("script", SCRIPTS),
                          ("combining", COMBINING), ("emoji", EMOJI), ("digits", DIGITS), ("space", SPACES),
                          ("control", CONTROL), ("special", SPECIAL), ("long", LONG)):
        entries += [(kind, s.encode()) for s in strings]
    entries += [("invalid-utf8", b) for b in INVALID]
    for b in INVALID:
        try:
            b.decode()
        except UnicodeDecodeError:
            continue
        raise SystemExit(f"meant to be invalid but decodes: {b!r}")
    short = 300 - len(entries)
    print(len(entries), "handwritten,", short, "random mixes")
    assert short >= 0
    entries += [("mix", s.encode()) for s in random_mixes(short)]
    lines = [json.dumps({"kind": k, "b64": base64.b64encode(b).decode()}) for k, b in entries]
    with open(os.path.join(HERE, "tokenizer_corpus.json"), "w") as f:
        f.write("[\n" + ",\n".join(lines) + "\n]\n")
    print(sum(len(b) for _, b in entries), "bytes")


if __name__ == "__main__":
    main()
