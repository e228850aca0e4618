#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path meta-llama/Llama-3.3-70B-Instruct \
  --tp 4 \
  --prefill-attention-backend fa3 \
  --decode-attention-backend trtllm_mha \
  --page-size 64 \
  --host 127.0.0.1
