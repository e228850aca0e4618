#!/usr/bin/env bash
export SGLANG_USE_AITER=1
export SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION=1
python3 -m sglang.launch_server \
  --model-path meta-llama/Llama-3.3-70B-Instruct \
  --tp 4 \
  --attention-backend aiter \
  --mem-fraction-static 0.9 \
  --host 127.0.0.1
