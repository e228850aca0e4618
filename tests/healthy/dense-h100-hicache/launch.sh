#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path meta-llama/Llama-3.3-70B-Instruct \
  --tp 4 \
  --enable-hierarchical-cache \
  --hicache-ratio 1.5 \
  --hicache-mem-layout page_first_direct \
  --page-size 64 \
  --host 127.0.0.1
