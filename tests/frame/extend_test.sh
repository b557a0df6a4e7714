# timeout: 300
# SPDX-License-Identifier: Apache-2.0
# Adding an op is one new folder and one line in ops/ops.def; adding a model is one new file. In a copy of the tree the
# folder of silu_mul serves as template of an op "toy", models/llama.c as that of an architecture "ToyForCausalLM".
set -eu
rm -rf copy build
mkdir -p copy/tests
cd "$KEEL_SOURCE_DIR"
cp -r CMakeLists.txt .clang-format cmake scripts include src ops models tools "$OLDPWD/copy"
cp -r tests/CMakeLists.txt tests/support "$OLDPWD/copy/tests"
cd "$OLDPWD/copy"

mkdir ops/toy
for suffix in .h .c _test.c; do
    sed 's/silu_mul/toy/g; s/SILU_MUL/TOY/g; s/vec_toy/vec_silu_mul/g' ops/silu_mul/silu_mul$suffix > ops/toy/toy$suffix
done
echo 'OP(toy)' >> ops/ops.def
sed 's/keel_model_llama/keel_model_toy/; s/LlamaForCausalLM/ToyForCausalLM/; s/"llama"/"toy"/' models/llama.c > models/toy.c
grep -q keel_model_toy models/toy.c && grep -q ToyForCausalLM models/toy.c

cmake -S . -B ../build -G Ninja -DCMAKE_BUILD_TYPE=Debug > ../configure.log || { cat ../configure.log; exit 1; }
cmake --build ../build --target keel_cli test_ops_toy > ../compile.log || { cat ../compile.log; exit 1; }
KEEL_SOURCE_DIR=$PWD bash scripts/check_ops.sh
KEEL_SOURCE_DIR=$PWD bash scripts/check_includes.sh
cd ..
build/tests/test_ops_toy

cat > config.json <<'END'
{"architectures": ["ToyForCausalLM"], "model_type": "toy", "hidden_size": 64, "intermediate_size": 128,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": true, "torch_dtype": "bfloat16"}
END
build/keel plan --synth config.json -o toy.plan
[ -s toy.plan ]
# The program without the file refuses, and names what it knows.
status=0
"$KEEL" plan --synth config.json -o refused.plan 2> message || status=$?
if [ $status -ne 2 ] || ! grep -q ToyForCausalLM message || ! grep -q LlamaForCausalLM message || [ -e refused.plan ]; then
    echo "exit $status:"
    cat message
    exit 1
fi
