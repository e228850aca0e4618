#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path nvidia/DeepSeek-R1-0528-FP4 \
  --tp 8 \
  --quantization modelopt_fp4 \
  --attention-backend trtllm_mla \
  --moe-runner-backend flashinfer_trtllm \
  --kv-cache-dtype fp8_e4m3 \
  --host 127.0.0.1
