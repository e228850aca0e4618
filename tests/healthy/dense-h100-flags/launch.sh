#!/usr/bin/env bash
CUDA_VISIBLE_DEVICES=3 python3 -m sglang.launch_server \
  --model-path meta-llama/Llama-3.1-8B-Instruct \
  --host 127.0.0.1 \
  --attention-backend fa3 \
  --page-size 64 \
  --kv-cache-dtype fp8_e4m3 \
  --schedule-policy lpm \
  --chunked-prefill-size 4096 \
  --schedule-conservativeness 1.3 \
  --max-running-requests 256 \
  --enable-hierarchical-cache \
  --enable-deterministic-inference
