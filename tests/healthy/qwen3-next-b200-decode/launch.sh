#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path Qwen/Qwen3-Next-80B-A3B-Instruct \
  --tp 4 \
  --disaggregation-mode decode \
  --disaggregation-transfer-backend mooncake \
  --mamba-radix-cache-strategy no_buffer \
  --host 127.0.0.1
